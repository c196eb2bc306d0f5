"""`xreg serve`: the service under uvicorn with uvloop and httptools.

At SIGTERM the service turns unready, goes on listening for `drain_seconds` so that balancers can look away, finishes
what was admitted and ends with exit code 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from types import FrameType
from typing import Any

import click
import uvicorn

from core.errors import ReleaseError, XregError
from service.app import Service, create_app
from service.settings import PREFIX, Settings, default_of, kinds, read_settings
from service.telemetry import LogLines


class Server(uvicorn.Server):
    """uvicorn's, which is told to stop a little later than the service."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A first signal drains, a second one does not wait."""
        if self._service.holder.draining:
            self.should_exit = True
            return
        self._service.holder.draining = True
        self._service.telemetry.log("draining", signal=sig)
        asyncio.get_running_loop().call_later(self._service.settings.drain_seconds, self._stop)

    def _stop(self) -> None:
        self.should_exit = True


def run(settings: Settings) -> None:
    if not settings.releases.is_dir():
        raise ReleaseError(f"{settings.releases}: no such directory")
    service = create_app(settings)
    logging.basicConfig(handlers=[LogLines(service.telemetry)])
    config = uvicorn.Config(
        service,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=30,
    )
    Server(config, service).run()


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
