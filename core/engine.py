"""Pointwise answers from an opened model: a point's features in, its best labels out.

An engine is read-only and may be asked by any number of threads at once; each has buffers of its own, and the GIL is
released while a search runs. Answers are in 0 … 1; times `scale` they are in the caller's units.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from core.errors import DataError, UsageError
from core.explain import Explanation, explain
from core.jit import kernel
from core.kernels.arrays import Request
from core.kernels.pointwise import NO_ROOM, OUT_OF_RANGE, answer, answer_rows
from core.kernels.rank import Wishes
from core.model import Model, open_model
from core.scratch import NO_REQUEST, Searcher
from core.sparse import Csr, Floats, Int32s, Int64s, best_of_rows, from_scipy, take_entries, transformed
from core.tail import rerank

MOST_LABELS = 10_000
TREE_TOP = 100  # labels per tree that tail re-ranking looks at, and that evaluation asks for
_ROWS_PER_TASK = 256


class Answer(NamedTuple):
    """Labels, best first, and their scores; with weights, best is by score · weight."""

    labels: Int32s
    scores: Floats


class Weights(NamedTuple):
    """What labels are worth (bids), prepared for an engine: of every edge, and the most below every node."""

    edge: Floats
    node: Floats


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer. None means what the model was trained with.

    alpha       tail re-ranking, score^α · cos^(1−α); 1 is off
    threshold   least score of an answer
    exclude     labels that must not be returned; others take their place
    candidates  score these labels only, each along its path in every tree
    weights     rank by score · weight (`Engine.weigh`)
    """

    alpha: float | None = None
    threshold: float = 0.0
    exclude: npt.ArrayLike = ()
    candidates: npt.ArrayLike = ()
    weights: Weights | None = None


DEFAULT = Options()


