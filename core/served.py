"""A release, opened: the text of a query in, its ads with click probabilities out.

A query is looked up in the table, its words go through the online model, and both are merged (core/merge.py). Removed
ads and those that the caller excludes are left out inside the search, so that others take their place. By revenue, ads
compete by probability · bid · quality; one that is worth nothing is not answered then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from core.catalogue import Catalogue, open_catalogue
from core.engine import DEFAULT, Engine, Options, Weights
from core.errors import ModelError
from core.format import read_json
from core.merge import Merged, Merger, MergeRule
from core.model import open_model
from core.releases import read_release
from core.sparse import Csr, Floats, Int32s, take_entries
from core.tables import MappedTable, Row, Table
from core.text import Vocabulary, normalise, open_vocabulary, words

Reason = Literal["no_words", "no_known_words", "not_in_table", "nothing_found", "below_threshold"]
Source = Literal["auto", "table", "model"]
Rank = Literal["relevance", "revenue"]
Ids = Int32s | Sequence[int]
Values = Floats | Sequence[float]
RULE = "calibration.json"
_NO_ADS = np.empty(0, np.int32), np.empty(0, np.float32)
_NOTHING = Merged(*_NO_ADS, np.empty(0, np.uint8))
_ALL = 2**31


class Wanted(NamedTuple):
    """What an answer is to be; ads by number.

    k            ads at most
    threshold    least click probability of an ad
    beam         nodes kept per level; None: as the model was trained
    source       both; the table's word alone, by its own map; or the model's, as for a query that is not in the table
    rank         by click probability, or by what a showing is worth: probability · bid · quality
    exclude      ads that must not be answered
    candidates   the only ads that are scored, each along its path in every tree; None: all
    table_first  where the table has enough ads for a query, it answers alone: a third of the work, and less well
    """

    k: int = 10
    threshold: float = 0.0
    beam: int | None = None
    source: Source = "auto"
    rank: Rank = "relevance"
    exclude: Sequence[int] = ()
    candidates: Sequence[int] | None = None
    table_first: bool = False


class Took(NamedTuple):
    """Seconds that each part of an answer took."""

    text: float
    table: float
    search: float
    merge: float


class Found(NamedTuple):
    """The ads of a query, what they were ranked by and, where there are none, why; how many words the query has, and
    how many of them the model knows; how long it took, where one query was asked."""

    merged: Merged
    worth: Floats
    reason: Reason | None
    n_words: int = 0
    n_known: int = 0
    took: Took | None = None


class _Asked(NamedTuple):
    """What the model is asked: for how many ads, and which."""

    most: int
    options: Options


class Served:
    """What answers queries; read-only, for any number of threads."""

    def __init__(self, catalogue: Catalogue, text: Vocabulary, engine: Engine, table: Table, rule: MergeRule) -> None:
        self.catalogue, self.text, self.engine, self.table = catalogue, text, engine, table
        self.rule, self._merger = rule, Merger(rule)
        self._table_alone = Merger(MergeRule(1.0, {name: rule.maps[name] for name in rule.maps if name == "table"}))
        self._scale = np.float32(engine.model.manifest["scale"])
        self._gone = catalogue.gone
        gone = self._gone[self._gone < engine.model.n_labels]
        self._options = Options(exclude=gone) if len(gone) else DEFAULT
        if engine.model.n_features != text.n_features:
            raise ModelError(f"the online model has {engine.model.n_features} features, its words {text.n_features}")
        if engine.model.n_labels > catalogue.ids.count:
            raise ModelError(f"the online model has {engine.model.n_labels} ads, the catalogue {catalogue.ids.count}")

    @classmethod
    def open(cls, path: Path, verify: bool = True) -> Served:
        """Map the release; `verify` also reads every byte and refuses what was not published so."""
        read_release(path, verify)
        table = MappedTable.open(path / "table", verify)
        served = cls(
            open_catalogue(path / "catalogue", verify),
            open_vocabulary(path / "text" / "queries", verify),
            Engine.open(path / "online", verify),
            table,
            MergeRule.from_json(read_json(path / RULE)),
        )
        if verify:
            open_vocabulary(path / "text" / "ads")
            open_model(path / "labelwise")
            if table.most_ad >= served.catalogue.ids.count:
                raise ModelError(f"{path / 'table'}: ad {table.most_ad} is not in the catalogue")
        return served

    def with_rule(self, rule: MergeRule) -> Served:
        return Served(self.catalogue, self.text, self.engine, self.table, rule)

    def answer(self, query: str, k: int = 10, threshold: float = 0.0) -> Found:
        """The k best ads of a query, as it was typed."""
        return self.ask(query, Wanted(k, threshold))

    def ask(self, query: str, wanted: Wanted) -> Found:
        """The ads of a query, as it was typed."""
        began = perf_counter()
        normalised = normalise(query)
        point = self.text.read(normalised)
        read = perf_counter()
        row = None if wanted.source == "model" else self.table.get(normalised)
        looked = searched = perf_counter()
        merged, worth, reason = self._from_table(row, wanted)
        if len(merged.ads) < wanted.k:
            found = _NO_ADS if wanted.source == "table" else self._search(point.indices, point.values, wanted)
            searched = perf_counter()
            merged, worth, reason = self._answered(found, row, wanted)
        if reason == "nothing_found":
            reason = _cause(normalised, len(point.indices), row, wanted)
        took = Took(read - began, looked - read, searched - looked, perf_counter() - searched)
        return Found(merged, worth, reason, point.n_words, point.n_known, took)

    def ask_many(self, queries: Sequence[str], wanted: Wanted) -> list[Found]:
        """The ads of many queries, through the batch kernel: the same as `ask` gives one by one."""
        normalised = [normalise(query) for query in queries]
        points = self.text.rows(normalised)
        rows = [None] * len(queries) if wanted.source == "model" else self.table.get_many(normalised)
        asked = None if wanted.source == "table" else self._asked(wanted)
        answers = None
        if asked is not None:
            answers = self.engine.predict_batch(points, asked.most, wanted.beam, asked.options)
        told = []
        for i, (text, row) in enumerate(zip(normalised, rows, strict=True)):
            n_features, found = int(points.indptr[i + 1] - points.indptr[i]), _NO_ADS
            if answers is not None and n_features:
                here = slice(answers.indptr[i], answers.indptr[i + 1])
                found = answers.indices[here], answers.values[here] * self._scale
            merged, worth, reason = self._answered(found, row, wanted)
            if reason == "nothing_found":
                reason = _cause(text, n_features, row, wanted)
            said = words(text)
            told.append(Found(merged, worth, reason, len(said), sum(word in self.text.ids for word in said)))
        return told

    def ask_features(self, indices: Ids, values: Values, wanted: Wanted) -> Found:
        """The ads of a query that comes as features of the online model: there is no text to look up in the table."""
        began = perf_counter()
        found = self._search(indices, values, wanted)
        searched = perf_counter()
        merged, worth, reason = self._answered(found, None, wanted)
        return Found(merged, worth, reason, took=Took(0.0, 0.0, searched - began, perf_counter() - searched))

    def numbers(self, ads: Sequence[str]) -> list[int]:
        """The numbers of those ads that are in the catalogue."""
        return [number for number in map(self.catalogue.ids.find, ads) if number >= 0]

    @cached_property
    def texts(self) -> pa.Table:
        """Titles and addresses of the ads; read when somebody first looks at one."""
        return self.catalogue.texts(["title", "url"])

    @cached_property
    def beam(self) -> int:
        """Nodes kept per level where nobody says otherwise."""
        return int(self.engine.model.manifest["params"]["recipe"]["beam"])

    @cached_property
    def value(self) -> Floats:
        """What a click on each ad is worth."""
        return self.catalogue.bid * self.catalogue.quality

    @cached_property
    def weights(self) -> Weights:
        """The same, prepared for the search; takes a moment, once."""
        return self.engine.weigh(self.value[: self.engine.model.n_labels])

    def _answered(
        self, found: tuple[Int32s, Floats], row: Row | None, wanted: Wanted
    ) -> tuple[Merged, Floats, Reason | None]:
        """Both sources merged, the best first, none below the threshold; what they are worth; why there are none."""
        merger = self._table_alone if wanted.source == "table" else self._merger
        by_relevance = wanted.rank == "relevance"
        merged = merger.merge(found, self._allowed(row, wanted), wanted.k if by_relevance else _ALL)
        if not len(merged.ads):
            return merged, merged.scores, "nothing_found"
        if wanted.threshold > 0.0:
            shown = int(np.count_nonzero(merged.scores >= np.float32(wanted.threshold)))
            if not shown:
                return merged.best(0), merged.scores[:0], "below_threshold"
            merged = merged.best(shown)
        if by_relevance:
            return merged, merged.scores, None
        worth = merged.scores * self.value[merged.ads]
        order = np.lexsort((merged.ads, -worth))[: min(wanted.k, int(np.count_nonzero(worth)))]
        best = Merged(merged.ads[order], merged.scores[order], merged.sources[order])
        return best, worth[order], None if len(order) else "nothing_found"

    def _from_table(self, row: Row | None, wanted: Wanted) -> tuple[Merged, Floats, Reason | None]:
        """What the table alone answers to somebody in a hurry; nothing where it must not, or where it has too few."""
        if not wanted.table_first or row is None or len(row.ads) < wanted.k or wanted.candidates is not None:
            return _NOTHING, _NOTHING.scores, None
        return self._answered(_NO_ADS, row, wanted._replace(source="table"))

    def _allowed(self, row: Row | None, wanted: Wanted) -> tuple[Int32s, Floats] | None:
        """The table's row without the ads that must not be answered."""
        if row is None:
            return None
        if not (len(self._gone) or wanted.exclude or wanted.candidates is not None):
            return row.ads, row.scores
        keep = self.catalogue.live[row.ads] != 0
        if wanted.exclude:
            keep &= ~np.isin(row.ads, wanted.exclude)
        if wanted.candidates is not None:
            keep &= np.isin(row.ads, wanted.candidates)
        return row.ads[keep], row.scores[keep]

    def check_golden(self, golden: Any) -> None:
        """Refuse a release that does not answer what it must know as it did when it was published."""
        if not isinstance(golden, list):
            raise ModelError("the manifest has no golden queries")
        for asked in golden:
            try:
                query, expected = asked["query"], asked["ads"]
            except (TypeError, KeyError) as error:
                raise ModelError(f"a golden query has a query and its ads, got {asked!r:.80}") from error
            ads = self.ids(query)
            if ads != expected:
                raise ModelError(f"{query!r} was answered with {ads[:3]}, expected {expected[:3]}")

    def ids(self, query: str, k: int = 10) -> list[str]:
        """The answer as people know the ads."""
        return [self.catalogue.ids.name(int(ad)) for ad in self.answer(query, k).merged.ads]

    def _search(
        self, indices: Int32s | Sequence[int], values: Floats | Sequence[float], wanted: Wanted
    ) -> tuple[Int32s, Floats]:
        """What the model says; nothing about a point without features."""
        asked = self._asked(wanted)
        if asked is None or not len(indices):
            return _NO_ADS
        answer = self.engine.predict(indices, values, asked.most, wanted.beam, asked.options)
        return answer.labels, answer.scores * self._scale

    def _asked(self, wanted: Wanted) -> _Asked | None:
        """What the model is asked; None where it knows none of the candidates."""
        if not (wanted.exclude or wanted.candidates is not None or wanted.rank == "revenue"):
            return _Asked(reach(wanted.k), self._options)
        n_labels = self.engine.model.n_labels
        candidates = [ad for ad in wanted.candidates or () if ad < n_labels]
        if wanted.candidates is not None and not candidates:
            return None
        options = Options(
            exclude=np.append(self._options.exclude, [ad for ad in wanted.exclude if ad < n_labels]).astype(np.int64),
            candidates=candidates,
            weights=self.weights if wanted.rank == "revenue" else None,
        )
        return _Asked(len(candidates) or reach(wanted.k), options)

    def rows(self, queries: Sequence[str], k: int, threads: int = 1) -> tuple[Csr, Csr]:
        """What the model and what the table say about many queries, normalised ones: rows over the catalogue."""
        count, points = self.catalogue.ids.count, self.text.rows(queries)
        model = self.engine.predict_batch(points, reach(k), options=self._options, threads=threads)
        known = np.repeat(np.diff(points.indptr) > 0, np.diff(model.indptr))  # as in `answer`: no words, no answer
        model = take_entries(model, np.flatnonzero(known))
        found = self.table.get_many(queries)
        table = _rows([_NO_ADS if row is None else (row.ads, row.scores) for row in found], count)
        return model._replace(values=model.values * self._scale, n_cols=count), table


def _cause(normalised: str, n_features: int, row: Row | None, wanted: Wanted) -> Reason:
    """Why nothing was found."""
    if wanted.source == "table":
        return "nothing_found" if row else "not_in_table"
    if n_features:
        return "nothing_found"
    return "no_known_words" if normalised else "no_words"


def reach(k: int) -> int:
    """How many ads the model is asked for: one that it ranks below the k best may rise through the table's word."""
    return max(2 * k, 20)


def _rows(parts: list[tuple[Int32s, Floats]], n_ads: int) -> Csr:
    ordered = [(ads[order], scores[order]) for ads, scores in parts for order in (np.argsort(ads),)]
    indptr = np.concatenate([[0], np.cumsum([len(ads) for ads, _ in ordered])]).astype(np.int64)
    ads = np.concatenate([_NO_ADS[0], *(part[0] for part in ordered)])
    return Csr(indptr, ads, np.concatenate([_NO_ADS[1], *(part[1] for part in ordered)]), n_ads)
