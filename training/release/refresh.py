"""The nightly job in one call: train both directions, fill the table over the current catalogue, judge, publish.

Two shorter ways renew what is served without training: `refresh_table` for a changed catalogue, `recalibrate` for a
fresh log. Both make a new release that shares the unchanged files of the one being served.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core import __version__
from core.catalogue import joined, open_catalogue, renewed, write_catalogue
from core.engine import Engine
from core.errors import DataError, ModelError, XregError
from core.format import MANIFEST, checksum, read_json, written_aside
from core.labelwise import Labelwise, OnProgress
from core.merge import PLAIN
from core.model import open_model
from core.releases import current, listing, read_release
from core.served import Served
from core.tables import MappedTable
from core.text import open_vocabulary
from core.work import save_text, work_of
from training.catalogue import read_catalogue
from training.clicks import Clicks, check_clicks, open_clicks
from training.dataset import read_dataset
from training.fit import begin, finish
from training.memory import return_large_arrays
from training.params import CLICKS, Choice, Params
from training.release.fill import TOP, fill_table
from training.release.gate import compare
from training.release.judged import Judged, covered_queries, judge_release
from training.release.staging import JUDGED, KNOWN, Run, Terms, begun, publish_run, served_release, settled
from training.tune import tune

_TABLE_WORK = ".table"
_CLICKS, _TABLE = Params(CLICKS), Labelwise(top=TOP)


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides which release comes out of which data.

    online, labelwise   hyper-parameters of the two models
    tuned               first choose costs, width, blend and alpha of both on held-out training data
    asked               ads per query in the table, and the quotas of labelwise inference
    """

    online: Params = _CLICKS
    labelwise: Params = _CLICKS
    tuned: bool = False
    asked: Labelwise = _TABLE


def refresh(data: Path, plan: Plan, terms: Terms) -> str:
    """From a data set to a published release; returns its name."""
    return_large_arrays()
    return settled(lambda: _refreshed(data, plan, terms))


def _refreshed(data: Path, plan: Plan, terms: Terms) -> str:
    job = {"kind": "refresh", "data": check_clicks(data), "plan": asdict(plan)}
    with begun(terms, job) as run:
        for direction, params in (("online", plan.online), ("labelwise", plan.labelwise)):
            _train(data / direction, params, plan.tuned, run.work / direction, terms)
        clicks = open_clicks(data)
        if not (run.work / "table").exists():
            known, live = clicks.queries[: clicks.known], np.ones(clicks.ads.num_rows, bool)
            model, out, text, ads = run.work / "labelwise", run.work / "table", clicks.ad_text, clicks.ads
            fill_table(model, known, text, ads, live, plan.asked, out, terms.threads, _filling(terms), terms.executor)
        parts = {name: run.work / name for name in ("online", "labelwise", "table")}
        return _publish(run, job, clicks, parts)


def publish_parts(data: Path, parts: dict[str, Path], terms: Terms) -> str:
    """A release of models and a table that were made one by one."""
    for path in parts.values():
        if not (path / MANIFEST).is_file():
            raise ModelError(f"{path}: no {MANIFEST}; this is not a finished model or table")
    made = {name: checksum(path / MANIFEST) for name, path in parts.items()}
    job = {"kind": "parts", "data": check_clicks(data), "parts": made, "plan": {"asked": asdict(_TABLE)}}

    def make() -> str:
        with begun(terms, job) as run:
            return _publish(run, job, open_clicks(data), parts)

    return settled(make)


def _publish(run: Run, job: dict[str, Any], clicks: Clicks, parts: dict[str, Path]) -> str:
    """Both models and the table are there: catalogue and words beside them, judge, publish."""
    _check_model(parts["online"], clicks.ads.num_rows, clicks.query_text.n_features, "online")
    _check_model(parts["labelwise"], clicks.known, clicks.ad_text.n_features, "labelwise")
    for name, write in (
        ("catalogue", lambda aside: write_catalogue(aside, clicks.ads)),
        ("known", lambda aside: pq.write_table(pa.table({"query": clicks.queries[: clicks.known]}), aside / KNOWN)),
    ):
        if not (run.work / name).exists():
            with written_aside(run.work / name) as aside:
                write(aside)
    parts = {**parts, "catalogue": run.work / "catalogue"}
    judged = _judged(run, clicks, parts)
    texts = {f"text/{name}": clicks.path / "text" / name for name in ("queries", "ads")}
    return publish_run(run, job, judged, {**parts, **texts, f"text/{KNOWN}": run.work / "known" / KNOWN})


