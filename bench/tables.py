"""Lookups in a table: `python bench/tables.py [--quick] [--json FILE]`.

1M made-up queries of ten ads, asked in random order, one thread: the mapped table, and the shared one on a redis-server
of its own on the loopback. Needs redis-server (apt-get install redis-server). --quick: a tenth of the queries.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
sys.path.append(str(Path(__file__).resolve().parent.parent))  # and `tests` would be unknown

import numpy as np
from redis import Redis
from rich.console import Console
from rich.table import Table as Grid

from core.redis_fill import fill_redis
from core.redis_table import RedisTable
from core.tables import MappedTable, Table, write_table
from tests.redis_server import redis_server

ADS, MANY = 10, 100  # ads of a row; queries of a get_many
WORDS = ["red", "blue", "trail", "running", "shoes", "women", "men", "waterproof", "kids", "cheap", "winter", "leather"]
console = Console(width=120)


def make_queries(n: int) -> list[str]:
    """Distinct queries of three to five words."""
    random = np.random.default_rng(0)
    words = random.integers(0, len(WORDS), (n, 4))
    return [f"{' '.join(WORDS[w] for w in row[: 2 + i % 3])} {i}" for i, row in enumerate(words)]


def write(directory: Path, queries: list[str]) -> None:
    random = np.random.default_rng(1)
    ads = (random.integers(0, 10**6, (len(queries), 1)) + np.arange(ADS)).astype(np.int32).ravel()
    scores = -np.sort(-random.random((len(queries), ADS), dtype=np.float32), axis=1).ravel()
    write_table(directory, queries, np.arange(len(queries) + 1) * ADS, ads, scores)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def per_get(table: Table, asked: Sequence[str]) -> tuple[float, float]:
    """Median and 99th percentile of one get, µs."""
    times = np.empty(len(asked))
    for i, query in enumerate(asked):
        start = time.perf_counter_ns()
        row = table.get(query)
        times[i] = time.perf_counter_ns() - start
        assert row is not None
    p50, p99 = np.percentile(times, [50, 99]) / 1000
    return float(p50), float(p99)


def per_key(table: Table, asked: Sequence[str]) -> float:
    """Median µs for each key of a get_many."""
    blocks = [asked[i : i + MANY] for i in range(0, len(asked), MANY)]
    return float(np.median([seconds(lambda block=block: table.get_many(block)) for block in blocks])) / MANY * 1e6  # type: ignore[misc]


def measure(directory: Path, n: int) -> dict[str, float]:
    queries, figures = make_queries(n), dict[str, float]()
    figures["table_write_s"] = seconds(lambda: write(directory, queries))
    figures["table_bytes_per_query"] = sum(file.stat().st_size for file in directory.iterdir()) / n
    figures["table_verify_s"] = seconds(lambda: MappedTable.open(directory))
    figures["table_open_ms"] = seconds(lambda: MappedTable.open(directory, verify=False)) * 1000
    mapped, random = MappedTable.open(directory, verify=False), np.random.default_rng(2)
    asked = [queries[i] for i in random.choice(n, min(n, 100_000), replace=False)]
    figures["table_p50_us"], figures["table_p99_us"] = per_get(mapped, asked)
    figures["table_many_us"] = per_key(mapped, asked)
    with redis_server() as url:
        figures["redis_fill_s"] = seconds(lambda: fill_redis(url, "bench", "v1", mapped))
        table = RedisTable.open(url, "bench")
        figures["redis_p50_us"], figures["redis_p99_us"] = per_get(table, asked[:20_000])
        figures["redis_many_us"] = per_key(table, asked)
        table.close()
        with Redis.from_url(url) as client:
            figures["redis_bytes_per_query"] = client.info("memory")["used_memory"] / n
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    n = 100_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="xreg-bench-") as directory:
        figures = measure(Path(directory), n)
    grid = Grid("", "", title=f"{n:,} queries of {ADS} ads")
    for name, value in figures.items():
        grid.add_row(name, f"{value:.2f}")
    console.print(grid)
    if options.json:
        options.json.write_text(json.dumps({"queries": n} | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
