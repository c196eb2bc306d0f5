"""The best points of every label: labelwise inference over any number of points.

    block of points × tree            →  Reached: who comes to which leaf                     (kernels/labelwise.py)
    block of points × tree × subtree  →  Listed: every label's best points of its leaf
    block of points                   →  Best: pooled over trees, completed, put in order      (kernels/completion.py)
    all blocks                        →  Best: merged

A label lists, in every tree, its `top` best points among those that reach its leaf; the paper's rule, the mean over
trees with 0 for what is missing, chooses `top` of them; their scores are then completed in every tree, so that an
answer's score is the exact mean, the same that pointwise inference gives. A label at whose leaves no point was turned
away gets its exact answer. Quotas, ⌈F · N · frac⌉, are those of the block: N is its number of points. Ties are won by
the lower point id.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.errors import DataError, UsageError
from core.executors import Task, run_on_threads
from core.groups import Groups, group_major
from core.kernels.completion import Lists, best_of_pool, complete_tree, pool_lists, weigh_tree
from core.kernels.groups import new_spread, walk
from core.kernels.labelwise import (
    Best,
    Visits,
    collect,
    fill_lists,
    merge_best,
    routed_visits,
    visit_leaves,
    within_quota,
)
from core.model import Model
from core.scratch import Searcher, route
from core.sparse import Csr, Floats, Int64s, transformed

BLOCK = 1 << 17
MOST_POINTS = 10_000
_SAFE = np.float32(1.0 - 1e-5)  # lowers a threshold, so that rounding loses nothing


@dataclass(frozen=True, slots=True)
class Labelwise:
    """What is asked for.

    top       points per label
    factor    F: how many times its share of the training points a node may keep; the more, the nearer to exhaustive
    complete  scores are exact means; otherwise a pair that a tree does not list counts 0 there, as in the paper
    block     points that go down the trees together; quotas are by block
    """

    top: int = 10
    factor: float = 4.0
    complete: bool = True
    block: int = BLOCK

    def __post_init__(self) -> None:
        if not 1 <= self.top <= MOST_POINTS:
            raise UsageError(f"top must be between 1 and {MOST_POINTS}, got {self.top}")
        if not (self.factor > 0 and math.isfinite(self.factor)):
            raise UsageError(f"factor must be a number above 0, got {self.factor}")
        if self.block < 1:
            raise UsageError(f"block must be at least 1, got {self.block}")


class Reached(NamedTuple):
    """Who reaches which leaf of one tree in one block.

    best_leaf [points]      largest leaf probability of each point, 1 where the recipe does not ask for it
    visit_…                 who reached which leaf, with raw targets regardless of quotas: the arrays of `Visits`
    """

    best_leaf: Floats
    visit_ptr: Int64s
    visit_point: npt.NDArray[np.int32]
    visit_score: Floats

    @property
    def visits(self) -> Visits:
        return Visits(self.visit_ptr, self.visit_point, self.visit_score)


class Listed(NamedTuple):
    """What one tree finds in one block for the labels of some neighbouring leaves.

    labels                  their ids, ascending
    points, scores, counts  each label's list, as in `Best`
    covered                 quotas turned no point away on the path to the label's leaf
    """

    labels: npt.NDArray[np.int32]
    points: npt.NDArray[np.int32]
    scores: Floats
    counts: npt.NDArray[np.int32]
    covered: npt.NDArray[np.bool_]


class Found(NamedTuple):
    """What one tree finds in one block: as in `Listed`, for all labels, beside who reached which leaf."""

    points: npt.NDArray[np.int32]
    scores: Floats
    counts: npt.NDArray[np.int32]
    covered: npt.NDArray[np.bool_]
    best_leaf: Floats
    visits: Visits


OnProgress = Callable[[int, int], None]  # units done, units in all


class Prepared(NamedTuple):
    """A model with its trees by group, which is how labelwise inference walks through them."""

    model: Model
    trees: Groups
    searcher: Searcher


def prepared(model: Model, points: Csr) -> Prepared:
    """Refuse what the model cannot answer, then lay its trees out."""
    check_points(model, points)
    even = np.ones(model.n_features, np.float32)  # the points of a block are weighted already
    searcher = Searcher(model.trie, even)
    return Prepared(model, read_only(group_major(model.trie, searcher.places, model.n_features)), searcher)


def read_only(groups: Groups) -> Groups:
    """To Numba an array that may be written is of another type: kernels are compiled for mapped ones, once."""
    for array in groups:
        array.flags.writeable = False
    return groups


def check_points(model: Model, points: Csr) -> None:
    """Refuse what the model cannot answer."""
    if points.n_cols != model.n_features:
        raise DataError(f"the points have {points.n_cols} features, the model was trained on {model.n_features}")
    if points.n_rows == 0:
        raise DataError("there are no points to choose from")
    if float(model.manifest["params"]["alpha"]) < 1.0:
        raise UsageError("tail re-ranking is for pointwise inference: labelwise needs a model with alpha 1")


def n_blocks(asked: Labelwise, points: Csr) -> int:
    return -(-points.n_rows // asked.block)


def rows_of(asked: Labelwise, points: Csr, block: int) -> Csr:
    """The points of one block, ids counted from its first."""
    indptr = points.indptr[block * asked.block : (block + 1) * asked.block + 1]
    here = slice(indptr[0], indptr[-1])
    return Csr(indptr - indptr[0], points.indices[here], points.values[here], points.n_cols)


def as_known(model: Model, rows: Csr) -> Csr:
    """Points as the regressors know them."""
    return transformed(rows, model.manifest["params"]["recipe"]["value_power"], model.feature_weight)


def leaf_runs(ready: Prepared, tree: int, most: int) -> list[tuple[int, int]]:
    """Neighbouring leaves of a tree, from left to right, as runs of about `most` labels."""
    g = ready.trees
    leaves = walk(g, tree, ready.model.n_labels).leaf_node
    before = np.cumsum(g.edge_ptr[leaves + 1] - g.edge_ptr[leaves]) - 1
    bounds = [0, *(np.flatnonzero(np.diff(before // most)) + 1).tolist(), len(leaves)]
    return list(pairwise(bounds))


def reach(ready: Prepared, asked: Labelwise, tree: int, points: Csr) -> Reached:
    """Send a block of points down one tree."""
    model, g = ready.model, ready.trees
    way = walk(g, tree, model.n_labels)
    if model.scoring.conditional:
        visits = visit_leaves(g, tree, way.leaf_node, asked.factor, points, new_spread(g, points))
        return Reached(np.ones(points.n_rows, np.float32), *visits)
    beam = int(model.manifest["params"]["recipe"]["beam"])
    nodes, paths = route(ready.searcher, model.scoring, tree, beam, points)
    leaf_of_node = np.full(len(g.node_leaf), -1, np.int32)
    leaf_of_node[way.leaf_node] = np.arange(len(way.leaf_node))
    return Reached(paths[:, 0].copy(), *routed_visits(nodes, paths, leaf_of_node, len(way.leaf_node)))


def fill(
    ready: Prepared, asked: Labelwise, tree: int, points: Csr, reached: Reached, leaves: tuple[int, int]
) -> Listed:
    """The lists of the labels of some leaves of one tree over one block of points."""
    model, g = ready.model, ready.trees
    nodes = walk(g, tree, model.n_labels).leaf_node[slice(*leaves)]
    kept = Visits(reached.visit_ptr[leaves[0] : leaves[1] + 1], reached.visit_point, reached.visit_score)
    n_points = np.full(len(nodes), points.n_rows)
    if not model.scoring.conditional:  # else quotas were kept on the way
        n_points = np.diff(kept.ptr)
        kept = within_quota(g, nodes, asked.factor, points.n_rows, kept)
    edges = _edges_of(g, nodes)
    labels = np.sort(g.edge_target[edges])
    best = _no_points(len(labels), asked.top)
    numbered, label_points = g, model.label_points
    if len(labels) < model.n_labels:
        numbered, label_points = _renumbered(g, edges, labels), _frozen(label_points[labels])
    spread = new_spread(g, points)
    fill_lists(numbered, nodes, model.scoring, label_points, points, reached.best_leaf, kept, spread, best)
    covered = np.empty(len(labels), bool)
    turned_away = np.diff(kept.ptr) < n_points
    covered[numbered.edge_target[edges]] = ~np.repeat(turned_away, g.edge_ptr[nodes + 1] - g.edge_ptr[nodes])
    return Listed(labels, *best, covered)


def _edges_of(g: Groups, nodes: Int64s) -> Int64s:
    """The edges of some nodes, node after node."""
    first, n = g.edge_ptr[nodes], g.edge_ptr[nodes + 1] - g.edge_ptr[nodes]
    return np.asarray(np.arange(n.sum()) + np.repeat(first - np.cumsum(n) + n, n))


def _renumbered(g: Groups, edges: Int64s, labels: npt.NDArray[np.int32]) -> Groups:
    """The same trees with the labels of these edges numbered 0 … n−1: lists need room for them alone."""
    targets = g.edge_target.copy()
    targets[edges] = np.searchsorted(labels, targets[edges])
    return g._replace(edge_target=_frozen(targets))


def _frozen(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    array.flags.writeable = False
    return array


def join(n_labels: int, reached: Reached, parts: Sequence[Listed]) -> Found:
    """The parts of one tree as a whole."""
    if len(parts) == 1:
        return Found(*parts[0][1:], reached.best_leaf, reached.visits)
    best, covered = _no_points(n_labels, parts[0].points.shape[1]), np.empty(n_labels, bool)
    for part in parts:
        for whole, array in zip((*best, covered), part[1:], strict=True):
            whole[part.labels] = array
    return Found(*best, covered, reached.best_leaf, reached.visits)


def find(ready: Prepared, asked: Labelwise, tree: int, points: Csr) -> Found:
    """The lists of one tree over one block of points."""
    reached = reach(ready, asked, tree, points)
    n_leaves = len(reached.visit_ptr) - 1
    return join(ready.model.n_labels, reached, [fill(ready, asked, tree, points, reached, (0, n_leaves))])


def _no_points(n_labels: int, top: int) -> Best:
    return Best(
        np.zeros((n_labels, top), np.int32), np.zeros((n_labels, top), np.float32), np.zeros(n_labels, np.int32)
    )


def finish(ready: Prepared, asked: Labelwise, points: Csr, found: list[Found]) -> Best:
    """The best points of every label in one block, from what all trees found."""
    room = found[0].points.shape[1]
    count = np.stack([f.counts for f in found])
    start = np.arange(count.size).reshape(count.shape) * room
    ids, scores = (
        np.concatenate([part.ravel() for part in parts]) for parts in zip(*(f[:2] for f in found), strict=True)
    )
    lists = Lists(ids, scores, start, count)
    best = _complete(ready, asked, points, found, lists, asked.top)
    if asked.complete:
        covered = np.all([f.covered for f in found], axis=0) & (best.counts == asked.top)
        wanted = np.where(covered, best.scores[:, -1] * _SAFE, np.float32(np.inf))
        if covered.any():
            lists = _collected(ready, points, found, wanted)
            _replace(best, _complete(ready, asked, points, found, lists, points.n_rows))
    return best


def _complete(ready: Prepared, asked: Labelwise, points: Csr, found: list[Found], lists: Lists, most: int) -> Best:
    """Choose each label's `most` best pairs, complete them in every tree, keep the best."""
    model, g, _ = ready
    pool = pool_lists(lists, most, points.n_rows)
    if asked.complete:
        spread = new_spread(g, points)
        for tree, f in enumerate(found):
            way = walk(g, tree, model.n_labels)
            weigh_tree(g, tree, way, model.scoring, points, f.best_leaf, f.visits, pool)
            if model.scoring.conditional:  # otherwise the visits are all there is
                complete_tree(g, tree, way, model.scoring, points, f.best_leaf, pool, spread)
    best = _no_points(model.n_labels, asked.top)
    best_of_pool(pool, best)
    return best


