"""What judging a release found: the merge rule, the figures, the gate's checks, and the facts of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.merge import PLAIN, SOURCES, MergeRule
from core.served import Served
from core.sparse import Csr, best_of_rows, take_entries
from core.tables import Table
from training.clicks import Clicks
from training.release.baselines import BASELINES
from training.release.gate import Check, compare
from training.release.judge import (
    THRESHOLD,
    Bin,
    K,
    Task,
    ask,
    calibration_error,
    choose_rule,
    covered,
    figures_of,
    held_out,
    merged,
    precision_recall,
    reliability,
)

_FREQUENCIES = (("unseen", 0), ("1", 1), ("2–4", 2), ("5–19", 5), ("20–99", 20), ("100+", 100))  # from this many on
_GOLDEN, _EXAMPLES = 16, 8


class Judged(NamedTuple):
    """All that judging a release leaves behind; as JSON it survives a kill."""

    rule: MergeRule
    figures: dict[str, float]
    gate: list[Check]
    golden: list[dict[str, Any]]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "rule": self.rule.as_json(), "gate": [check._asdict() for check in self.gate]}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Judged:
        gate = [Check(**check) for check in fields["gate"]]
        return cls(**{**fields, "rule": MergeRule.from_json(fields["rule"]), "gate": gate})


def judge_release(
    served: Served,
    clicks: Clicks,
    before: Served | None,
    megabytes: tuple[float, float],
    threads: int,
    fresh: bool = False,
) -> Judged:
    """Choose the rule, judge on the other half of the held-out queries, and compare with the release being served. A
    fresh log, of which nothing was trained, is held out as a whole, without baselines: those would know it."""
    choose_on, judge_on = held_out(clicks, fresh)
    rule = choose_rule(ask(served, clicks, choose_on.queries, threads), choose_on) if choose_on.queries else PLAIN
    ruled = served.with_rule(rule)
    answers = ask(ruled, clicks, judge_on.queries, threads)
    scores = {"merged": merged(answers, rule), "table": _best(answers.table), "model": _best(answers.model)}
    figures = {source: figures_of(rows, judge_on) for source, rows in scores.items()}
    for name, baseline in () if fresh else BASELINES.items():
        figures[name] = figures_of(baseline(clicks, judge_on.queries, K), judge_on)
    figures["merged"]["megabytes"] = megabytes[1]
    figures["merged"]["table queries"] = covered_queries(served.table)
    was: dict[str, float] = {}
    if before is not None:
        was = figures_of(merged(ask(before, clicks, judge_on.queries, threads), before.rule), judge_on)
        was["megabytes"] = megabytes[0]
        was["table queries"] = covered_queries(before.table)
    gate = compare(was, figures["merged"])
    plain = merged(answers, rule._replace(maps={}))
    both = {"before": reliability(plain, judge_on, K), "after": reliability(scores["merged"], judge_on, K)}
    facts = {
        "release": {"gate": [check._asdict() for check in gate], "merge": _rule_facts(rule)},
        "figures": figures,
        "reliability": {"merged": {name: [b._asdict() for b in bins] for name, bins in both.items()}},
        "ece": {
            "merged": {**{name: calibration_error(bins) for name, bins in both.items()}, "rate": _rate(both["after"])}
        },
        "precision_recall": {source: precision_recall(rows, judge_on) for source, rows in scores.items()},
        "coverage": _coverage(scores, clicks, judge_on),
        "previous": {name: [was[name], figures["merged"][name]] for name in was if name in figures["merged"]},
        "examples": _examples(ruled, clicks, judge_on),
    }
    return Judged(rule, figures["merged"], gate, golden_answers(ruled, clicks), facts)


def _best(rows: Csr) -> Csr:
    return take_entries(rows, best_of_rows(rows, rows.values, K))


def _rate(bins: Sequence[Bin]) -> float:
    """Mean observed click rate."""
    total = sum(b.weight for b in bins)
    return sum(b.weight * b.observed for b in bins) / total if total else 0.0


def _rule_facts(rule: MergeRule) -> dict[str, Any]:
    return {"weight": rule.weight, "maps": {source: len(fitted.scores) for source, fitted in rule.maps.items()}}


def _coverage(scores: Mapping[str, Csr], clicks: Clicks, asked: Task) -> dict[str, dict[str, float]]:
    """Share of the queries with an ad above the threshold, by how often training saw them."""
    bucket = np.searchsorted([least for _, least in _FREQUENCIES], seen_in_training(clicks)[asked.ids], "right") - 1
    found = {source: covered(rows, THRESHOLD) for source, rows in scores.items()}
    return {
        name: {source: float(has[bucket == i].mean()) for source, has in found.items()}
        for i, (name, _) in enumerate(_FREQUENCIES)
        if (bucket == i).any()
    }


def seen_in_training(clicks: Clicks) -> npt.NDArray[np.float64]:
    """Impressions of every query in the training part."""
    seen = np.zeros(len(clicks.queries))
    np.add.at(seen, clicks.train.query, clicks.train.impressions)
    return seen


def covered_queries(table: Table) -> int:
    """Queries that have an ad above the threshold in the table."""
    return sum(float(row.scores[0]) >= THRESHOLD for _, row in table.rows())


def golden_answers(served: Served, clicks: Clicks) -> list[dict[str, Any]]:
    """Frequent queries and their answers: whoever opens the release must find the same."""
    often = np.argsort(-seen_in_training(clicks)[: clicks.known], kind="stable")[:_GOLDEN]
    return [{"query": clicks.queries[i], "ads": served.ids(clicks.queries[i])} for i in often]


def _examples(served: Served, clicks: Clicks, asked: Task) -> list[dict[str, Any]]:
    """Some held-out queries, the most frequent and the rarest, with their best three ads."""
    by_frequency = np.argsort(-seen_in_training(clicks)[asked.ids], kind="stable")
    chosen = [*by_frequency[: _EXAMPLES // 2], *by_frequency[len(by_frequency) // 2 :][-(_EXAMPLES // 2) :]]
    return [{"query": asked.queries[i], "ads": _shown(served, clicks, asked.queries[i])} for i in dict.fromkeys(chosen)]


def _shown(served: Served, clicks: Clicks, query: str) -> list[dict[str, Any]]:
    titles, found = clicks.ads["title"], served.answer(query, 3).merged
    place = {ad: row for row, ad in enumerate(clicks.ads["ad_id"].to_pylist())}
    shown = []
    for number, score, source in zip(*found, strict=True):
        ad = served.catalogue.ids.name(int(number))
        title = titles[place[ad]].as_py() if ad in place else ""
        shown.append({"ad": ad, "title": title, "relevance": float(score), "source": SOURCES[source]})
    return shown
