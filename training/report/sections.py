"""The sections of a release's report: each is facts → HTML, or None where its facts are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from training.report.charts import NEUTRAL, Axis, bar_chart, line_chart, reliability_chart
from training.report.facts import BUCKETS, SERVED, Facts, Number, Reliability, Threshold, ordered, slots
from training.report.markup import (
    NOTHING,
    Markup,
    best_of,
    better,
    count,
    decimals,
    escape,
    figure,
    finite,
    join,
    megabytes,
    percent,
    spaced,
    table,
    tag,
)

METRICS = ("WP@1", "WP@3", "WP@5", "nDCG@5", "XMAD@5")
_RANKING, _REGRESSION = METRICS[:4], METRICS[4]
_WHO = {
    "merged": "what is served",
    "table": "precomputed ads alone",
    "model": "beam search alone",
    "popular": "most clicked ads",
    "bm25": "word match with the ads’ text; its scores are no click rates, so its XMAD means little",
    "memory": "the query’s own past clicks",
}
_MOST_THRESHOLDS = 8
_PR = (Axis("recall", percent=True), Axis("precision", percent=True))


class Section(NamedTuple):
    """A heading, what is drawn beneath it, and what is said if that cannot be drawn."""

    title: str
    render: Callable[[Facts], Markup | None]
    missing: str


def accuracy(facts: Facts) -> Markup | None:
    figures = facts.get("figures")
    if not figures:
        return None
    sources, colours = ordered(figures), slots(figures)

    def bars(title: str, metrics: Sequence[str], axis: Axis) -> Markup:
        return bar_chart(title, metrics, {s: [figures[s].get(m) for m in metrics] for s in sources}, axis, colours)

    charts = tag(
        "div",
        bars("Ranking: higher is better", _RANKING, Axis("percent of the best possible")),
        bars("Error: lower is better", [_REGRESSION], Axis("XMAD@5")),
        class_="pair",
    )
    best = {m: best_of(m, (figures[s].get(m) for s in sources)) for m in METRICS}
    rows = [[s, *(_emphasised(m, figures[s].get(m), best[m]) for m in METRICS)] for s in sources]
    said = "; ".join(f"{s}: {_WHO[s]}" for s in sources if s in _WHO)
    return join([charts, table(["", *METRICS], rows), _note(f"Best in bold. {said}.") if said else ""])


def _emphasised(metric: str, value: Number, best: Number) -> Markup:
    shown = figure(metric, value)
    return tag("strong", shown) if best is not None and finite(value) == best else escape(shown)


def reliability(facts: Facts) -> Markup | None:
    points, errors = facts.get("reliability") or {}, facts.get("ece") or {}
    if not points and not errors:
        return None
    colours = slots(points)
    charts = [_reliability_chart(source, points[source], colours[source]) for source in ordered(points)]
    rows = []
    for source in ordered(errors):
        error = errors[source]
        before, after, rate = (finite(error.get(name)) for name in ("before", "after", "rate"))
        relative = percent(after / rate) if after is not None and rate else NOTHING
        rows.append([source, figure("ECE", before), figure("ECE", after), relative])
    head = ["calibration error", "before", "after", "of mean rate"]
    said = _note(
        "A disc is a run of neighbouring scores; its area grows with their number. On the dashed line, prediction and "
        "observation agree. Expected calibration error: the mean distance from that line."
    )
    return tag("div", *charts, tag("div", table(head, rows) if rows else "", said), class_="pair")


def _reliability_chart(source: str, points: Reliability, slot: int) -> Markup:
    before, after = points.get("before") or [], points.get("after") or []
    runs = {"before calibration": before, "after calibration": after}
    if before == after:
        runs = {"not calibrated": after}
    series = {name: [(p["predicted"], p["observed"], p["weight"]) for p in run] for name, run in runs.items() if run}
    axes = Axis("predicted click rate", percent=True), Axis("observed click rate", percent=True)
    colours = {"before calibration": NEUTRAL, "after calibration": slot, "not calibrated": slot}
    said = ", not calibrated" if before == after else ""
    return reliability_chart(f"Reliability: {source}{said}", series, *axes, colours)


def precision_recall(facts: Facts) -> Markup | None:
    curves = {source: points for source, points in (facts.get("precision_recall") or {}).items() if points}
    if not curves:
        return None
    sources, colours = ordered(curves), slots(curves)
    curve = {s: [(p["recall"], p["precision"]) for p in curves[s]] for s in sources}
    by_threshold = {s: [(p["threshold"], p["precision"]) for p in curves[s]] for s in sources}
    charts = (
        line_chart("Precision by recall", curve, *_PR, colours),
        line_chart("Precision by threshold", by_threshold, Axis("score at least", log=True), _PR[1], colours),
    )
    head = [f"{sources[0]}: score at least", "precision", "recall"]
    rows = [[_short(p["threshold"]), percent(p["precision"]), percent(p["recall"])] for p in _some(curves[sources[0]])]
    said = _note(
        "One threshold for all queries. Precision: mean relevance of the pairs kept. Recall: share of all relevant "
        "pairs that are kept."
    )
    return tag("div", *charts, table(head, rows), said, class_="pair")


def _short(value: Number) -> str:
    return NOTHING if finite(value) is None else f"{value:.4f}"


def _some(points: Sequence[Threshold]) -> list[Threshold]:
    """A table's worth of them by rising threshold, the first and the last included."""
    points = sorted(points, key=lambda p: finite(p["threshold"]) or 0.0)
    last = len(points) - 1
    n = min(_MOST_THRESHOLDS, len(points))
    return [points[round(i * last / max(n - 1, 1))] for i in range(n)]


