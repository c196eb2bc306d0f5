"""What the service is asked, and whether what it says is right.

Half of the queries are rows of the release's table, half are combinations of their words, which the table does not
have. Mixed traffic is as people ask: half of the requests are queries that many ask, by Zipf's law, half are queries
that nobody has asked lately. An answer is right if it is whole, if its release is the one that X-Release names, and if
its ads are those that this release gives when it is asked directly: an answer made of two releases fails one of them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from bench.load import FAILED, MIXED, REFUSED, RIGHT, Target, header, request_bytes
from core.releases import current, listing
from core.served import Served

N_QUERIES = 4000
_POPULAR = 500
_GONE = 100  # ads that the second release does not have


def make_queries(served: Served, n: int = N_QUERIES, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    known = [query for query, _ in served.table.rows()]
    words = sorted({word for query in known for word in query.split()})
    asked = [known[i] for i in random.integers(0, len(known), n // 2)]
    for length in random.integers(2, 6, n - len(asked)):
        asked.append(" ".join(words[i] for i in random.integers(0, len(words), length)))
    return [asked[i] for i in random.permutation(len(asked))]


def mixed_queries(served: Served, n: int, seed: int) -> list[str]:
    """Requests in turns: a popular query of the table, the same ones for every seed; a combination of words."""
    known = [query for query, _ in served.table.rows()]
    popular = np.random.default_rng(0).permutation(len(known))[:_POPULAR]
    random = np.random.default_rng(1 + seed)
    weight = 1 / np.arange(1, len(popular) + 1)
    often = random.choice(popular, n // 2, p=weight / weight.sum())
    words = sorted({word for query in known for word in query.split()})
    rare = list[str]()
    while len(set(rare)) < n // 2:
        rare.append(" ".join(words[i] for i in random.integers(0, len(words), 3)))
    return [query for pair in zip((known[i] for i in often), dict.fromkeys(rare), strict=True) for query in pair]


def make_requests(queries: Sequence[str]) -> list[bytes]:
    return [request_bytes("/predict", json.dumps({"query": query}).encode()) for query in queries]


class RightAds:
    """Judges answers of the service by what its releases say."""

    def __init__(self, queries: Sequence[str], releases: Mapping[str, Served]) -> None:
        self._ads = dict[bytes, list[list[str]]]()
        for name, served in releases.items():
            right = {query: served.ids(query) for query in set(queries)}
            self._ads[name.encode()] = [right[query] for query in queries]
        self._right = {name: [b""] * len(queries) for name in self._ads}  # bodies that were found right
        self.release = b""  # of the newest answer
        self.degraded = 0  # right answers of a narrowed beam: their ads may be others

    def __call__(self, question: int, status: int, head: bytes, body: bytes) -> int:
        if status != 200:
            return REFUSED if status == 503 and header(head, b"retry-after") else FAILED
        self.release = release = header(head, b"x-release")
        right = self._right.get(release)
        if right is not None and right[question] == body:
            return RIGHT
        before = self.degraded
        verdict = self._looked_at(question, release, body)
        if right is not None and verdict == RIGHT and self.degraded == before:
            right[question] = body
        return verdict

    def _looked_at(self, question: int, release: bytes, body: bytes) -> int:
        try:
            said = orjson.loads(body)
            ads = [ad["ad"] for ad in said["ads"]]
        except (ValueError, KeyError, TypeError):
            return FAILED
        if said["release"].encode() != release:
            return MIXED
        if said["degraded"]:
            self.degraded += 1
            return RIGHT
        expected = self._ads.get(release)  # None: published meanwhile, by a job
        return RIGHT if expected is None or ads == expected[question] else MIXED


class Constant:
    """Judges a server that always says the same."""

    def __init__(self) -> None:
        self._said = b""

    def __call__(self, question: int, status: int, head: bytes, body: bytes) -> int:
        self._said = self._said or body
        return RIGHT if status == 200 and body == self._said else FAILED


class Rig(NamedTuple):
    """What every measure needs: two releases, the first being served, what is asked, and where the server runs."""

    releases: Path
    names: list[str]
    queries: list[str]
    requests: list[bytes]
    judge: RightAds
    core: int
    log: Path

    @property
    def release(self) -> Path:
        return self.releases / self.names[0]

    def target(self, port: int) -> Target:
        return Target(port, self.requests, self.judge)

    def mixed_target(self, port: int, n: int, seed: int) -> Target:
        served = Served.open(self.release)
        queries = mixed_queries(served, n, seed)
        return Target(port, make_requests(queries), RightAds(queries, {self.release.name: served}))


def make_rig(releases: Path, directory: Path, core: int) -> Rig:
    names = two_releases(releases, directory / "releases")
    served = {name: Served.open(directory / "releases" / name) for name in names}
    queries = make_queries(served[names[0]])
    judge = RightAds(queries, served)
    return Rig(directory / "releases", names, queries, make_requests(queries), judge, core, directory / "log")


def two_releases(releases: Path, directory: Path) -> list[str]:
    """A copy that has a second release, made from the first for a catalogue with fewer ads; the first is served."""
    import pyarrow.parquet as pq

    from training.release.refresh import CatalogueChange, refresh_table
    from training.release.staging import Terms

    name = str(current(releases))
    directory.mkdir()
    shutil.copytree(releases / name, directory / name)
    point_to(directory, name)
    ads = directory / "fewer.parquet"
    pq.write_table(pq.read_table(directory / name / "catalogue" / "ads.parquet").slice(_GONE), ads)
    refresh_table(CatalogueChange(ads), Terms(directory, 2, force=True))
    point_to(directory, name)
    names = listing(directory)
    assert len(names) == 2
    for each in names:
        shutil.copytree(directory / each, _kept(directory, each), copy_function=os.link)
    return names


def _kept(releases: Path, name: str) -> Path:
    return releases.with_name("kept") / name


def point_to(releases: Path, name: str) -> None:
    """Make a release the one being served, as publishing does. Jobs publish too and tidy old releases away, this one
    perhaps: then it is put there again."""
    if not (releases / name).is_dir():
        again = releases / f".{name}.bench"
        shutil.copytree(_kept(releases, name), again, copy_function=os.link)
        again.rename(releases / name)
    aside = releases / ".CURRENT.bench"
    aside.write_text(f"{name}\n")
    aside.replace(releases / "CURRENT")
