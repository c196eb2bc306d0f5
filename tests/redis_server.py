"""A real redis-server on the loopback, for as long as a block lasts: its own directory, nothing kept."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as NotConnected

MISSING = "redis-server is not installed: apt-get install redis-server"


@contextmanager
def redis_server(cluster: bool = False) -> Iterator[str]:
    """The URL of a server; with `cluster` it is one node that holds all slots of a cluster."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError(MISSING)
    with tempfile.TemporaryDirectory(prefix="xreg-redis-") as directory:
        port, bus = _free_port(), _free_port()
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": directory}
        if cluster:
            options |= {"cluster-enabled": "yes", "cluster-port": bus}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        log = Path(directory) / "log"
        with log.open("w") as file:
            process = subprocess.Popen([program, *arguments], stdout=file, stderr=file)
        try:
            _wait_until_ready(port, cluster, process, log)
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(port: int, cluster: bool, process: subprocess.Popen[Any], log: Path) -> None:
    with Redis(port=port, host="127.0.0.1") as client:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"redis-server ended: {log.read_text()}")
            try:
                client.ping()
                break
            except NotConnected:
                time.sleep(0.02)
        if cluster:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                time.sleep(0.02)
