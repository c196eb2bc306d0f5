"""What the `xreg` command shows: progress and tables.

Answers go to standard output, everything else to standard error, so that answers can be piped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

notes = Console(stderr=True, highlight=False)
answers = Console(highlight=False)


def progress_bar(what: str, unit: str) -> Progress:
    return Progress(
        TextColumn(what),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=notes,
    )


def show_trials(trials: Sequence[Any]) -> None:
    """The best trial of every leaf and width, best first."""
    best: dict[tuple[Any, ...], Any] = {}
    for trial in trials:
        c = trial.choice
        key = (c.route_cost, c.leaf_loss, c.leaf_cost, c.routed, c.alpha)
        if key not in best or trial.merit > best[key].merit:
            best[key] = trial
    columns = ("WP@1", "WP@3", "WP@5", "Tau@5", "XMAD@5")
    table = Table("leaf", "routed", "blend", "alpha", *columns, "merit", title="held-out part, one tree", box=SIMPLE)
    for trial in sorted(best.values(), key=lambda t: -t.merit):
        c, figures = trial.choice, [_number(trial.figures[name]) for name in columns]
        leaf = f"{c.leaf_loss} {c.leaf_cost:g}"
        table.add_row(leaf, str(c.routed), f"{c.blend:g}", f"{c.alpha:g}", *figures, f"{trial.merit:.2f}")
    notes.print(table)


def show_figures(figures: dict[str, float]) -> None:
    """One row per metric, one column per cut."""
    names = list(dict.fromkeys(name.partition("@")[0] for name in figures))
    cuts = sorted({int(name.partition("@")[2]) for name in figures if "@" in name})
    table = Table("metric", *(f"@{cut}" for cut in cuts), "")
    for name in names:
        cells = [_number(figures[f"{name}@{cut}"]) if f"{name}@{cut}" in figures else "" for cut in cuts]
        table.add_row(name, *cells, _number(figures[name]) if name in figures else "")
    answers.print(table)


def show_sources(sources: Mapping[str, Mapping[str, float]]) -> None:
    """One row per figure, one column per source of answers."""
    table = Table("", *sources)
    for name in dict.fromkeys(name for figures in sources.values() for name in figures):
        table.add_row(name, *(_number(figures[name]) if name in figures else "" for figures in sources.values()))
    answers.print(table)


def show_stats(out: Path, stats: Mapping[str, Any]) -> None:
    """What an ingest read, and what came of it."""
    train, test = stats["train"], stats["test"]
    counts = f"{stats['rows']:,} rows, {stats['queries']['all']:,} queries, {stats['ads']['all']:,} ads"
    notes.print(f"{out}: {counts}; pairs: {train['pairs']:,} to train, {test['pairs']:,} held out", soft_wrap=True)
    if stats["prior"]:
        notes.print("  prior: (clicks + {a:.3g}) / (impressions + {b:.3g})".format(**stats["prior"]))
    if stats["examination"]:
        notes.print("  examined by position: " + " ".join(f"{e:.2f}" for e in stats["examination"][:8]))
    if stats["note"]:
        notes.print(f"  {stats['note']}", soft_wrap=True)
    for reason, n in stats.get("rejected", {}).items():
        notes.print(f"  rejected, {reason}: {n:,}")


def show_answer(point: int, answer: Any, truth: Any, scale: float) -> None:
    true = dict(zip(truth.indices.tolist(), truth.data.tolist(), strict=True))
    ranked = sorted(
        zip(answer.indices.tolist(), answer.data.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0])
    )
    table = Table("label", "score", "true", title=f"point {point}: best {min(5, len(ranked))} of {len(ranked)}")
    for label, score in ranked[:5]:
        table.add_row(str(label), f"{score * scale:.4f}", f"{true[label]:.4f}" if label in true else "")
    answers.print(table)


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"
