"""From raw files to a release on a market whose truth is known: `python bench/market.py [--quick] [--json FILE]`.

A made-up market (20K ads, 50K queries, 1M impressions; --quick: 2K, 5K, 200K) goes through `xreg ingest` and
`xreg refresh` as people run them; then the release's answers are compared with the true click probabilities. With
XREG_DATA set, the real judgements of esci-small go the same way, split by query, against BM25.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from scipy import sparse

from core.engine import Engine
from core.labelwise import Labelwise, as_rows, best_points
from core.metrics import evaluate, relevance_of
from core.releases import current, read_release
from core.served import Served
from core.sparse import Csr, best_of_rows, from_scipy, take_entries, take_rows, to_scipy, transpose
from core.text import normalise
from training.catalogue import documents
from training.clicks import Clicks, open_clicks
from training.market.log import PLACES
from training.release.baselines import BASELINES
from training.release.judge import ask, held_out, merged, task

console = Console(width=120)
K, THRESHOLD, BINS = 10, 0.01, 10
_VISITS = 50_000  # of the day that a release serves
_RARE = 5  # a query seen fewer times than this is rare


class Market(NamedTuple):
    """A market's data set, release and truth."""

    clicks: Clicks
    release: Path
    served: Served
    manifest: dict[str, Any]
    truth: Csr  # queries of the data set × ads
    base: float
    new: np.ndarray[Any, np.dtype[np.int64]]


def make(directory: Path, quick: bool, options: list[str]) -> dict[str, float]:
    """Market, data set and release, by the command; seconds and memory of the way from raw files to the release."""
    size = [] if quick else ["--ads", "20000", "--queries", "50000", "--events", "1000000"]
    _xreg("synth", directory / "market", *size)
    start = time.perf_counter()
    market = directory / "market"
    _xreg("ingest", "--events", market / "events.parquet", "--ads", market / "ads.csv", "--out", directory / "clicks")
    _xreg("refresh", "--data", directory / "clicks", "--releases", directory / "releases", *options)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"refresh_s": time.perf_counter() - start, "refresh_gb": peak / 1e9}


def _xreg(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "training.cli", *map(str, words)], check=True)


def open_market(directory: Path) -> Market:
    clicks = open_clicks(directory / "clicks")
    release = directory / "releases" / str(current(directory / "releases"))
    about = json.loads((directory / "market" / "market.json").read_text())
    place = {ad: number for number, ad in enumerate(clicks.ads["ad_id"].to_pylist())}
    row = {query: number for number, query in enumerate(clicks.queries)}
    table = pq.read_table(directory / "market" / "truth.parquet")
    texts = table["query"].combine_chunks().dictionary_encode()
    of_text = np.array([row.get(normalise(text), -1) for text in texts.dictionary.to_pylist()])
    names = table["ad_id"].combine_chunks().dictionary_encode()
    of_name = np.array([place[name] for name in names.dictionary.to_pylist()])
    rows, ads = of_text[texts.indices.to_numpy()], of_name[names.indices.to_numpy()]
    known = rows >= 0
    shape = len(clicks.queries), clicks.ads.num_rows
    truth = sparse.coo_matrix((table["probability"].to_numpy()[known], (rows[known], ads[known])), shape=shape)
    new = np.array(sorted(place[ad] for ad in about["new_ads"]), np.int64)
    about_release, served = read_release(release), Served.open(release)
    base = float(about["base_rate"])
    return Market(clicks, release, served, about_release, from_scipy(_without_doubles(truth)), base, new)


def _without_doubles(truth: Any) -> sparse.csr_matrix:
    """Two spellings of one query are one query: the larger probability counts."""
    order = np.lexsort((truth.data, truth.col, truth.row))
    row, col, data = truth.row[order], truth.col[order], truth.data[order]
    last = np.append((row[1:] != row[:-1]) | (col[1:] != col[:-1]), True)
    return sparse.csr_matrix((data[last], (row[last], col[last])), shape=truth.shape)


def true_rate(market: Market, truth: Csr, rows: Csr) -> np.ndarray[Any, np.dtype[np.float64]]:
    """True probability of every answered pair."""
    found = relevance_of(truth, rows)
    return np.where(found > 0, found, market.base)


def accuracy(market: Market) -> dict[str, float]:
    """WP@5 and calibration against the truth, on held-out queries that the rule was not chosen on."""
    _, judged = held_out(market.clicks)
    truth = take_rows(market.truth, judged.ids)
    answers = ask(market.served, market.clicks, judged.queries, threads=2)
    scores = {"merged": merged(answers, market.served.rule), "table": answers.table, "model": answers.model}
    scores |= {name: baseline(market.clicks, judged.queries, K) for name, baseline in BASELINES.items()}
    figures = {name: evaluate(truth, rows, THRESHOLD) for name, rows in scores.items()}
    table = Table("", "WP@1", "WP@3", "WP@5", "nDCG@5", "XMAD@5", title="held-out queries, against the truth")
    for name, row in figures.items():
        table.add_row(name, *(f"{row[key]:.2f}" for key in ("WP@1", "WP@3", "WP@5", "nDCG@5")), f"{row['XMAD@5']:.4f}")
    console.print(table)
    wp = {name: row["WP@5"] for name, row in figures.items()}
    return {
        **{f"wp5_{name}": value for name, value in wp.items()},
        "merge_gain": wp["merged"] / max(wp["table"], wp["model"]),
        "baseline_gain": wp["merged"] / max(wp[name] for name in BASELINES),
        "ece_log": market.manifest["figures"]["ECE@10"],
    }


