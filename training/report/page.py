"""A release's report: one HTML page that holds everything it shows.

No script and nothing fetched (the page forbids both to itself), so that it can be mailed, archived and opened in ten
years. Light or dark as the reader's system is, one column on a phone, and fit to print. What goes in is the release's
stats.json (training/report/facts.py); the same facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from training.report import charts
from training.report.facts import SERVED, Facts, ReleaseFacts
from training.report.markup import NOTHING, Markup, count, escape, figure, finite, join, megabytes, percent, table, tag
from training.report.sections import render_sections

STYLE = (
    charts.STYLE
    + """
:root{color-scheme:light dark;--page:#f4f3f0;--surface:#fff;--ink:#171716;--soft:#5b5a55;--rule:#dddcd6;
--good:#00690f;--bad:#b3261e;--warn:#8a5300;--good-back:#e3f3e4;--bad-back:#fbe6e4;--warn-back:#fcefd8}
@media screen and (prefers-color-scheme:dark){:root{--page:#111110;--surface:#1b1b1a;--ink:#f3f2ee;--soft:#b7b6ae;
--rule:#363633;--good:#7fd58b;--bad:#ff9c92;--warn:#f0b95c;--good-back:#15301a;--bad-back:#3d1a17;--warn-back:#362810}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue","Liberation Sans",Arial,sans-serif}
main{max-width:68rem;margin:0 auto;padding:2rem 1.25rem 3rem}
header,section{background:var(--surface);margin:0 0 1.25rem;
border:1px solid var(--rule);border-radius:10px;padding:1.5rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .75rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;line-height:1.3;margin:0 0 1rem}
h3{font-size:1rem;margin:0 0 .5rem;overflow-wrap:anywhere}
p{margin:0}
.kicker{color:var(--soft);font-size:.875rem;margin:0 0 .25rem}
.badge{display:inline-block;border-radius:6px;padding:.25rem .625rem;font-weight:600;font-size:.9375rem}
.badge.good{background:var(--good-back)}.badge.bad{background:var(--bad-back)}.badge.warn{background:var(--warn-back)}
.badge.plain{background:var(--page)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.25rem;margin:1.25rem 0 0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.tiles{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0 0}
.tiles div{flex:1 1 9rem;max-width:16rem;border:1px solid var(--rule);border-radius:8px;padding:.75rem .875rem}
.tiles p,.tiles small{color:var(--soft);font-size:.875rem;line-height:1.35}
.tiles strong{display:block;font-size:1.5rem;line-height:1.35;font-weight:650;font-variant-numeric:tabular-nums}
.tiles small{display:block}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:1.75rem 2.5rem;
align-items:start}
.wide{overflow-x:auto;max-width:46rem}
*+.wide,*+.note{margin-top:1.25rem}
h2+.note{margin-top:-.5rem}
.pair>.wide,.pair>.note{margin-top:0}
.note,.missing{color:var(--soft);font-size:.9375rem;max-width:46rem}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
th,td{padding:.4rem .5rem;text-align:left;border-bottom:1px solid var(--rule);vertical-align:middle}
th:first-child{padding-left:0}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft);font-weight:500;font-size:.875rem;vertical-align:bottom}
tbody th{font-weight:400}
tbody tr:last-child>*{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
strong{font-weight:650}
.meter{display:block;width:100%;min-width:3rem;height:8px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:.75rem}
.cards article{border:1px solid var(--rule);border-radius:8px;padding:.875rem 1rem;break-inside:avoid}
.cards ol{list-style:none;margin:0;padding:0}
.cards li{display:grid;grid-template-columns:1fr max-content;gap:0 .75rem;padding:.4rem 0;
border-top:1px solid var(--rule)}
.cards .title,.cards small{overflow-wrap:anywhere;min-width:0}
.cards .rate{font-variant-numeric:tabular-nums}
.cards small{grid-column:1/-1;color:var(--soft);font-size:.8125rem}
footer{color:var(--soft);font-size:.875rem}
@media(max-width:34rem){main{padding:1rem .75rem 2rem}header,section{padding:1rem .875rem}h1{font-size:1.5rem}
dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5rem}th,td{padding:.4rem .2rem}table{font-size:.8125rem}
thead th{font-size:.75rem}.tiles strong{font-size:1.25rem}.more{display:none}}
@media print{:root{--page:#fff;font-size:12px}.pair{grid-template-columns:1fr 1fr}main{max-width:none;padding:0}
header,section{border:0;border-radius:0;padding:0 0 1rem}
figure,table,.tiles div{break-inside:avoid}h2{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_report(facts: Mapping[str, Any]) -> str:
    """The page. `facts` has the structure of report_facts.Facts; parts that are missing are left out, and said so."""
    known = cast(Facts, facts)
    release = known.get("release") or {}
    name = release.get("name") or "a release without a name"
    head = join(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            tag("title", f"xreg release {name}"),
            tag("style", Markup(STYLE)),
        ]
    )
    by = join(["xreg", *([release["xreg"]] if release.get("xreg") else [])], " ")
    foot = tag("footer", "Written by ", by, " from the release’s stats.json.")
    body = tag("main", _headline(known, release, name), render_sections(known), foot)
    return f'<!DOCTYPE html>\n<html lang="en">{tag("head", head)}{tag("body", body)}</html>\n'


def _headline(facts: Facts, release: ReleaseFacts, name: str) -> Markup:
    mood, verdict = _verdict(release)
    parts = [
        tag("p", "xreg release report", class_="kicker"),
        tag("h1", tag("bdi", name)),
        tag("p", verdict, class_=f"badge {mood}"),
    ]
    tiles = _tiles(facts)
    if tiles:
        boxes = (tag("div", tag("p", what), tag("strong", value), tag("small", more)) for what, value, more in tiles)
        parts.append(tag("div", *boxes, class_="tiles"))
    parts.append(tag("dl", *(join([tag("dt", what), tag("dd", tag("bdi", said))]) for what, said in _about(release))))
    if release.get("gate"):
        parts.append(_gate(release))
    return tag("header", *parts)


def _verdict(release: ReleaseFacts) -> tuple[str, str]:
    gate, forced = release.get("gate") or [], bool(release.get("forced"))
    failed = [str(line["figure"]) for line in gate if line.get("failed")]
    if failed and forced:
        return "warn", f"Published by force although the gate refused it: {', '.join(failed)}"
    if failed:
        return "bad", f"✕ Refused by the gate: {', '.join(failed)}"
    if gate:
        return "good", "✓ Passed the gate" + (" (force was asked for, and not needed)" if forced else "")
    return "plain", "Not compared by the gate: no earlier release" + (", published by force" if forced else "")


def _about(release: ReleaseFacts) -> list[tuple[str, object]]:
    merge = ", ".join(
        _plain(value) if key == "rule" else f"{key} {_plain(value)}"
        for key, value in (release.get("merge") or {}).items()
    )
    return [
        ("Created", release.get("created") or NOTHING),
        ("Data", release.get("data") or NOTHING),
        ("Release before", release.get("parent") or "none"),
        ("Merge rule", merge or "not recorded"),
        ("Forced", "yes" if release.get("forced") else "no"),
    ]


def _plain(value: object) -> str:
    """As one would write it in a sentence."""
    if isinstance(value, Mapping):
        return f"({', '.join(f'{key} {_plain(v)}' for key, v in value.items())})" if value else "none"
    if isinstance(value, float) or value is None:
        return NOTHING if finite(value) is None else f"{value:.4g}"
    return str(value)


def _tiles(facts: Facts) -> list[tuple[str, str, str]]:
    """(what, how much, beside what) for the figures one looks at first."""
    tiles = []
    figures = {source: finite(row.get("WP@5")) for source, row in (facts.get("figures") or {}).items()}
    merged = figures.get("merged")
    if merged is not None:
        others = {s: v for s, v in figures.items() if s not in SERVED and v}
        rival = max(others, key=lambda s: others[s] or 0.0, default=None)
        beside = f"{merged / (others[rival] or 1):.2f} × {rival}" if rival else "no baselines beside it"
        tiles.append(("WP@5 served", figure("WP@5", merged), beside))
    error = (facts.get("ece") or {}).get("merged") or {}
    after, rate = finite(error.get("after")), finite(error.get("rate"))
    if after is not None:
        beside = f"{percent(after / rate)} of the mean click rate" if rate else "after calibration"
        tiles.append(("Calibration error", figure("ECE", after), beside))
    sizes, counts = facts.get("sizes") or {}, facts.get("counts") or {}
    if sizes:
        holds = " · ".join(f"{count(counts[name])} {name}" for name in ("ads", "queries") if name in counts)
        total = sum(finite(size) or 0.0 for size in sizes.values())
        tiles.append(("Size", f"{megabytes(total)}\u00a0MB", holds or f"{len(sizes)} parts"))
    rows, rejects = finite(facts.get("rows")), facts.get("rejects") or {}
    if rows:
        lost = sum(finite(n) or 0.0 for n in rejects.values())
        tiles.append(("Rejected rows", percent(lost / rows, 2), f"{count(lost)} of {count(rows)}"))
    return tiles


def _gate(release: ReleaseFacts) -> Markup:
    rows = []
    for line in release.get("gate") or []:
        name, failed = str(line["figure"]), bool(line.get("failed"))
        numbers = [figure(name, line.get(key)) for key in ("before", "after", "allowed")]
        verdict = tag("span", "✕ failed" if failed else "✓ passed", class_="bad" if failed else "good")
        rows.append([escape(name), *numbers, verdict])
    return table(["gate", "before", "now", "allowed", ""], rows)