def _check_model(path: Path, n_labels: int, n_features: int, direction: str) -> None:
    model = open_model(path, verify=False)
    if (model.n_labels, model.n_features) != (n_labels, n_features):
        raise ModelError(
            f"{path}: {model.n_labels} labels and {model.n_features} words; the data set's {direction} direction has "
            f"{n_labels} and {n_features}: it was trained on others"
        )


def _train(data: Path, params: Params, tuned: bool, out: Path, terms: Terms) -> None:
    """Train one direction, unless it is there."""
    if out.exists() and not work_of(out).exists():
        return
    dataset, name = read_dataset(data, "train"), f"training, {out.name}"
    if tuned:
        choice = out.with_name(f"{out.name}-choice.json")
        if not choice.exists():
            trials: list[Any] = []

            def on_trial(trial: Any) -> None:
                trials.append(trial)
                terms.on_step(f"tuning, {out.name}", len(trials), 0)

            save_text(choice, json.dumps(asdict(tune(dataset, params, terms.threads, on_trial))))
        params = Choice(**read_json(choice)).apply(params)
    begin(dataset, params, out, resume=True)
    del dataset
    finish(out, terms.threads, lambda done, total, depth: terms.on_step(name, done, total), terms.executor)


def _filling(terms: Terms) -> OnProgress:
    return lambda done, total: terms.on_step("filling the table", done, total)


def _judged(run: Run, clicks: Clicks, parts: dict[str, Path]) -> Judged:
    """The release in the making, judged on the held-out part beside the one being served."""
    path = run.work / JUDGED
    if not path.exists():
        run.terms.on_step("judging", 0, 0)
        served = Served(
            open_catalogue(parts["catalogue"], verify=False),
            clicks.query_text,
            Engine.open(parts["online"], verify=False),
            MappedTable.open(parts["table"], verify=False),
            PLAIN,
        )
        before = _opened(run)
        was = _megabytes(run.terms.releases / run.parent, parts) if before and run.parent else 0.0
        megabytes = was, _megabytes(None, parts)
        judged = judge_release(served, clicks, before, megabytes, run.terms.threads)
        save_text(path, json.dumps(_with_facts(run, clicks, parts, judged).as_json(), ensure_ascii=False))
    return Judged.from_json(read_json(path))


def _opened(run: Run) -> Served | None:
    """The release being served, to compare with; a damaged one must not stand in the way of a good one."""
    try:
        return Served.open(run.terms.releases / run.parent) if run.parent else None
    except XregError as error:
        run.terms.on_step(f"judging without {run.parent}: {error}", 0, 0)
        return None


def _megabytes(release: Path | None, parts: dict[str, Path]) -> float:
    """Size of these parts, or of the same parts of a release."""
    counted = [name for name in parts if name in ("online", "labelwise", "catalogue", "table")]
    return sum(_bytes(parts[name] if release is None else release / name) for name in counted) / 1e6


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _begun_facts(run: Run) -> dict[str, Any]:
    name = f"{run.created:%Y-%m-%d %H:%M} UTC"  # the release's own name ends in a hash of what this is part of
    return {"name": name, "created": run.created.isoformat(), "parent": run.parent, "xreg": __version__}


def _with_facts(run: Run, clicks: Clicks, parts: dict[str, Path], judged: Judged) -> Judged:
    """What the report says about the run beside what judging found."""
    rows = len(MappedTable.open(parts["table"], verify=False))
    more = {
        "release": {**judged.facts["release"], **_begun_facts(run), "data": clicks.path.name},
        "sizes": {name: _bytes(path) for name, path in parts.items()},
        "counts": {"ads": clicks.ads.num_rows, "queries": clicks.known, "table rows": rows},
        "rejects": clicks.stats.get("rejected", {}),
        "rows": clicks.stats.get("rows", 0),
    }
    return judged._replace(facts={**judged.facts, **more})


@dataclass(frozen=True, slots=True)
class CatalogueChange:
    """How a catalogue changes: by a file of ads.

    adding   they are new or changed, all others stay; else they are all there are
    run      a name: what was published under it is not made again
    """

    ads: Path
    adding: bool = False
    run: str | None = None


def refresh_table(change: CatalogueChange, terms: Terms) -> str:
    """A changed catalogue without training: the table is filled anew, everything else is shared with the release being
    served. Ads that are gone are not answered any more; new ones are in the table."""
    if not change.ads.is_file():
        raise DataError(f"{change.ads}: no such file")
    return _published_as(change.run, terms.releases) or settled(lambda: _table_refreshed(change, terms))