def coverage(facts: Facts) -> Markup | None:
    shares = facts.get("coverage")
    if not shares:
        return None
    buckets = [*(b for b in BUCKETS if b in shares), *(b for b in shares if b not in BUCKETS)]
    sources = ordered(dict.fromkeys(s for bucket in buckets for s in shares[bucket]))
    if not sources:
        return None
    series = {s: [shares[b].get(s) for b in buckets] for s in sources}
    axis = Axis("share with an ad above the threshold", percent=True)
    chart = bar_chart("Queries answered, by how often they were seen", buckets, series, axis, slots(sources))
    rows = [[b, *(percent(shares[b].get(s)) for s in sources)] for b in buckets]
    served = " and ".join(s for s in sources if s in SERVED[1:])
    note = f"Frequency: how often the query was shown in training. What is served joins {served}." if served else ""
    return join([tag("div", chart, table(["seen", *sources], rows), class_="pair"), _note(note) if note else ""])


def sizes(facts: Facts) -> Markup | None:
    parts, counts = facts.get("sizes") or {}, facts.get("counts") or {}
    if not parts and not counts:
        return None
    bytes_of = {part: finite(size) or 0.0 for part, size in parts.items()}
    total, most = sum(bytes_of.values()), max(bytes_of.values(), default=0.0)
    rows: list[list[object]] = [[part, _meter(bytes_of[part], most), megabytes(size)] for part, size in parts.items()]
    rows.append([tag("strong", "all"), "", tag("strong", megabytes(total))])
    tables = [table(["part", "", "MB"], rows, 2)] if parts else []
    tables += [table(["what", "how many"], [[name, count(n)] for name, n in counts.items()])] if counts else []
    return tag("div", *tables, class_="pair")


