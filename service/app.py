"""The application: /predict in front, everything else through FastAPI's router, what every answer carries around both.

`create_app` puts the parts together and starts nothing: the lifespan opens the release and watches for the next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping
from contextlib import asynccontextmanager
from functools import cache
from time import monotonic
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from starlette.exceptions import HTTPException
from starlette.routing import Match

from core import __version__
from core.errors import XregError
from service.admin import admin_routes, release_routes
from service.admission import Admission
from service.asking import asking_routes
from service.counts import gauge
from service.draining import delayed_signals
from service.exchange import RELEASE, DisconnectedError, Exchange, Receive, Scope, Send
from service.health import health_routes
from service.holder import Holder
from service.job_routes import job_routes
from service.job_runner import JobRunner
from service.jobs import Jobs
from service.offload import Offload
from service.openapi import document
from service.pace import Pace
from service.page.routes import page_routes
from service.predict import CLOSED, ROUTE, Predict
from service.problems import FAILURE, Fault, Problem, RefusedError, invalid, problem, problem_of
from service.schemas import encode
from service.settings import Settings
from service.shadow import shadow_of
from service.telemetry import Telemetry
from service.turns import Turns

_PAUSE = 1.0  # seconds


class Connection(Protocol):
    """What the application knows of a connection (service/protocol.py)."""

    def close_if_idle(self, seconds: float) -> None: ...


class Service:
    """The ASGI application."""

    def __init__(self, settings: Settings, telemetry: Telemetry, parent: int | None) -> None:
        self.settings, self.telemetry, self._parent = settings, telemetry, parent
        self.holder = Holder(settings.releases, settings.cache, telemetry)
        self.jobs = Jobs(settings.jobs_dir or settings.releases / ".jobs")
        telemetry.add_source(self._job_metrics)
        self.connections = set[Connection]()
        self.admission = Admission(settings.max_concurrency, telemetry)
        self.turns = Turns(self.admission)
        pace, offload = Pace(), Offload(settings.max_long, telemetry)
        self._shadow = shadow_of(settings, telemetry)
        self._predict = Predict(settings, self.holder, self.admission, pace, offload, self._shadow, telemetry)
        self.api = FastAPI(title="xreg", version=__version__, lifespan=self._lifespan, docs_url=None, redoc_url=None,
                           redirect_slashes=False)  # fmt: skip
        self.api.openapi = cache(lambda: document(self.api, settings))  # type: ignore[method-assign]  # FastAPI's own way
        routers = (
            asking_routes(settings, self.holder, pace, offload, telemetry),
            job_routes(settings, self.jobs),
            health_routes(self.holder),
            release_routes(settings, self.holder),
            admin_routes(settings, self.holder),
            page_routes(self.holder),
        )
        for router in routers:
            self.api.include_router(router)
        self._routes = [route for router in routers for route in router.routes]
        self.api.add_api_route("/metrics", self._metrics, response_class=Response, tags=["health"])
        for kind in (RefusedError, DisconnectedError, HTTPException, RequestValidationError, XregError, Exception):
            self.api.add_exception_handler(kind, self._refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.api(scope, receive, send)
        elif scope["path"] == ROUTE:
            await self._predict(scope, receive, send)
        else:
            await self._other(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A route of FastAPI's, with the headers that every answer carries, counted."""
        exchange = Exchange(scope, self.holder.name, self.holder.draining)

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.release = scope.get(RELEASE, exchange.release)
                message["headers"] = [*message.get("headers", ()), *exchange.own_headers()]
            await send(message)

        try:
            await self.api(scope, receive, sent)
        except Exception as error:  # answered by `_refusal`; Starlette raises it again for the log
            self.telemetry.failure(error, exchange.request_id, exchange.traceparent, exchange.release)
        route = getattr(scope.get("route"), "path", "other").replace(":path", "")
        self.telemetry.observe(route, exchange.status, exchange.seconds)
        if self.settings.log_requests:
            self.telemetry.log("request", route=route, **exchange.about())

    async def _refusal(self, request: Request, error: Exception) -> Response:
        """Every error of a route as a problem."""
        if isinstance(error, DisconnectedError):
            return Response(status_code=CLOSED)  # nobody sees it but the metrics
        said, headers = _problem(error), dict[str, str]()
        if isinstance(error, RefusedError):
            headers = {name.decode(): value.decode() for name, value in error.headers}
        elif isinstance(error, HTTPException):
            headers = dict(error.headers or {})
            if error.status_code == 405:  # Starlette names the methods of the first route of a path: there may be more
                found = [route for route in self._routes if route.matches(request.scope)[0] is not Match.NONE]
                methods = {method for route in found for method in getattr(route, "methods", ())}
                headers["Allow"] = ", ".join(sorted(methods)) or headers.get("Allow", "GET")
        return Response(encode(said), said.status, headers, media_type="application/problem+json")

    async def _metrics(self) -> Response:
        """For Prometheus."""
        self.telemetry.tick()
        return Response(await asyncio.to_thread(self.telemetry.metrics), media_type=CONTENT_TYPE_LATEST)

    @asynccontextmanager
    async def _lifespan(self, api: FastAPI) -> AsyncIterator[None]:
        self.telemetry.log("start", xreg=__version__, releases=self.settings.releases, pid=os.getpid())
        runner = JobRunner(self.settings, self.jobs, self.telemetry)
        if self.settings.workers > 1:
            await self.holder.reload()  # until a worker can answer, others do: it does not listen yet
        work = [lambda: self.holder.watch(self.settings.watch_seconds), self._tick, runner.run]
        if self._shadow is not None:
            work.append(self._shadow.run)
        tasks = [asyncio.create_task(self._kept_up(one)) for one in work]
        with delayed_signals(self._drain, self.settings.drain_seconds):
            yield  # live before it is ready
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.telemetry.tick()
        self.telemetry.log("stop", release=self.holder.name)

    async def _kept_up(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work in the background goes on, whatever happens to it."""
        while True:
            try:
                await work()
                return
            except Exception as error:
                self.telemetry.failure(error, b"background", None, self.holder.name)
            await asyncio.sleep(_PAUSE)

    def _job_metrics(self) -> Iterator[Metric]:
        try:
            states, going = self.jobs.counts()
        except (sqlite3.Error, OSError):  # the others are needed all the more
            states, going = {}, {}
        yield gauge("xreg_jobs", "Jobs, by state.", [((state,), n) for state, n in states.items()], "state")
        progress = [((job,), share) for job, share in going.items()]
        yield gauge("xreg_job_progress_ratio", "How far jobs are that have not ended.", progress, "job")

    def _drain(self, number: int) -> None:
        self.holder.draining = True
        self.telemetry.log("draining", signal=number)

    async def _tick(self) -> None:
        due = monotonic()
        while True:
            self.telemetry.tick()
            self.telemetry.counts.observe("xreg_loop_lag_seconds", [max(0.0, monotonic() - due)])
            for connection in list(self.connections):
                connection.close_if_idle(self.settings.idle_seconds)
            if self._parent not in (None, os.getppid()):
                signal.raise_signal(signal.SIGTERM)  # nobody would start another worker, or end this one
            due = monotonic() + _PAUSE
            await asyncio.sleep(_PAUSE)


def create_app(settings: Settings, telemetry: Telemetry | None = None, parent: int | None = None) -> Service:
    """`parent`: the process that this one must not outlive, where it is a worker of several."""
    return Service(settings, telemetry or Telemetry(settings.log_queries, limit=settings.max_concurrency), parent)


def _problem(error: Exception) -> Problem:
    if isinstance(error, RefusedError):
        return error.problem
    if isinstance(error, XregError):
        return problem_of(error)
    if isinstance(error, HTTPException):
        return problem(error.status_code, "http", str(error.detail))
    if isinstance(error, RequestValidationError):
        return invalid(*(Fault(f"/{one['loc'][-1]}", str(one["msg"])) for one in error.errors()))
    return FAILURE
