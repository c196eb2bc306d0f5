"""POST /predict, the hot path: a raw ASGI handler in front of the router.

The kernel takes tens of microseconds and runs on the event loop, since a hop to a thread costs as much; only requests
that name many candidates go to one. A deadline that the beam would miss narrows it, by what searches took lately per
node of the beam: the answer then says `degraded`.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from msgspec import UNSET

from core.errors import XregError
from core.merge import SOURCES
from core.served import Found, Wanted
from core.sparse import Floats
from service.admission import REFUSED, Admission
from service.exchange import JSON, DisconnectedError, Exchange, Receive, Scope, Send, check_kind, read_body
from service.holder import Holder, Release
from service.offload import Offload
from service.pace import Pace, deadline_of
from service.problems import FAILURE, Fault, RefusedError, invalid, problem, problem_of
from service.reading import read_predict
from service.schemas import Ad, PredictAnswer, PredictRequest, Wishes, encode
from service.settings import Settings
from service.telemetry import Noted, Telemetry

ROUTE = "/predict"
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
        telemetry: Telemetry,
    ) -> None:
        self._settings, self._holder, self._admission = settings, holder, admission
        self._pace, self._offload, self._telemetry = pace, offload, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, asked = Exchange(scope, self._holder.name, self._holder.draining), None
        try:
            _check_head(scope, exchange)
            asked = read_predict(
                await read_body(exchange, receive, self._settings.max_body, self._settings.body_seconds)
            )
            if REFUSED in scope:
                raise self._admission.refusal()
            await self._answer(exchange, asked, send)
        except RefusedError as refused:
            await exchange.refuse(send, refused.problem, refused.headers)
        except XregError as error:  # a shared table that cannot be reached
            await exchange.refuse(send, problem_of(error))
        except DisconnectedError:
            exchange.status = _CLOSED
        except Exception as error:
            self._telemetry.failure(error, exchange.request_id, exchange.release)
            await exchange.refuse(send, FAILURE)
        if exchange.status != 200:
            self._telemetry.observe(ROUTE, exchange.status, exchange.seconds)
        if self._settings.log_requests:
            self._log(exchange, asked)

    async def _answer(self, exchange: Exchange, asked: PredictRequest, send: Send) -> None:
        release = self._holder.pinned()
        exchange.release = release.name
        given = exchange.headers.get(b"x-deadline-ms")
        deadline = None if given is None else deadline_of(given.decode("latin-1"))
        read = exchange.seconds
        if asked.candidates is not UNSET and len(asked.candidates) > _ON_LOOP:
            found, degraded = await self._offload.run(lambda: self._found(exchange, release, asked, deadline))
        else:
            found, degraded = self._found(exchange, release, asked, deadline)
        done = exchange.seconds
        exchange.timing = f"answer;dur={1e3 * (done - read):.3f}, "
        said = PredictAnswer(release.name, degraded, ads_of(release, found), found.reason)
        await exchange.answer(send, 200, JSON, encode(said))
        total = exchange.seconds
        self._telemetry.note(Noted(found, degraded, read, total - done, total))

    def _found(
        self, exchange: Exchange, release: Release, asked: PredictRequest, deadline: float | None
    ) -> tuple[Found, bool]:
        served = release.served
        wished = served.beam if asked.beam is UNSET else asked.beam
        beam = self._admission.narrowed(wished)
        if deadline is not None:
            beam = self._pace.within(beam, deadline - exchange.seconds)
        started = perf_counter()
        wanted = wanted_of(release, asked, beam)
        if asked.features is UNSET:
            assert asked.query is not UNSET  # one of them was given
            found = served.ask(asked.query, wanted)
        else:
            most = max(asked.features.indices, default=0)
            if most >= served.text.n_features:
                at = asked.features.indices.index(most)
                detail = f"must be below {served.text.n_features}, the model's features; got {most}"
                raise RefusedError(invalid(Fault(f"/features/indices/{at}", detail)))
            found = served.ask_features(asked.features.indices, asked.features.values, wanted)
        self._pace.took(beam, perf_counter() - started)
        return found, beam < wished

    def _log(self, exchange: Exchange, asked: PredictRequest | None) -> None:
        text = asked.query if asked is not None and asked.query is not UNSET else None
        self._telemetry.log(
            "predict",
            request=exchange.request_id.decode(),
            trace=exchange.traceparent,
            release=exchange.release,
            status=exchange.status,
            seconds=round(exchange.seconds, 6),
            query=None if text is None else self._telemetry.query(text),
        )


def wanted_of(release: Release, asked: Wishes, beam: int) -> Wanted:
    """A request in numbers of ads. Unknown ads are left out: nobody answers them anyway."""
    find = release.served.numbers
    candidates = None if asked.candidates is UNSET else find(asked.candidates)
    exclude = find(asked.exclude) if asked.exclude else ()
    return Wanted(asked.k, asked.threshold, beam, asked.source, asked.rank, exclude, candidates)


def ads_of(release: Release, found: Found) -> list[Ad]:
    """The ads of an answer, as people know them."""
    ad_id, merged = release.ad_id, found.merged
    relevance = _rounded(merged.scores)
    worth = relevance if found.worth is merged.scores else _rounded(found.worth)
    rows = zip(merged.ads.tolist(), relevance, merged.sources.tolist(), worth, strict=True)
    return [Ad(ad_id(ad), score, SOURCES[source], value) for ad, score, source, value in rows]


def _rounded(scores: Floats) -> list[float]:
    """To what 32 bits can tell: eight places."""
    rounded: list[float] = scores.astype(np.float64).round(8).tolist()
    return rounded


def _check_head(scope: Scope, exchange: Exchange) -> None:
    if scope["method"] != "POST":
        raise RefusedError(problem(405, "method", f"{ROUTE} is asked with POST"), ((b"allow", b"POST"),))
    check_kind(exchange.headers.get(b"content-type", b""))
