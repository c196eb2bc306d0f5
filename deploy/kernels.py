"""Compile every kernel that the service and the nightly job need: a step of the image's build.

Kernels are compiled for the types they are called with, and a list of those would drift from the code. So this does the
real thing on a made-up market of a few hundred ads: ingest, refresh, a table filled anew, and questions of every kind.
A model's entries are of 16 bits or, with more than 256 children at a node, of 32: there is a release of each.

Where they go is XREG_KERNEL_CACHE, for which CPU NUMBA_CPU_NAME and NUMBA_CPU_FEATURES (core/jit.py). They are found
again by processes with the same three, the same sources at the same path, and the same Python.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numba

from core.labelwise import Labelwise
from core.releases import current
from core.served import Served, Source, Wanted
from core.why import why
from service.holder import open_release
from training.ingest.run import ingest
from training.market.make import MarketSize, make_market
from training.params import CLICKS, Params
from training.release.refresh import CatalogueChange, Plan, refresh, refresh_table
from training.release.staging import Terms

_SIZE = MarketSize(ads=300, queries=300, events=12_000)
_SHAPES = {"narrow": Params(CLICKS, trees=2, max_leaf=30), "wide": Params(CLICKS, trees=2, max_leaf=1000)}
_SOURCES: tuple[Source, ...] = ("auto", "table", "model")


def compile_all(directory: Path) -> None:
    """A market's two releases, each opened and asked as the service does."""
    market, clicks = directory / "market", directory / "clicks"
    make_market(market, _SIZE)
    ingest([market / "events.parquet"], market / "ads.csv", clicks, threads=1)
    for name, params in _SHAPES.items():
        releases = directory / name
        refresh(clicks, Plan(params, params, asked=Labelwise(top=20)), Terms(releases, 1))
        refresh_table(CatalogueChange(market / "ads.csv"), Terms(releases, 1, force=True))
        release = open_release(releases / str(current(releases)))
        _ask(release.served)


def _ask(served: Served) -> None:
    query = next(iter(served.table.rows()))[0]
    for source in _SOURCES:
        served.ask(query, Wanted(source=source))
    served.ask(query, Wanted(exclude=[0], threshold=0.01))
    served.ask(query, Wanted(candidates=[0, 1], rank="revenue"))
    served.ask_features([0, 1], [1.0, 2.0], Wanted(k=100, beam=100))
    served.ask_many([query, "\u2603"], Wanted())
    why(served, query, 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        compile_all(Path(directory))
    kept = Path(str(numba.config.CACHE_DIR))  # type: ignore[attr-defined]  # set by core/jit.py
    print(f"{sum(1 for _ in kept.rglob('*.nbc'))} kernels in {kept}", file=sys.stderr)


if __name__ == "__main__":
    main()