def _published_as(run: str | None, releases: Path) -> str | None:
    """The release that a run has published: one that is or was served. A run that was killed before that has left its
    work behind, and goes on."""
    for name in reversed(listing(releases)) if run is not None and releases.is_dir() else ():
        try:
            made_by = read_release(releases / name, verify=False).get("run")
        except XregError:  # damaged: none of ours to mend
            continue
        if made_by == run and (name == current(releases) or not (releases / _TABLE_WORK).exists()):
            return name
    return None


def _table_refreshed(change: CatalogueChange, terms: Terms) -> str:
    old = served_release(terms.releases)
    job = {"kind": "table", "release": old.name, "ads": checksum(change.ads), "added": change.adding, "run": change.run}
    with begun(terms, job, _TABLE_WORK) as run:
        manifest, catalogue, ads = read_release(old), open_catalogue(old / "catalogue"), read_catalogue(change.ads)
        table, live = renewed(catalogue, joined(catalogue, ads) if change.adding else ads)
        if not (run.work / "catalogue").exists():
            with written_aside(run.work / "catalogue") as aside:
                write_catalogue(aside, table, live)
        if not (run.work / "table").exists():
            queries = pq.read_table(old / "text" / KNOWN)["query"].to_pylist()
            text, asked = open_vocabulary(old / "text" / "ads"), Labelwise(**manifest["plan"]["asked"])
            model, out, say = old / "labelwise", run.work / "table", _filling(terms)
            fill_table(model, queries, text, table, live, asked, out, terms.threads, say, terms.executor)
        parts = {name: old / name for name in ("online", "labelwise", "text")}
        parts |= {name: run.work / name for name in ("catalogue", "table")}
        judged = _judged_again(run, old, parts)
        return publish_run(run, {**job, "plan": manifest["plan"], "data": manifest["data"]}, judged, parts)


def _judged_again(run: Run, old: Path, parts: dict[str, Path]) -> Judged:
    """There are no clicks to judge a new table by: figures and rule stay; the gate looks at its coverage and size."""
    before, rule = read_release(old, verify=False), Served.open(old, verify=False).rule
    tables = [MappedTable.open(path, verify=False) for path in (old / "table", parts["table"])]
    was, now = ({"table queries": float(covered_queries(table))} for table in tables)
    was["megabytes"], now["megabytes"] = _megabytes(old, parts), _megabytes(None, parts)
    gate, figures = compare(was, now), {**before["figures"], **now}
    catalogue, text = open_catalogue(parts["catalogue"], verify=False), open_vocabulary(parts["text"] / "queries")
    served = Served(catalogue, text, Engine.open(parts["online"], verify=False), tables[1], rule)
    golden = [{"query": asked["query"], "ads": served.ids(asked["query"])} for asked in before["golden"]]
    facts = read_json(old / "stats.json")
    release = {**facts["release"], **_begun_facts(run)}
    facts["release"] = {**release, "gate": [check._asdict() for check in gate]}
    facts["previous"] = {name: [was[name], now[name]] for name in was}
    facts["sizes"] = {name: _bytes(path) for name, path in parts.items()}
    facts["counts"] = {**facts["counts"], "ads": int(catalogue.live.sum()), "table rows": len(tables[1])}
    return Judged(rule, figures, gate, golden, facts)


def recalibrate(data: Path, whole: bool, terms: Terms) -> str:
    """Choose the merge rule and its maps anew from another log, without training: from its held-out part or, where all
    of it is later than what the release was trained on, from the whole."""
    return settled(lambda: _recalibrated(data, whole, terms))


def _recalibrated(data: Path, whole: bool, terms: Terms) -> str:
    old = served_release(terms.releases)
    job = {"kind": "recalibration", "release": old.name, "log": check_clicks(data), "whole": whole}
    with begun(terms, job, _TABLE_WORK) as run:
        manifest, clicks = read_release(old), open_clicks(data)
        terms.on_step("judging", 0, 0)
        served, parts = Served.open(old), {name: old / name for name in ("online", "labelwise", "catalogue", "table")}
        size = _megabytes(None, parts)
        judged = _with_facts(
            run, clicks, parts, judge_release(served, clicks, served, (size, size), terms.threads, whole)
        )
        fields = {**job, "plan": manifest["plan"], "data": manifest["data"]}
        fields["tabled"] = manifest.get("tabled", manifest["created"])
        return publish_run(run, fields, judged, {**parts, "text": old / "text"})
