"""`xreg serve`: the service under uvicorn with uvloop and httptools, in one process or several.

Workers share the listening socket and the pages of the mapped release; uvicorn starts another where one dies. At
SIGTERM a worker turns unready, goes on listening for `drain_seconds` so that balancers can look away, finishes what was
admitted and ends with exit code 0.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import uvicorn
from uvicorn.supervisors import Multiprocess

from core.errors import ReleaseError, XregError
from core.remote_releases import mirrored
from service.app import Service, create_app
from service.protocol import Protocol
from service.settings import PREFIX, Settings, default_of, kinds, read_settings
from service.telemetry import LogLines, Telemetry

_GARBAGE = 50_000, 20, 20  # a request leaves no cycles behind: looking for them every few requests is for nothing
_SWITCH = 0.0005  # seconds that a thread may keep the event loop from running


class Config(uvicorn.Config):
    """uvicorn's, for our service: each worker gets it whole and makes the application of it."""

    def __init__(self, settings: Settings, metrics: Path | None) -> None:
        super().__init__(
            "service.app:create_app",  # not looked up: `load_app` makes it
            factory=True,
            interface="asgi3",
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            loop="uvloop",
            http=Protocol,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=30,
            timeout_worker_healthcheck=30,
        )
        self._settings, self._metrics = settings, metrics
        self._parent = None if settings.workers == 1 else os.getpid()  # it is made there, and handed to the workers

    def load_app(self) -> Callable[[], Service]:
        """In the worker."""
        settings = self._settings
        telemetry = Telemetry(settings.log_queries, directory=self._metrics, limit=settings.max_concurrency)
        logging.basicConfig(handlers=[LogLines(telemetry)])
        sys.setswitchinterval(_SWITCH)
        gc.freeze()  # what is imported stays
        gc.set_threshold(*_GARBAGE)
        return lambda: create_app(settings, telemetry, self._parent)


def run(settings: Settings) -> None:
    settings = replace(settings, releases=mirrored(settings.releases, settings.watch_seconds))
    if not settings.releases.is_dir():
        raise ReleaseError(f"{settings.releases}: no such directory")
    if settings.workers == 1:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises it again at its end; the exit code is 0
        uvicorn.Server(Config(settings, None)).run()
        return
    with tempfile.TemporaryDirectory(prefix="xreg-metrics-") as metrics:
        logging.basicConfig(handlers=[LogLines(Telemetry(settings.log_queries))])
        config = Config(settings, Path(metrics))
        Multiprocess(config, sockets=[config.bind_socket()]).run()


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for every setting."""
    for setting in reversed(fields(Settings)):
        kind, default = kinds()[setting.name], default_of(setting)
        flag = "--" + setting.name.replace("_", "-")
        about = f"{setting.metadata['help']}  [env: {PREFIX}{setting.name.upper()}; " + (
            "needed]" if default is None else f"default: {default}]"
        )
        as_read = {"is_flag": True} if kind is bool else {"type": kind}
        command = click.option(flag, setting.name, default=None, help=about, **as_read)(command)
    return command


@click.command()
@_options
def serve(**flags: Any) -> None:
    """Answer queries over HTTP from the release being served; new releases are taken over as they are published."""
    try:
        run(read_settings(os.environ, flags))
    except XregError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    serve()