def _collected(ready: Prepared, points: Csr, found: list[Found], wanted: Floats) -> Lists:
    """Lists without an end: all that reaches `wanted`. A pair whose mean does so reaches it in some tree."""
    model, g, _ = ready
    n_labels = model.n_labels
    spread = new_spread(g, points)
    parts, count = [], np.zeros((len(found), n_labels), np.int32)
    for tree, f in enumerate(found):
        way = walk(g, tree, n_labels)
        labels, ids, scores = collect(g, way.leaf_node, model.scoring, points, f.best_leaf, f.visits, wanted, spread)
        order = np.argsort(labels, kind="stable")
        parts.append((ids[order], scores[order]))
        count[tree] = np.bincount(labels, minlength=n_labels)
    start: Int64s = np.concatenate([[0], np.cumsum(count.ravel())[:-1]]).reshape(count.shape).astype(np.int64)
    return Lists(np.concatenate([p for p, _ in parts]), np.concatenate([s for _, s in parts]), start, count)


def _replace(best: Best, better: Best) -> None:
    """Take over the rows that were found anew."""
    anew = better.counts > 0
    for array, source in zip(best, better, strict=True):
        array[anew] = source[anew]


def merge(parts: Iterator[tuple[int, Best]]) -> Best:
    """The best of all blocks; each comes with the id of its first point."""
    start, best = next(parts)
    best = best._replace(points=best.points + np.int32(start))
    for start, more in parts:
        merge_best(more._replace(points=more.points + np.int32(start)), best)
    return best


