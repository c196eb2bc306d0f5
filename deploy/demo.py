"""`make demo`: from nothing to a serving system. A made-up market, its release, the service, and a first answer.

What is there already is used again: the second time takes seconds. Goes on serving until Ctrl-C; with --check it asks,
checks what it is told, and stops.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

DEMO = Path("demo")
RELEASES = DEMO / "releases"
LOG = DEMO / "serve.log"
QUERY = "throne"
PATIENCE = 120.0


def main() -> None:
    check = "--check" in sys.argv[1:]
    port = int(os.environ.get("XREG_PORT") or 8000)
    if _is_taken(port):
        sys.exit(f"port {port} is in use; choose another: XREG_PORT={port + 1} make demo")
    if not (RELEASES / "CURRENT").exists():
        make_release()
    with serving(port) as service:
        show(port)
        if check:
            check_answers(port)
            return
        print("Ctrl-C stops it.", flush=True)
        try:
            sys.exit(service.wait())
        except KeyboardInterrupt:
            print()


def make_release() -> None:
    """A market, its click log as a data set, and a release of it. A step that was finished before is not made again."""
    market, clicks = DEMO / "market", DEMO / "clicks"
    if not (market / "ads.csv").exists():
        run("synth", str(market))
    if not clicks.exists():
        run(
            "ingest", "--events", str(market / "events.parquet"), "--ads", str(market / "ads.csv"), "--out", str(clicks)
        )
    run("refresh", "--data", str(clicks), "--releases", str(RELEASES))


def run(*words: str) -> None:
    print(f"$ xreg {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "training.cli", *words], check=True)


@contextmanager
def serving(port: int) -> Iterator[subprocess.Popen[bytes]]:
    print(f"$ xreg serve --releases {RELEASES} --port {port}", flush=True)
    with LOG.open("wb") as log:
        command = [sys.executable, "-m", "service.command", "--releases", str(RELEASES), "--port", str(port)]
        service = subprocess.Popen(command, stderr=log)
    try:
        until = time.monotonic() + PATIENCE
        while not _answers(port):
            if service.poll() is not None or time.monotonic() > until:
                sys.exit(f"the service did not start; {LOG} says:\n{LOG.read_text()}")
            time.sleep(0.1)
        yield service
    finally:
        service.terminate()
        service.wait()


def show(port: int) -> None:
    url, body = f"http://localhost:{port}", json.dumps({"query": QUERY, "k": 3})
    print(f"\n$ curl -s {url}/predict -H 'Content-Type: application/json' -d '{body}'")
    print(json.dumps(ask(port, "/predict", {"query": QUERY, "k": 3}), indent=1))
    report = RELEASES / (RELEASES / "CURRENT").read_text().strip() / "report.html"
    for what, where in (
        ("page", f"{url}/"),
        ("calls", f"{url}/docs"),
        ("metrics", f"{url}/metrics"),
        ("report", report),
    ):
        print(f"  {what:8} {where}")


def check_answers(port: int) -> None:
    """What a newcomer would look at is there, and says what it should."""
    said = ask(port, "/predict", {"query": QUERY, "k": 3})
    ads = said["ads"]
    ok = len(ads) == 3 and all(0 < ad["relevance"] < 1 for ad in ads)
    ok = ok and said["release"] == (RELEASES / "CURRENT").read_text().strip()
    ok = ok and ads == sorted(ads, key=lambda ad: -ad["relevance"])
    why = ask(port, f"/explain?query={quote(QUERY)}&ad={quote(ads[0]['ad'])}")
    ok = ok and why["relevance"] > 0 and bool(why["title"])
    ok = ok and "<title>" in _read(port, "/") and "xreg_request_seconds_count" in _read(port, "/metrics")
    if not ok:
        sys.exit(f"the answer is not what it should be: {said}, {why}")
    print("checked: answer, explanation, page, metrics")


def ask(port: int, path: str, body: Any = None) -> Any:
    return json.loads(_read(port, path, body))


def _read(port: int, path: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _answers(port: int) -> bool:
    try:
        _read(port, "/health/ready")
    except (URLError, OSError):
        return False
    return True


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


if __name__ == "__main__":
    main()