class Engine:
    """Answers for points, from a model that is mapped and never changed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.searcher = Searcher(model.trie, model.feature_weight)
        self._recipe = model.manifest["params"]["recipe"]
        self._power = float(self._recipe["value_power"])
        self._complete = model.scoring.conditional and model.n_trees > 1  # there is nothing to complete in one tree
        self._smallest_leaf = int(np.diff(model.trie.edge_ptr)[model.trie.node_leaf == 1].min())

    @classmethod
    def open(cls, path: Path, verify: bool = True) -> Engine:
        return cls(open_model(path, verify))

    def warm_up(self) -> None:
        """Compile, or load from the cache, all that a call may need."""
        nothing = np.empty(0, np.int32), np.empty(0, np.float32)
        self.predict(*nothing)
        self.predict_batch(Csr(np.zeros(2, np.int64), *nothing, self.model.n_features))

    def predict(
        self,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        k: int = 10,
        beam: int | None = None,
        options: Options = DEFAULT,
    ) -> Answer:
        """The k best labels of one point. Features may come in any order; values of the same feature are added."""
        features, x = _read_only(indices, np.int32), _read_only(values, np.float32)
        if len(features) != len(x):
            raise DataError(f"there are {len(features)} feature ids and {len(x)} values: each id needs one value")
        wishes, request = self._prepare(k, beam, options)
        if self._has_second_stage(options):
            point = Csr(np.array([0, len(x)]), features, x, self.model.n_features)
            rows, worth = self._second_stage(point, options, wishes, request, threads=1)
            order = np.lexsort((rows.indices, -worth))
            return Answer(rows.indices[order], rows.values[order])
        labels, scores = np.empty(wishes.k, np.int32), np.empty(wishes.k, np.float32)
        scratch = self.searcher.scratch(wishes.k, wishes.beam)
        while True:
            table = scratch.table_for(request)
            n = answer(table, self.model.scoring, wishes, self._power, features, x, labels, scores)
            if n == len(labels):
                return Answer(labels, scores)
            if n >= 0:
                return Answer(labels[:n], scores[:n])
            if n != NO_ROOM:
                raise self._refused(n, features, x, "")
            scratch = scratch.grown()

    def predict_batch(
        self, points: Csr, k: int = 10, beam: int | None = None, options: Options = DEFAULT, threads: int = 1
    ) -> Csr:
        """The k best labels of every point."""
        if points.n_cols != self.model.n_features:
            raise DataError(
                f"the points have {points.n_cols} features, the model was trained on {self.model.n_features}"
            )
        wishes, request = self._prepare(k, beam, options)
        if self._has_second_stage(options):
            return self._second_stage(points, options, wishes, request, threads)[0]
        return self._search(points, wishes, request, threads)

    def explain(self, indices: npt.ArrayLike, values: npt.ArrayLike, label: int) -> Explanation:
        """Why a label has its score: its paths, the probability at each edge, and the features that pushed it.

        The score counts the label's path in every tree, as it does among `Options.candidates`.
        """
        features, x = _read_only(indices, np.int32), _read_only(values, np.float32)
        self.predict(features, x, k=1)  # refuses what cannot be
        point = sparse.csr_matrix((x, features, [0, len(x)]), shape=(1, self.model.n_features))
        return explain(self.model, from_scipy(point), label)

    def weigh(self, weights: npt.ArrayLike) -> Weights:
        """Weights of all labels, for `Options.weights`; once per set of bids, not per call."""
        given = np.asarray(weights, np.float32)
        if given.shape != (self.model.n_labels,):
            raise UsageError(f"there must be a weight for each of {self.model.n_labels} labels, got {given.shape}")
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise UsageError("weights must be finite and not negative")
        t, p = self.model.trie, self.searcher.places
        of_leaf = np.repeat(t.node_leaf, np.diff(t.edge_ptr)) == 1
        edge = np.zeros(len(t.edge_target), np.float32)
        edge[of_leaf] = given[t.edge_target[of_leaf]]
        node = np.maximum.reduceat(edge, t.edge_ptr[:-1])
        for child in np.arange(len(node))[::-1]:  # children come after their parents
            if p.parent[child] >= 0:
                node[p.parent[child]] = max(node[p.parent[child]], node[child])
        return Weights(edge, node)

    def _has_second_stage(self, options: Options) -> bool:
        return self.model.calibration is not None or self._alpha(options) < 1.0

    def _alpha(self, options: Options) -> float:
        return float(self.model.manifest["params"]["alpha"] if options.alpha is None else options.alpha)

    def _prepare(self, k: int, beam: int | None, options: Options) -> tuple[Wishes, Request]:
        """What the kernels are asked for, checked."""
        beam = int(self._recipe["beam"] if beam is None else beam)
        if not 1 <= k <= MOST_LABELS:
            raise UsageError(f"k must be between 1 and {MOST_LABELS}, got {k}")
        if beam < 1:
            raise UsageError(f"beam must be at least 1, got {beam}")
        k, beam, complete = min(k, self.model.n_labels), min(beam, self.searcher.most_nodes), self._complete
        if options is DEFAULT:
            return Wishes(k, beam, complete, 0.0), NO_REQUEST
        alpha = self._alpha(options)
        if not 0.0 <= alpha <= 1.0:
            raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
        if alpha < 1.0 and self.model.tail is None:
            raise UsageError("this model was trained without --tail, so alpha must be 1")
        if not options.threshold >= 0.0:
            raise UsageError(f"threshold must not be negative, got {options.threshold}")
        exclude, candidates = self._labels(options.exclude, "exclude"), self._labels(options.candidates, "candidates")
        # Every leaf of which all labels are excluded takes a place in the beam away: give it back.
        beam = min(beam + len(exclude) // self._smallest_leaf, self.searcher.most_nodes)
        wishes = Wishes(k, beam, complete, float(options.threshold))
        if not len(exclude) and not len(candidates) and options.weights is None:
            return wishes, NO_REQUEST
        weights = options.weights or Weights(NO_REQUEST.edge_weight, NO_REQUEST.node_weight)
        return wishes, Request(exclude, candidates, *weights)

    def _labels(self, given: npt.ArrayLike, what: str) -> Int32s:
        labels = np.unique(np.asarray(given, np.int64))
        if len(labels) and (labels[0] < 0 or labels[-1] >= self.model.n_labels):
            wrong = labels[0] if labels[0] < 0 else labels[-1]
            raise UsageError(f"{what}: label {wrong} is not in 0 … {self.model.n_labels - 1}")
        return labels.astype(np.int32)

    def _refused(self, fault: int, features: Int32s, values: Floats, where: str) -> DataError:
        if fault == OUT_OF_RANGE:
            wrong = features[(features < 0) | (features >= self.model.n_features)][0]
            return DataError(
                f"{where}feature id {wrong} is out of range; the model has {self.model.n_features} features"
            )
        wrong_value = values[~((values >= 0) & np.isfinite(values))][0]
        return DataError(f"{where}values must be finite and not negative, got {wrong_value}")

    def _search(self, points: Csr, wishes: Wishes, request: Request, threads: int) -> Csr:
        n = points.n_rows
        labels, scores = np.empty((n, wishes.k), np.int32), np.empty((n, wishes.k), np.float32)
        counts = np.zeros(n, np.int64)
        features, x = _read_only(points.indices, np.int32), _read_only(points.values, np.float32)

        def run(first: int) -> None:
            rows = slice(first, first + _ROWS_PER_TASK)
            indptr = _read_only(points.indptr[first : first + _ROWS_PER_TASK + 1], np.int64)
            scratch, done = self.searcher.scratch(wishes.k, wishes.beam), 0
            while done < len(indptr) - 1:
                done = answer_rows(
                    scratch.table_for(request), self.model.scoring, wishes, self._power, done,
                    indptr, features, x, labels[rows], scores[rows], counts[rows],
                )  # fmt: skip
                if done < len(indptr) - 1:
                    if counts[first + done] != NO_ROOM:
                        point = slice(indptr[done], indptr[done + 1])
                        where = f"point {first + done}: "
                        raise self._refused(int(counts[first + done]), features[point], x[point], where)
                    scratch = scratch.grown()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, n, _ROWS_PER_TASK)))
        return _rows(labels, scores, counts, self.model.n_labels)

    def _second_stage(
        self, points: Csr, options: Options, wishes: Wishes, request: Request, threads: int
    ) -> tuple[Csr, Floats]:
        """Tail re-ranking and calibration, on what the trees return; then the threshold and the k best by what they
        are worth, which is returned too."""
        alpha = self._alpha(options)
        wide = wishes._replace(threshold=0.0)
        if alpha < 1.0:  # it can lift a label from anywhere among those; by the paper's rule, what no tree reached is 0
            most = min(max(wishes.k, TREE_TOP * self.model.n_trees), self.model.n_labels)
            wide = wide._replace(k=most, complete=False)
        answers = self._search(points, wide, request, threads)
        if alpha < 1.0 and self.model.tail is not None:
            unit = transformed(points, self._power, self.model.feature_weight)
            answers = rerank(answers, unit, self.model.tail, alpha)
        if self.model.calibration is not None:
            answers = answers._replace(values=self.model.calibration.apply(answers.values))
        worth = answers.values
        if options.weights is not None:
            t, first = self.model.trie, answers.indices.astype(np.int64) * self.model.n_trees
            worth = worth * options.weights.edge[t.edge_ptr[t.label_leaf[first]] + t.label_position[first]]
        kept = best_of_rows(answers, np.where(answers.values >= wishes.threshold, worth, -1.0), wishes.k)
        return take_entries(answers, kept), worth[kept]


def _read_only(given: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
    """An array of this type that is never written to: one type for the compiler, wherever it comes from."""
    if isinstance(given, np.ndarray) and given.dtype == dtype and given.ndim == 1 and given.flags.c_contiguous:
        if not given.flags.writeable:
            return given
        array = given.view()
        array.flags.writeable = False
        return array
    array = np.asarray(given)
    if array.dtype != dtype:
        if array.size and np.issubdtype(dtype, np.integer):
            if not np.issubdtype(array.dtype, np.integer):
                raise DataError(f"feature ids must be whole numbers, got {array.dtype}")
            array = np.clip(array, -1, np.iinfo(dtype).max)  # out of range stays out of range
        array = array.astype(dtype)
    if array.ndim != 1:
        raise DataError(f"a point is two one-dimensional arrays, got {array.ndim} dimensions")
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


def _rows(labels: Int32s, scores: Floats, counts: Int64s, n_labels: int) -> Csr:
    """The filled part of [rows, k] answers as CSR, label ids rising."""
    indptr = np.concatenate([[0], np.cumsum(counts)])
    ids, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _by_label(labels, scores, indptr, ids, values)
    return Csr(indptr, ids, values, n_labels)


@kernel()
def _by_label(labels: Int32s, scores: Floats, indptr: Int64s, out_labels: Int32s, out_scores: Floats) -> None:
    for i in range(indptr.size - 1):
        n = indptr[i + 1] - indptr[i]
        order = np.argsort(labels[i, :n])
        for j in range(n):
            out_labels[indptr[i] + j], out_scores[indptr[i] + j] = labels[i, order[j]], scores[i, order[j]]