def _meter(value: object, most: object) -> Markup:
    share = (finite(value) or 0.0) / (finite(most) or 1.0)
    bar = f'<rect class="f0" width="{max(0.0, min(share, 1.0)) * 100:.2f}" height="8" rx="1.5"/>'
    return Markup(f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{bar}</svg>')


def differences(facts: Facts) -> Markup | None:
    previous = facts.get("previous")
    if not previous:
        return None
    same = {name: new for name, (old, new) in previous.items() if figure(name, old) == figure(name, new)}
    rows = [[name, *_difference(name, *pair)] for name, pair in previous.items() if name not in same]
    unchanged = [f"{name} {figure(name, value)}" for name, value in same.items()]
    parent = (facts.get("release") or {}).get("parent")
    before = [_note(tag("span", "Compared with ", tag("bdi", parent), "."))] if parent else []
    changed = [table(["figure", "before", "now", "change", ""], rows)] if rows else []
    return join([*before, *changed, _note(f"Unchanged: {', '.join(unchanged)}.") if unchanged else ""])


def _difference(name: str, old: Number, new: Number) -> list[object]:
    was, now = finite(old), finite(new)
    if was is None or now is None:
        return [figure(name, old), figure(name, new), NOTHING, ""]
    relative = f" ({_signed(100 * (now - was) / abs(was), 1)}\u202f%)" if was else ""
    change = join([_signed(now - was, decimals(name, was, now)), tag("span", relative, class_="more")])
    welcome = better(name, was, now)
    verdict = tag("span", {True: "better", False: "worse", None: ""}[welcome], class_=_mood(welcome))
    return [figure(name, was), figure(name, now), change, verdict]


def _mood(welcome: bool | None) -> str | None:
    return {True: "good", False: "bad", None: None}[welcome]


def _signed(value: float, digits: int) -> str:
    return spaced(value, digits, "+") if round(value, digits) else spaced(0.0, digits)


def rejected(facts: Facts) -> Markup | None:
    if "rejects" not in facts and "rows" not in facts:
        return None
    rejects, rows = facts.get("rejects") or {}, finite(facts.get("rows"))
    n = sum(finite(v) or 0 for v in rejects.values())
    of = f" of {count(rows)} rows ({percent(n / rows, 2)})" if rows else " rows"
    if not n:
        return _note("No row had to be rejected" + (f"; {count(rows)} were read." if rows else "."))
    falling = sorted(rejects.items(), key=lambda item: (-(finite(item[1]) or 0), item[0]))
    most = falling[0][1]
    lines = [
        [why, _meter(k, most), count(k), percent((finite(k) or 0) / rows, 3) if rows else NOTHING] for why, k in falling
    ]
    return join([_note(f"{count(n)}{of} could not be used."), table(["reason", "", "rows", "of all"], lines, 2)])


def examples(facts: Facts) -> Markup | None:
    cards = []
    for example in facts.get("examples") or []:
        ads = [
            tag(
                "li",
                tag("span", tag("bdi", ad.get("title") or ad.get("ad") or NOTHING), class_="title"),
                tag("span", percent(ad.get("relevance"), 2), class_="rate"),
                tag("small", join((tag("bdi", ad[key]) for key in ("ad", "source", "url") if ad.get(key)), " · ")),
            )
            for ad in example["ads"][:3]
        ]
        answer = tag("ol", *ads) if ads else tag("p", "No ads.", class_="missing")
        cards.append(tag("article", tag("h3", tag("bdi", example["query"])), answer))
    return tag("div", *cards, class_="cards") if cards else None


def _note(text: object) -> Markup:
    return tag("p", text, class_="note")


SECTIONS = (
    Section("Accuracy against the baselines", accuracy, "no figures of this release were measured on held-out data."),
    Section("Reliability", reliability, "predicted and observed click rates were not compared for this release."),
    Section("Precision and recall", precision_recall, "no precision at global thresholds was measured."),
    Section("Coverage by query frequency", coverage, "how many queries get an ad was not measured by frequency."),
    Section("Sizes", sizes, "the sizes of the release’s parts were not recorded."),
    Section("Differences from the last release", differences, "there is no earlier release to compare with."),
    Section("Rejected rows", rejected, "the data set came without a count of rejected rows."),
    Section("Examples", examples, "no example queries were recorded."),
)


def render_sections(facts: Facts) -> Markup:
    """All sections in order; where facts are missing, a sentence that says why the section is left out."""
    parts = []
    for section in SECTIONS:
        body = section.render(facts) or tag("p", f"Left out: {section.missing}", class_="missing")
        parts.append(tag("section", tag("h2", section.title), body))
    return join(parts)
