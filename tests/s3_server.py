"""A real server that speaks S3, over a socket: moto's, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs

KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Its host:port; it has the bucket `market`."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **KEYS},
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None
                time.sleep(0.05)
        endpoint = f"127.0.0.1:{port}"
        keys = {"access_key": KEYS["AWS_ACCESS_KEY_ID"], "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
        bucket = {"endpoint_override": endpoint, "scheme": "http", "region": "us-east-1"}
        fs.S3FileSystem(**bucket, **keys, allow_bucket_creation=True).create_dir("market")
        yield endpoint
    finally:
        process.terminate()
        process.wait()


def address(endpoint: str, path: str) -> str:
    return f"s3://market/{path}?endpoint_override={endpoint}&scheme=http&region=us-east-1"
