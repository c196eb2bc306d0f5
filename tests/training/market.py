"""A small click log with everything in it, and a slow, plain reading of it that shares no code with the ingest's."""

from __future__ import annotations

import csv
import gzip
import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

N_ADS = 40
WORDS = ["red", "blue", "Running", "shoes", "MEN'S", "café", "運動靴", "c++", "tisch"]


def write_ads(path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ad_id", "title", "text", "url", "bid", "brand"])
        for i in reversed(range(N_ADS)):
            text = f'Buy {WORDS[i % 9]}, "{WORDS[i % 7]}"\nnow'
            writer.writerow([f"ad{i:03}", f"Title {WORDS[i % 5]}", text, f"https://x/{i}", i / 10 if i else "", "b"])
    return path


def make_rows(n: int = 3000, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of counts with positions and times; queries in several spellings."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        query = " ".join(WORDS[w] for w in rng.integers(0, 9, rng.integers(1, 4)))
        spelled = [query, query.upper(), unicodedata.normalize("NFD", query), f"  {query}!"][rng.integers(4)]
        impressions = int(rng.integers(1, 20))
        position = int(rng.integers(1, 6))
        rows.append(
            {
                "query": spelled,
                "ad_id": f"ad{rng.integers(N_ADS):03}",
                "impressions": impressions,
                "clicks": int(rng.binomial(impressions, 0.3 / position)),
                "position": position,
                "time": f"2026-01-{1 + 28 * i // n:02}T12:00:00",
            }
        )
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Path:
    """As CSV, gzipped CSV or Parquet, by the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), path)
        return path
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return path


COUNTS = ("query", "ad_id", "impressions", "clicks")


def spelled_alike(query: str) -> str:
    """What the queries of `make_rows` have in common with their other spellings."""
    folded = unicodedata.normalize("NFC", query).casefold().replace("'", "").replace("!", "")
    return " ".join(folded.split())


def plain_counts(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Impressions and clicks by (query, ad)."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        total = sums[spelled_alike(row["query"]), row["ad_id"]]
        total[0] += row["impressions"]
        total[1] += row["clicks"]
    return {pair: (a, b) for pair, (a, b) in sums.items()}


def digest_of(directory: Path) -> dict[str, str]:
    """SHA-256 of every file."""
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    return {str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def read_rejects(path: Path) -> list[dict[str, str]]:
    table = pa_csv.read_csv(path, parse_options=pa_csv.ParseOptions(newlines_in_values=True))
    return [{name: str(value) for name, value in row.items()} for row in table.to_pylist()]
