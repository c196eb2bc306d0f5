"""POST /predict, the hot path: a raw ASGI handler in front of the router.

The kernel takes tens of microseconds and runs on the event loop, since a hop to a thread costs as much; only requests
that name many candidates go to one. A deadline that the beam would miss narrows it, by what searches took lately per
node of the beam: the answer then says `degraded`. What was asked before in the same bytes is answered from the
release's cache.
"""

from __future__ import annotations

from time import perf_counter

from msgspec import UNSET

from core.errors import XregError
from core.served import Found
from service.admission import REFUSED, Admission
from service.answers import ads_of, ask, beam_of
from service.cache import Kept
from service.exchange import JSON, DisconnectedError, Exchange, Receive, Scope, Send, check_kind, read_body
from service.holder import Holder, Release
from service.offload import Offload
from service.pace import Pace, deadline_of
from service.problems import FAILURE, RefusedError, problem, problem_of
from service.reading import read_predict
from service.schemas import PredictAnswer, PredictRequest, encode
from service.settings import Settings
from service.shadow import Shadow
from service.telemetry import Noted, Telemetry

ROUTE, DEADLINE = "/predict", b"x-deadline-ms"
_ON_LOOP = 50  # candidates that are scored on the event loop
_CLOSED = 499  # in metrics: the client did not wait


class Predict:
    """The handler."""

    def __init__(
        self,
        settings: Settings,
        holder: Holder,
        admission: Admission,
        pace: Pace,
        offload: Offload,
        shadow: Shadow | None,
        telemetry: Telemetry,
    ) -> None:
        self._settings, self._holder, self._admission = settings, holder, admission
        self._pace, self._offload, self._shadow, self._telemetry = pace, offload, shadow, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, body = Exchange(scope, self._holder.name, self._holder.draining), b""
        try:
            _check_head(scope, exchange)
            body = await read_body(exchange, receive, self._settings.max_body, self._settings.body_seconds)
            if REFUSED in scope:
                raise self._admission.refusal()
            await self._answer(exchange, body, send)
        except RefusedError as refused:
            await exchange.refuse(send, refused.problem, refused.headers)
        except XregError as error:  # a shared table that cannot be reached
            await exchange.refuse(send, problem_of(error))
        except DisconnectedError:
            exchange.status = _CLOSED
        except Exception as error:
            self._telemetry.failure(error, exchange.request_id, exchange.traceparent, exchange.release)
            await exchange.refuse(send, FAILURE)
        if exchange.status != 200:
            self._telemetry.observe(ROUTE, exchange.status, exchange.seconds)
        if self._settings.log_requests:
            self._log(exchange, body)

    async def _answer(self, exchange: Exchange, body: bytes, send: Send) -> None:
        release = self._holder.pinned()
        exchange.release = release.name
        kept = None if DEADLINE in exchange.headers else release.answers.get(body)
        if kept is None:
            kept = await self._answer_anew(exchange, release, body, send)
        else:
            exchange.timing = b"cache;desc=hit, "
            await exchange.answer(send, 200, JSON, kept.body)
            self._telemetry.note(Noted(kept.found, False, True, 0.0, 0.0, exchange.seconds))
        if self._shadow is not None and kept is not None:
            self._shadow.offer(body, release, kept.found)

    async def _answer_anew(self, exchange: Exchange, release: Release, body: bytes, send: Send) -> Kept | None:
        """Returns the answer, unless it is that of a narrowed beam."""
        asked = read_predict(body)
        given = exchange.headers.get(DEADLINE)
        deadline = None if given is None else deadline_of(given.decode("latin-1"))
        read = exchange.seconds
        if asked.candidates is not UNSET and len(asked.candidates) > _ON_LOOP:
            found, degraded = await self._offload.run(lambda: self._found(exchange, release, asked, deadline))
        else:
            found, degraded = self._found(exchange, release, asked, deadline)
        done = exchange.seconds
        said = encode(PredictAnswer(release.name, degraded, ads_of(release, found), found.reason))
        exchange.timing = b"answer;dur=%.3f, " % (1e3 * (done - read))
        await exchange.answer(send, 200, JSON, said)
        total = exchange.seconds
        self._telemetry.note(Noted(found, degraded, False, read, total - done, total))
        if degraded:
            return None
        kept = Kept(said, found)
        release.answers.put(body, kept)
        return kept

    def _found(
        self, exchange: Exchange, release: Release, asked: PredictRequest, deadline: float | None
    ) -> tuple[Found, bool]:
        wished = beam_of(release, asked)
        beam = self._admission.narrowed(wished)
        if deadline is not None:
            beam = self._pace.within(beam, deadline - exchange.seconds)
        started = perf_counter()
        found = ask(release, asked, beam)
        self._pace.took(beam, perf_counter() - started)
        return found, beam < wished

    def _log(self, exchange: Exchange, body: bytes) -> None:
        text = UNSET if exchange.status != 200 else read_predict(body).query
        self._telemetry.log(
            "predict",
            request=exchange.request_id.decode(),
            trace=exchange.traceparent,
            release=exchange.release,
            status=exchange.status,
            seconds=round(exchange.seconds, 6),
            query=None if text is UNSET else self._telemetry.query(text),
        )


def _check_head(scope: Scope, exchange: Exchange) -> None:
    if scope["method"] != "POST":
        raise RefusedError(problem(405, "method", f"{ROUTE} is asked with POST"), ((b"allow", b"POST"),))
    check_kind(exchange.headers.get(b"content-type", b""))