def calibration(market: Market, when: str) -> dict[str, float]:
    """Mean |predicted − true| over ten bins of the ten best answers, of queries that no map was fitted on."""
    _, judged = held_out(market.clicks)
    truth, answers = take_rows(market.truth, judged.ids), ask(market.served, market.clicks, judged.queries, threads=2)
    top = merged(answers, market.served.rule, K)
    true = true_rate(market, truth, top)
    bins = np.array_split(np.argsort(top.values, kind="stable"), BINS)
    means = [(float(top.values[part].mean()), float(true[part].mean())) for part in bins]
    console.print(f"{when}: predicted / true", " ".join(f"{p:.3f}/{t:.3f}" for p, t in means))
    error = float(np.average([abs(p - t) for p, t in means], weights=[len(part) for part in bins]))
    return {f"ece{when}": error, f"ece_relative{when}": error / float(true.mean())}


def calibration_of_shown(market: Market) -> dict[str, float]:
    """The same for answers that were shown in the held-out part, as the report judges them, without the noise of
    clicks: predicted against true rate, weighted by impressions."""
    _, judged = held_out(market.clicks)
    top = merged(ask(market.served, market.clicks, judged.queries, threads=2), market.served.rule, K)
    true = true_rate(market, take_rows(market.truth, judged.ids), top)
    shown = relevance_of(judged.shown, top)
    order = np.argsort(-top.values, kind="stable")
    order = order[shown[order] > 0]
    weight = shown[order]
    number = np.minimum((np.cumsum(weight) - weight / 2) / weight.sum() * BINS, BINS - 1).astype(np.int64)
    total = np.bincount(number, weight)
    predicted, rate = (np.bincount(number, weight * x[order]) / total for x in (top.values, true))
    error = float(np.average(np.abs(predicted - rate), weights=total))
    return {"ece_shown": error, "ece_relative_shown": error / float(np.average(rate, weights=total))}


def serve_a_day(market: Market, directory: Path) -> None:
    """A log of what happens when the release serves: queries come as in the held-out part, four of the ten best ads are
    shown in their order, clicks follow the truth. `xreg recalibrate` then learns from it, as it would every night."""
    about = json.loads((directory / "market" / "market.json").read_text())
    random, examination = np.random.default_rng(1), np.array(about["examination"])
    asked = task(market.clicks, market.clicks.test, np.unique(market.clicks.test.query).astype(np.int64))
    answers = ask(market.served, market.clicks, asked.queries, threads=2)
    rows, truth = merged(answers, market.served.rule, K), take_rows(market.truth, asked.ids)
    true, often = true_rate(market, truth, rows), np.bincount(_rows_of(asked.shown), asked.shown.values)
    events: dict[str, list[Any]] = {"query": [], "ad_id": [], "position": [], "clicked": []}
    ads = market.clicks.ads["ad_id"].to_pylist()
    visits = random.choice(len(often), _VISITS, p=often / often.sum())
    for row in visits.tolist():
        at = np.arange(rows.indptr[row], rows.indptr[row + 1])
        at = np.sort(random.permutation(at[np.argsort(-rows.values[at], kind="stable")])[: len(examination)])
        at = at[np.argsort(-rows.values[at], kind="stable")]
        clicked = random.random(len(at)) < true[at] * examination[: len(at)]
        events["query"] += [asked.queries[row]] * len(at)
        events["ad_id"] += [ads[ad] for ad in rows.indices[at]]
        events["position"] += range(1, len(at) + 1)
        events["clicked"] += clicked.astype(int).tolist()
    pq.write_table(pa.table(events), directory / "day.parquet")
    _xreg(
        "ingest", "--events", directory / "day.parquet", "--ads", directory / "market" / "ads.csv",
        "--out", directory / "day",
    )  # fmt: skip
    _xreg("recalibrate", "--data", directory / "day", "--whole", "--releases", directory / "releases")


def _rows_of(rows: Csr) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))


