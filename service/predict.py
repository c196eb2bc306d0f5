"""POST /predict, the hot path: a raw ASGI handler in front of the router.

The kernel takes tens of microseconds and runs on the event loop, since a hop to a thread costs as much; only requests
that name many ads or features, or say very much, go to one. A deadline that the beam would miss narrows it, by what
searches took lately per node of the beam, and so does pressure; where that lasts, the table answers alone what it can.
The answer then says `degraded`. What was asked before in the same bytes is answered from the release's cache.
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
from service.telemetry import Telemetry
from service.turns import pause

ROUTE, DEADLINE = "/predict", b"x-deadline-ms"
_ON_LOOP, _LONG_TEXT = 50, 200  # ids, features and characters up to which an answer is found on the event loop
CLOSED = 499  # in metrics: the client did not wait


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
            settings = self._settings
            body = await read_body(exchange.headers, receive, settings.max_body, settings.body_seconds)
            if REFUSED in scope:
                raise self._admission.refusal()
            release = self._holder.pinned()
            exchange.release = release.name
            kept = None if DEADLINE in exchange.headers else release.answers.get(body)
            if kept is None:
                kept = await self._answer_anew(exchange, release, body, send)
            else:
                exchange.timing = b"cache;desc=hit, "
                await exchange.answer(send, 200, JSON, kept.body)
                self._telemetry.note(kept.found, False, exchange.seconds, around=None)
            if self._shadow is not None and kept is not None:
                self._shadow.offer(body, release, kept.found)
        except RefusedError as refused:
            await exchange.refuse(send, refused.problem, refused.headers)
        except XregError as error:  # a shared table that cannot be reached
            await exchange.refuse(send, problem_of(error))
        except DisconnectedError:
            exchange.status = CLOSED
        except Exception as error:
            self._telemetry.failure(error, exchange.request_id, exchange.traceparent, exchange.release)
            if not exchange.answered:
                await exchange.refuse(send, FAILURE)
        if exchange.status != 200:
            self._telemetry.observe(ROUTE, exchange.status, exchange.seconds)
        if self._settings.log_requests:
            self._log(exchange, body)

    async def _answer_anew(self, exchange: Exchange, release: Release, body: bytes, send: Send) -> Kept | None:
        """Returns the answer, unless it is that of a narrowed beam."""
        asked = read_predict(body)
        given = exchange.headers.get(DEADLINE)
        deadline = None if given is None else deadline_of(given.decode("latin-1"))
        read = perf_counter() - exchange.started
        await pause()
        began = perf_counter()
        if _is_long(asked):
            found, degraded = await self._offload.run(lambda: self._found(exchange, release, asked, deadline))
        else:
            found, degraded = self._found(exchange, release, asked, deadline)
        took = perf_counter() - began
        await pause()
        done = perf_counter()
        said = encode(PredictAnswer(release.name, degraded, ads_of(release, found), found.reason))
        exchange.timing = b"answer;dur=%.3f, " % (1e3 * took)
        await exchange.answer(send, 200, JSON, said)
        end = perf_counter()
        self._telemetry.note(found, degraded, end - exchange.started, around=(read, end - done))
        if degraded:
            return None
        kept = Kept(said, found)
        release.answers.put(body, kept)
        return kept

    def _found(
        self, exchange: Exchange, release: Release, asked: PredictRequest, deadline: float | None
    ) -> tuple[Found, bool]:
        wished, hurried = beam_of(release, asked), self._admission.lasting
        beam = self._admission.narrowed(wished)
        if deadline is not None:
            beam = self._pace.within(beam, deadline - exchange.seconds)
        found = ask(release, asked, beam, table_first=hurried)
        if asked.candidates is UNSET and found.took is not None:
            self._pace.took(beam, found.took.search)
        return found, hurried or beam < wished

    def _log(self, exchange: Exchange, body: bytes) -> None:
        text = UNSET if exchange.status != 200 else read_predict(body).query
        self._telemetry.log("predict", **exchange.about(), query=None if text is UNSET else self._telemetry.query(text))


def _is_long(asked: PredictRequest) -> bool:
    """Whether an answer may take milliseconds: many ids or features, or a long text that is not plain ASCII."""
    ids = 0 if asked.candidates is UNSET else len(asked.candidates)
    if max(ids, len(asked.exclude)) > _ON_LOOP:
        return True
    if asked.features is not UNSET:
        return len(asked.features.indices) > _ON_LOOP
    return asked.query is not UNSET and len(asked.query) > _LONG_TEXT and not asked.query.isascii()


def _check_head(scope: Scope, exchange: Exchange) -> None:
    if scope["method"] != "POST":
        raise RefusedError(problem(405, "method", f"{ROUTE} is asked with POST"), ((b"allow", b"POST"),))
    check_kind(exchange.headers.get(b"content-type", b""))
