"""Commands of the release: publish it, look at it, go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Column
from rich.table import Table as Shown

from core.errors import ReleaseError, UsageError
from core.labelwise import Labelwise
from training.commands.options import (
    FILE,
    PATH,
    F,
    chosen_executor,
    chosen_params,
    executor_options,
    factor_option,
    reported,
    threads_option,
    tree_options,
)
from training.commands.places import PLACE, ReleasesHere, fetched, releases_at
from training.display import answers, notes, progress_bar
from training.params import CLICKS

_releases = click.option(
    "--releases", type=PATH, required=True, envvar="XREG_RELEASES", show_envvar=True, help="Directory of the releases."
)
_releases_anywhere = click.option(
    "--releases",
    type=PLACE,
    required=True,
    envvar="XREG_RELEASES",
    show_envvar=True,
    help="Directory of the releases, or its address on a store (s3://…).",
)
_force = click.option("--force", is_flag=True, help="Publish although the gate refuses; the manifest says so.")
_threshold = click.FloatRange(0.0, 1.0)


def _keeping(command: F) -> F:
    """How many releases stay after publishing."""
    command = click.option("--keep-days", type=click.FloatRange(0.0), help="Also remove releases older than this.")(
        command
    )
    return click.option(
        "--keep",
        type=click.IntRange(2),
        default=7,
        show_default=True,
        help="Releases to keep, those served last included.",
    )(command)


def _published(releases: ReleasesHere, name: str, keep: int, keep_days: float | None) -> None:
    """Say what was published, and remove what is old."""
    answers.print(name, soft_wrap=True)
    for removed in releases.retain(keep, keep_days):
        notes.print(f"removed {removed}")


_data = click.option("--data", type=PATH, required=True, help="A data set that `xreg ingest` made.")


def _step_lines(name: str, done: int, total: int) -> None:
    """Progress for programs: a line of JSON per step on standard error."""
    click.echo(json.dumps({"step": name, "done": done, "total": total}), err=True)


@contextmanager
def _steps(what: str, lines: bool = False) -> Iterator[Any]:
    """A progress bar that goes through named steps, or a line for each."""
    if lines:
        yield _step_lines
        return
    with progress_bar(what, "") as bar:
        task = bar.add_task("", total=None)

        def on_step(name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or 1, description=name)  # to rich, None means: as before

        yield on_step


@click.command()
@_releases_anywhere
@click.option("--data", type=PLACE, help="A data set that `xreg ingest` made.")
@click.option("--table-only", is_flag=True, help="No training: fill the table anew for the catalogue of --ads.")
@click.option("--ads", type=PLACE, help="With --table-only: the catalogue as it is now.")
@click.option("--add", "adding", is_flag=True, help="With --table-only: --ads are new or changed; all others stay.")
@click.option("--run", "run_name", help="With --table-only: a name; what was published under it is not made again.")
@click.option(
    "--progress", type=click.Choice(["bar", "json"]), default="bar", show_default=True, help="How to show it."
)
@click.option("--top", type=int, default=None, help="Ads per query in the table.  [default: 50]")
@factor_option
@click.option("--tune", "tuned", is_flag=True, help="First choose costs, width, blend and alpha on held-out data.")
@_keeping
@_force
@tree_options(CLICKS)
@executor_options
@reported
def refresh(
    releases: Path | str, data: Path | str | None, table_only: bool, ads: Path | str | None, adding: bool,
    run_name: str | None, progress: str, top: int | None, factor: float, tuned: bool, keep: int,
    keep_days: float | None, force: bool, threads: int, executor: str, ray_address: str | None, **options: Any,
) -> None:  # fmt: skip
    """The nightly job: train both directions, fill the query→ad table over the current catalogue, judge, publish.

    Killed at any moment and started again, it goes on from the last finished step. A release that is clearly worse than
    the one being served is not published.
    """
    from training.release.fill import TOP
    from training.release.refresh import CatalogueChange, Plan, refresh_table
    from training.release.refresh import refresh as run
    from training.release.staging import Terms

    if table_only != (ads is not None) or table_only == (data is not None):
        raise UsageError("give --data DATASET, or --table-only with --ads ADS")
    if table_only and (tuned or top is not None):
        raise UsageError("--table-only trains nothing and keeps the table's size: --tune and --top do not go with it")
    if not table_only and (adding or run_name is not None):
        raise UsageError("--add and --run go with --table-only")
    with chosen_executor(executor, ray_address, threads) as where, releases_at(releases) as here:
        given = fetched(ads if data is None else data)  # type: ignore[arg-type]  # one of them is there
        with _steps("refresh", progress == "json") as on_step:
            terms = Terms(here.path, threads, force, on_step, executor=where, on_published=here.on_published)
            if table_only:
                name = refresh_table(CatalogueChange(given, adding, run_name), terms)
            else:
                params = chosen_params(**options)
                plan = Plan(params, params, tuned, Labelwise(TOP if top is None else top, factor))
                name = run(given, plan, terms)
        _published(here, name, keep, keep_days)


@click.command()
@_releases_anywhere
@_data
@click.option("--whole", is_flag=True, help="All of the log is later than what was trained on: use all of it.")
@_keeping
@_force
@threads_option
@reported
def recalibrate(
    releases: Path | str, data: Path, whole: bool, keep: int, keep_days: float | None, force: bool, threads: int
) -> None:
    """Fit merge rule and probability maps anew, without training, from the held-out part of a log that was ingested."""
    from training.release.refresh import recalibrate as run
    from training.release.staging import Terms

    with releases_at(releases) as here:
        with _steps("recalibrate") as on_step:
            terms = Terms(here.path, threads, force, on_step, on_published=here.on_published)
            name = run(data, whole, terms)
        _published(here, name, keep, keep_days)


@click.command()
@click.argument("model", type=PATH)
@_data
@click.option("--out", type=PATH, required=True, help="Directory to write the table to; must not exist.")
@click.option("--top", type=int, default=None, help="Ads per query.  [default: 50]")
@factor_option
@threads_option
@reported
def fill(model: Path, data: Path, out: Path, top: int | None, factor: float, threads: int) -> None:
    """Fill a query→ad table: labelwise inference with MODEL over the whole catalogue of a data set."""
    import numpy as np

    from training.clicks import open_clicks
    from training.release.fill import TOP, fill_table

    if out.exists():
        raise UsageError(f"{out} exists; remove it or choose another name")
    clicks = open_clicks(data)
    known, live = clicks.queries[: clicks.known], np.ones(clicks.ads.num_rows, bool)
    asked = Labelwise(TOP if top is None else top, factor)
    with _steps("fill") as on_step:
        say = lambda done, total: on_step("", done, total)  # noqa: E731  # a name for one line
        fill_table(model, known, clicks.ad_text, clicks.ads, live, asked, out, threads, say)


@click.command()
@_releases_anywhere
@_data
@click.option("--online", type=PATH, required=True, help="Model of DATASET/online.")
@click.option("--labelwise", type=PATH, required=True, help="Model of DATASET/labelwise.")
@click.option("--table", type=PATH, required=True, help="What `xreg fill` wrote.")
@_keeping
@_force
@threads_option
@reported
def publish(
    releases: Path | str, data: Path, online: Path, labelwise: Path, table: Path, keep: int, keep_days: float | None,
    force: bool, threads: int,
) -> None:  # fmt: skip
    """Make a release of parts that were trained and filled one by one: judge, pass the gate, publish."""
    from training.release.refresh import publish_parts
    from training.release.staging import Terms

    with releases_at(releases) as here:
        with _steps("publish") as on_step:
            parts = {"online": online, "labelwise": labelwise, "table": table}
            terms = Terms(here.path, threads, force, on_step, on_published=here.on_published)
            name = publish_parts(data, parts, terms)
        _published(here, name, keep, keep_days)


@click.command()
@_releases_anywhere
@click.option("--to", help="The release to serve.  [default: the one before the current one]")
@reported
def rollback(releases: Path | str, to: str | None) -> None:
    """Serve an earlier release again."""
    from core.releases import roll_back
    from core.remote_releases import remote_roll_back
    from core.storage import Store

    before, now = roll_back(releases, to) if isinstance(releases, Path) else remote_roll_back(Store(releases), to)
    notes.print(f"{before or 'nothing'} → {now}", soft_wrap=True)
    answers.print(now, soft_wrap=True)


@click.command()
@click.option(
    "--from", "source", required=True, help="Address of the releases on a store, for example s3://bucket/path."
)
@_releases
@click.option("--release", "wanted", help="The release to mirror.  [default: the one being served there]")
@click.option("--keep", type=click.IntRange(2), default=3, show_default=True, help="Releases to keep here.")
@reported
def pull(source: str, releases: Path, wanted: str | None, keep: int) -> None:
    """Mirror the release that a store serves into a directory: verified, then served there too.

    Interrupted, it goes on with the bytes it has. Files that are here already are not fetched again.
    """
    from core.releases import retain
    from core.remote_releases import pull as run
    from core.storage import Store, is_uri

    if not is_uri(source):
        raise UsageError(f"--from must be an address such as s3://bucket/releases, got {source}")
    with progress_bar("pull", "bytes") as bar:
        task = bar.add_task("", total=None)
        say = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731  # a name for one line
        name = run(Store(source), releases, wanted, say)
    answers.print(name, soft_wrap=True)
    for removed in retain(releases, keep, None, datetime.now(UTC)):
        notes.print(f"removed {removed}")


@click.command()
@_releases
@click.option("--verify", is_flag=True, help="Also check every byte of every release.")
@reported
def releases(releases: Path, verify: bool) -> None:
    """The releases, newest last; the one being served is marked."""
    from core.errors import XregError
    from core.releases import current, listing, read_release

    served = None
    try:
        served = current(releases)
    except ReleaseError as error:
        notes.print(f"[bold red]warning:[/] {escape(str(error))}", soft_wrap=True)
        if not releases.is_dir():
            raise
    names = ("release", "kind", "WP@5", "ECE@10", "MB", "state")
    shown = Shown(*(Column(name, no_wrap=name != "state") for name in names), box=None, padding=(0, 2, 0, 0))
    for name in listing(releases):
        try:
            manifest = read_release(releases / name, verify)
        except XregError as error:
            shown.add_row(name, "", "", "", "", f"[bold red]damaged[/]: {escape(str(error))}")
            continue
        figures = manifest["figures"]
        shapes = {"WP@5": ".2f", "ECE@10": ".4f", "megabytes": ".1f"}
        cells = [format(figures[key], shape) if key in figures else "" for key, shape in shapes.items()]
        state = ["served"] * (name == served) + ["forced"] * bool(manifest["gate"]["forced"])
        shown.add_row(name, manifest["kind"], *cells, ", ".join(state))
    answers.print(shown)


@click.command()
@click.argument("query")
@_releases
@click.option("-k", type=click.IntRange(1, 100), default=5, show_default=True, help="Ads.")
@click.option("--threshold", type=_threshold, default=0.01, show_default=True, help="Least probability that is shown.")
@reported
def ask(query: str, releases: Path, k: int, threshold: float) -> None:
    """What the release being served answers to QUERY: ads, click probabilities, where they come from."""
    from core.merge import SOURCES
    from core.served import Served
    from training.release.staging import served_release

    served = Served.open(served_release(releases), verify=False)
    found = served.answer(query, k, threshold)
    if found.reason is not None:
        notes.print(f"no ads: {found.reason.replace('_', ' ')}")
        return
    titles = served.catalogue.texts(["title"])["title"]
    shown = Shown("ad", "title", "probability", "source", title=escape(query))
    for ad, score, source in zip(*found.merged, strict=True):
        name, title = served.catalogue.ids.name(int(ad)), titles[int(ad)].as_py()
        shown.add_row(escape(name), escape(title), f"{score:.4f}", SOURCES[source])
    answers.print(shown)


@click.group()
def table() -> None:
    """The query→ad table of the release being served."""


@table.command()
@click.argument("query")
@_releases
@reported
def get(query: str, releases: Path) -> None:
    """The ads of QUERY in the table."""
    from core.catalogue import open_catalogue
    from core.tables import MappedTable
    from core.text import normalise
    from training.release.staging import served_release

    served = served_release(releases)
    row = MappedTable.open(served / "table", verify=False).get(normalise(query))
    if row is None:
        raise UsageError(f"{normalise(query)!r} is not in the table of {served.name}")
    catalogue = open_catalogue(served / "catalogue", verify=False)
    titles = catalogue.texts(["title"])["title"]
    shown = Shown("ad", "score", "title", title=escape(normalise(query)))
    for ad, score in zip(*row, strict=True):
        name, title = catalogue.ids.name(int(ad)), titles[int(ad)].as_py()
        shown.add_row(escape(name), f"{score:.4f}", escape(title))
    answers.print(shown)


@table.command()
@click.option("--redis", "url", required=True, envvar="XREG_REDIS", show_envvar=True, help="redis://host:port/db")
@click.option("--name", default="table", show_default=True, help="Name of the table in the store.")
@_releases
@reported
def push(url: str, name: str, releases: Path) -> None:
    """Fill a shared table in Redis; readers change over when all of it is there."""
    from core.redis_fill import fill_redis
    from core.tables import MappedTable
    from training.release.staging import served_release

    served = served_release(releases)
    mapped = MappedTable.open(served / "table")
    with notes.status(f"{len(mapped)} queries"):
        fill_redis(url, name, served.name, mapped)
    notes.print(f"{len(mapped)} queries of {served.name}")


@table.command()
@click.option("--parquet", type=FILE, required=True, help="File to write: query, rank, ad_id, score.")
@_releases
@reported
def export(parquet: Path, releases: Path) -> None:
    """Write the whole table as Parquet."""
    from training.release.export import export_table
    from training.release.staging import served_release

    rows = export_table(served_release(releases), parquet)
    notes.print(f"{parquet}: {rows} rows")
