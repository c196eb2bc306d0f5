"""A release, opened: the text of a query in, its ads with click probabilities out.

A query is looked up in the table, its words go through the online model, and both are merged (core/merge.py). Removed
ads are excluded inside the search, so that others take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from core.catalogue import Catalogue, open_catalogue
from core.engine import Engine, Options
from core.errors import ModelError
from core.format import read_json
from core.merge import Merged, Merger, MergeRule
from core.model import open_model
from core.releases import read_release
from core.sparse import Csr, Floats, Int32s, take_entries
from core.tables import MappedTable, Table
from core.text import Vocabulary, normalise, open_vocabulary

Reason = Literal["no_words", "no_known_words", "nothing_found", "below_threshold"]
RULE = "calibration.json"
_NO_ADS = np.empty(0, np.int32), np.empty(0, np.float32)


class Found(NamedTuple):
    """The ads of a query and, where there are none, why."""

    merged: Merged
    reason: Reason | None


class Served:
    """What answers queries; read-only, for any number of threads."""

    def __init__(self, catalogue: Catalogue, text: Vocabulary, engine: Engine, table: Table, rule: MergeRule) -> None:
        self.catalogue, self.text, self.engine, self.table = catalogue, text, engine, table
        self.rule, self._merger = rule, Merger(rule)
        self._scale = np.float32(engine.model.manifest["scale"])
        self._options = Options(exclude=catalogue.gone[catalogue.gone < engine.model.n_labels])
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
        normalised = normalise(query)
        indices, values = self.text.features(normalised)
        row = self.table.get(normalised)
        found = self._search(indices, values, k) if len(indices) else _NO_ADS
        merged = self._merger.merge(found, None if row is None else (row.ads, row.scores), k)
        shown = int(np.count_nonzero(merged.scores >= threshold))
        if shown:
            return Found(merged.best(shown), None)
        if len(merged.ads):
            return Found(merged.best(0), "below_threshold")
        return Found(merged, "no_words" if not normalised else "nothing_found" if len(indices) else "no_known_words")

    def ids(self, query: str, k: int = 10) -> list[str]:
        """The answer as people know the ads."""
        return [self.catalogue.ids.name(int(ad)) for ad in self.answer(query, k).merged.ads]

    def _search(self, indices: Int32s, values: Floats, k: int) -> tuple[Int32s, Floats]:
        answer = self.engine.predict(indices, values, reach(k), options=self._options)
        return answer.labels, answer.scores * self._scale

    def rows(self, queries: Sequence[str], k: int, threads: int = 1) -> tuple[Csr, Csr]:
        """What the model and what the table say about many queries, normalised ones: rows over the catalogue."""
        count, points = self.catalogue.ids.count, self.text.rows(queries)
        model = self.engine.predict_batch(points, reach(k), options=self._options, threads=threads)
        known = np.repeat(np.diff(points.indptr) > 0, np.diff(model.indptr))  # as in `answer`: no words, no answer
        model = take_entries(model, np.flatnonzero(known))
        found = self.table.get_many(queries)
        table = _rows([_NO_ADS if row is None else (row.ads, row.scores) for row in found], count)
        return model._replace(values=model.values * self._scale, n_cols=count), table


def reach(k: int) -> int:
    """How many ads the model is asked for: one that it ranks below the k best may rise through the table's word."""
    return max(2 * k, 20)


def _rows(parts: list[tuple[Int32s, Floats]], n_ads: int) -> Csr:
    ordered = [(ads[order], scores[order]) for ads, scores in parts for order in (np.argsort(ads),)]
    indptr = np.concatenate([[0], np.cumsum([len(ads) for ads, _ in ordered])]).astype(np.int64)
    ads = np.concatenate([_NO_ADS[0], *(part[0] for part in ordered)])
    return Csr(indptr, ads, np.concatenate([_NO_ADS[1], *(part[1] for part in ordered)]), n_ads)