def calibrated(model: Model, best: Best) -> Best:
    if model.calibration is None:
        return best
    return best._replace(scores=model.calibration.apply(best.scores))


def as_rows(best: Best, n_points: int) -> Csr:
    """Labels × points, ids rising within a label."""
    filled = np.arange(best.points.shape[1]) < best.counts[:, None]
    order = np.argsort(np.where(filled, best.points, n_points), axis=1, kind="stable")
    ids, scores = np.take_along_axis(best.points, order, 1), np.take_along_axis(best.scores, order, 1)
    return Csr(np.concatenate([[0], np.cumsum(best.counts)]).astype(np.int64), ids[filled], scores[filled], n_points)


def best_points(
    model: Model, points: Csr, asked: Labelwise, threads: int = 1, on_progress: OnProgress | None = None
) -> Best:
    """The best points of every label, in memory; scores in 0 … 1, times the model's scale in the caller's units."""
    ready, n_trees = prepared(model, points), model.n_trees
    parts = [as_known(model, rows_of(asked, points, block)) for block in range(n_blocks(asked, points))]
    found: dict[tuple[int, int], Found] = {}
    best: dict[int, Best] = {}

    def find_in(block: int, tree: int) -> None:
        found[block, tree] = find(ready, asked, tree, parts[block])

    def finish_block(block: int) -> None:
        lists = [found.pop((block, tree)) for tree in range(n_trees)]
        best[block] = finish(ready, asked, parts[block], lists)

    run_units(len(parts), n_trees, find_in, finish_block, threads, on_progress)
    return calibrated(model, merge((block * asked.block, best[block]) for block in range(len(parts))))


def run_units(
    n_blocks: int,
    n_trees: int,
    find_in: Callable[[int, int], None],
    finish_block: Callable[[int], None],
    threads: int,
    on_progress: OnProgress | None,
) -> None:
    """Run find_in(block, tree) for all, and finish_block(block) once all trees of a block are through."""
    lock, done, left = threading.Lock(), 0, [n_trees] * n_blocks

    def report() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, n_blocks * (n_trees + 1))

    def first(block: int, tree: int) -> list[Task]:
        find_in(block, tree)
        with lock:
            report()
            left[block] -= 1
            return [] if left[block] else [partial(second, block)]

    def second(block: int) -> list[Task]:
        finish_block(block)
        with lock:
            report()
        return []

    run_on_threads([partial(first, block, tree) for block in range(n_blocks) for tree in range(n_trees)], threads)
