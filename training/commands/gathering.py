"""Commands that make data: from click logs, or made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from core.text import VocabularyLimits
from training.commands.options import PATH, chosen_executor, executor_options, reported, threads_option
from training.commands.places import PLACE, fetched, left_at
from training.display import notes, progress_bar, show_stats
from training.ingest.options import IngestOptions
from training.market.make import MarketSize

_INGEST, _WORDS, _MARKET = IngestOptions(), VocabularyLimits(), MarketSize()


@click.command()
@click.option(
    "--events", type=PLACE, multiple=True, required=True, help="A log, or a directory of logs; may be repeated."
)
@click.option(
    "--ads", type=PLACE, required=True, help="The catalogue: ad_id, title, text, url; bid and quality if known."
)
@click.option(
    "--out", type=PLACE, required=True, help="Directory to write the data set to, here or on a store (s3://…)."
)
@click.option(
    "--hold-out",
    type=float,
    default=_INGEST.hold_out,
    show_default=True,
    help="Share that is held out: the last of the time, or else queries.",
)
@click.option("--since", help="Hold out what happened from this time on.")
@click.option(
    "--min-impressions",
    type=float,
    default=_INGEST.min_impressions,
    show_default=True,
    help="Impressions below which a pair counts as irrelevant.",
)
@click.option(
    "--min-clicks",
    type=float,
    default=_INGEST.min_clicks,
    show_default=True,
    help="Clicks below which a pair counts as irrelevant.",
)
@click.option(
    "--prior",
    type=(float, float),
    default=None,
    metavar="A B",
    help="rate = (clicks + A) / (impressions + B).  [default: fitted]",
)
@click.option("--bigrams", is_flag=True, help="Pairs of neighbouring words are features too.")
@click.option("--min-texts", type=int, default=_WORDS.min_texts, show_default=True, help="Texts that must hold a word.")
@click.option(
    "--most-words", type=int, default=_WORDS.most, show_default=True, help="Words that become features at most."
)
@click.option(
    "--most-rejected",
    type=float,
    default=_INGEST.most_rejected,
    show_default=True,
    help="Share of unusable rows above which the ingest fails.",
)
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@threads_option
@executor_options
@reported
def ingest(
    events: tuple[Path | str, ...], ads: Path | str, out: Path | str, bigrams: bool, min_texts: int, most_words: int,
    resume: bool, threads: int, executor: str, ray_address: str | None, **options: Any,
) -> None:  # fmt: skip
    """Click logs and a catalogue → a data set with both directions.

    EVENTS are CSV (also .gz) or Parquet with the columns query, ad_id and one of: impressions and clicks; clicked
    (0/1); relevance (0 … 1); or nothing more: a log of clicks. Optional: position, time.
    ADS have ad_id, title, text, url.
    """
    from training.ingest.run import ingest as run

    chosen = IngestOptions(words=VocabularyLimits(min_texts, most_words, bigrams), **options)
    with chosen_executor(executor, ray_address, threads) as where, left_at(out, resume) as path:
        logs, catalogue = [fetched(place) for place in events], fetched(ads)
        with progress_bar("ingest", "") as bar:
            task = bar.add_task("", total=None)

            def on_progress(stage: str, done: int, total: int) -> None:
                bar.update(task, completed=done, total=total or None, description=stage)

            stats = run(logs, catalogue, path, chosen, threads, on_progress, resume, where)
    show_stats(Path(out), stats)


@click.command()
@click.argument("out", type=PATH)
@click.option("--ads", type=int, default=_MARKET.ads, show_default=True, help="Ads.")
@click.option("--queries", type=int, default=_MARKET.queries, show_default=True, help="Distinct queries.")
@click.option("--events", type=int, default=_MARKET.events, show_default=True, help="Impressions.")
@click.option("--days", type=int, default=_MARKET.days, show_default=True, help="Days of the log.")
@click.option(
    "--new-ads", type=float, default=_MARKET.new_ads, show_default=True, help="Share of ads that appear after training."
)
@click.option(
    "--new-queries",
    type=float,
    default=_MARKET.new_queries,
    show_default=True,
    help="Share of queries never seen before.",
)
@click.option("--seed", type=int, default=_MARKET.seed, show_default=True, help="Seed of all randomness.")
@reported
def synth(out: Path, **size: Any) -> None:
    """A made-up market in the directory OUT: ads.csv, events.parquet, and the true click probabilities."""
    from training.market.make import make_market

    with progress_bar("market", "steps") as bar:
        task = bar.add_task("", total=None)
        make_market(out, MarketSize(**size), lambda done, total: bar.update(task, completed=done, total=total))
    notes.print(f"{out}: ads.csv, events.parquet, truth.parquet, market.json")
