"""What tests of pages share: facts of a made-up release, and a reader of HTML that minds its nesting."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Text, elements and attributes of a page; refuses what is not closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append((self.open[-1], data))

    @property
    def text(self) -> str:
        return "".join(data for _, data in self.texts)

    def count(self, tag: str, kind: str | None = None) -> int:
        return sum(t == tag and (kind is None or kind in (a.get("class") or "").split()) for t, a in self.elements)


def full_facts(word: Any = "plain", number: Any = 0.25) -> dict[str, Any]:
    """Facts with every part, with this word and this number wherever one may stand."""
    figures = dict.fromkeys(("WP@1", "WP@3", "WP@5", "nDCG@5", "XMAD@5"), number)
    points = [{"predicted": number, "observed": number, "weight": number} for _ in range(2)]
    sources = ("merged", "table", "model", "popular", "bm25", "memory", word)
    gate = {"figure": word, "before": number, "after": number, "allowed": number, "failed": True}
    ad = {"ad": word, "title": word, "url": word, "relevance": number, "source": word}
    return {
        "release": {
            **dict.fromkeys(("name", "created", "xreg", "parent", "data"), word),
            "forced": True,
            "gate": [gate],
            "merge": {"rule": word, "weight": number, word: word},
        },
        "figures": dict.fromkeys(sources, figures),
        "reliability": {key: {"before": points, "after": points} for key in ("merged", word)},
        "ece": {key: {"before": number, "after": number, "rate": number} for key in ("merged", word)},
        "precision_recall": dict.fromkeys(
            ("merged", word), [{"threshold": number, "precision": number, "recall": number}] * 3
        ),
        "coverage": dict.fromkeys(("unseen", "1", "100+", word), dict.fromkeys(("merged", word), number)),
        "sizes": {"table": number, word: number},
        "counts": {"ads": number, "queries": number, word: number},
        "previous": {"WP@5": [number, number], word: [number, number]},
        "rows": number,
        "rejects": {"unknown ad": number, word: number},
        "examples": [{"query": word, "ads": [dict(ad) for _ in range(4)]}, {"query": word, "ads": []}],
    }