def coverage(market: Market) -> dict[str, float]:
    """Queries with an ad above a threshold: labelwise against pointwise inference of the same labelwise model, the
    threshold of labelwise such that the mean true rate of what is shown is not lower."""
    engine, clicks = Engine.open(market.release / "labelwise", verify=False), market.clicks
    points = clicks.ad_text.rows(documents(clicks.ads))
    scale = np.float32(engine.model.manifest["scale"])
    by_ad = transpose(engine.predict_batch(points, K, threads=2))
    by_query = as_rows(best_points(engine.model, points, Labelwise(K), 2), points.n_rows)
    truth = take_rows(market.truth, np.arange(clicks.known))
    ways = {
        name: rows._replace(values=rows.values * scale)
        for name, rows in (("pointwise", by_ad), ("labelwise", by_query))
    }
    precision = _precision(market, truth, ways["pointwise"], THRESHOLD)
    thresholds = {"pointwise": THRESHOLD, "labelwise": _equal_precision(market, truth, ways["labelwise"], precision)}
    seen = pq.read_table(clicks.path / "queries.parquet")["impressions"].to_numpy()[: clicks.known] / PLACES
    covered = {name: _covered(rows, thresholds[name]) for name, rows in ways.items()}
    rare = seen < _RARE
    for name, has in covered.items():
        kept = _precision(market, truth, ways[name], thresholds[name])
        console.print(
            f"{name}: threshold {thresholds[name]:.4f}, mean true rate {kept:.4f}, queries covered {has.mean():.3f}, "
            f"rare ones {has[rare].mean():.3f}"
        )
    ratio = covered["labelwise"].sum() / covered["pointwise"].sum()
    return {
        "coverage_ratio": float(ratio),
        "rare_coverage_ratio": float(covered["labelwise"][rare].sum() / covered["pointwise"][rare].sum()),
    }


def _covered(rows: Csr, threshold: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    has = np.zeros(rows.n_rows, bool)
    has[np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))[rows.values >= threshold]] = True
    return has


def _precision(market: Market, truth: Csr, rows: Csr, threshold: float) -> float:
    return float(true_rate(market, truth, rows)[rows.values >= threshold].mean())


def _equal_precision(market: Market, truth: Csr, rows: Csr, precision: float) -> float:
    """The lowest threshold whose mean true rate is not below `precision`."""
    order = np.argsort(-rows.values, kind="stable")
    means = np.cumsum(true_rate(market, truth, rows)[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(means >= precision)
    return float(rows.values[order[enough[-1]]]) if len(enough) else float("inf")


def new_ads(market: Market) -> dict[str, float]:
    """Of the truly ten best ads of known queries, how many are among the table's ten best: new ads against old ones."""
    queries = market.clicks.queries[: market.clicks.known]
    best = take_rows(market.truth, np.arange(len(queries)))
    best = take_entries(best, best_of_rows(best, best.values, K))
    _, table = market.served.rows(queries, K)
    top = take_entries(table, best_of_rows(table, table.values, K))
    found = relevance_of(top, best) > 0
    fresh = np.isin(best.indices, market.new)
    recall = {"new": float(found[fresh].mean()), "old": float(found[~fresh].mean())}
    console.print(f"recall@10 in the table: new ads {recall['new']:.3f}, old ads {recall['old']:.3f}")
    return {"new_ad_recall_ratio": recall["new"] / recall["old"]}


def esci(directory: Path, data: Path) -> dict[str, float]:
    """Real judgements, whole queries held out: the online model against BM25."""
    _xreg(
        "ingest", "--events", data / "esci-small" / "events.csv.gz", "--ads", data / "esci-small" / "ads.csv.gz",
        "--out", directory / "esci", "--hold-out", 0.3,
    )  # fmt: skip
    _xreg("refresh", "--data", directory / "esci", "--releases", directory / "esci-releases")
    clicks = open_clicks(directory / "esci")
    served = Served.open(directory / "esci-releases" / str(current(directory / "esci-releases")))
    parts = held_out(clicks)
    truth = _stacked([part.truth for part in parts])
    scores = {
        "xreg": _stacked([merged(ask(served, clicks, part.queries, 1), served.rule) for part in parts]),
        "bm25": _stacked([BASELINES["bm25"](clicks, part.queries, K) for part in parts]),
    }
    results = {}
    for name, rows in scores.items():
        figures = evaluate(truth, rows, THRESHOLD)
        results[f"esci_wp5_{name}"], results[f"esci_ndcg5_{name}"] = figures["WP@5"], figures["nDCG@5"]
    console.print({key: round(value, 2) for key, value in results.items()})
    return results


def _stacked(parts: list[Csr]) -> Csr:
    return from_scipy(sparse.vstack([to_scipy(rows) for rows in parts], format="csr"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, help="keep the market and its release here")
    asked, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = asked.work or Path(temporary)
        results = make(directory, asked.quick, options) if not (directory / "releases").exists() else {}
        market = open_market(directory)
        for part in (accuracy, coverage, new_ads):
            results |= part(market)
        results |= calibration(market, "_first") | calibration_of_shown(market)
        serve_a_day(market, directory)
        results |= calibration(open_market(directory), "")
        if data := os.environ.get("XREG_DATA"):
            results |= esci(directory, Path(data))
    console.print(results)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
