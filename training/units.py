"""Units of work: pure functions of files, so that any worker may run them, twice if need be.

    top       one per tree: grows it, fits the nodes above the cut, routes the training points
    subtrees  some neighbouring subtrees below the cut: fits all their nodes

The paper's binary trees are cut at the depth that makes the longest chain of work, a top and one subtree after it, the
shortest. With routed leaves every inner node belongs to the top, since a leaf's hard negatives are known only when all
paths to it are. The cut depends on the data alone, never on who works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from core.executors import Tell
from core.jit import kernel
from core.kernels.search import Scoring
from core.scratch import Searcher
from core.scratch import route as send
from core.sparse import Floats, Int32s, Int64s
from core.trie_build import build
from core.work import load_arrays, save_arrays
from training.fragments import Fitted, Fragment, join, upper_tree
from training.inputs import Inputs, open_centroids, shared_inputs
from training.nodes import Problem, fit_node
from training.params import Params
from training.partition import Shape, collapse, grow
from training.targets import Scratch, edge_mass, node_mass

T = TypeVar("T")

_UNITS_PER_TREE = 16
_UNIT_LABELS = 4096

OnNode = Callable[[int], None]  # told the depth of each node that is done


class Routed(NamedTuple):
    """Training points that a tree sends to node n: points[ptr[n]:ptr[n+1]], ascending."""

    ptr: Int64s
    points: Int32s

    def at(self, node: int) -> Int32s:
        return self.points[self.ptr[node] : self.ptr[node + 1]]


class Top(NamedTuple):
    """A grown tree, its upper nodes fitted, its training points routed."""

    shape: Shape
    fragment: Fragment
    routed: Routed


def node_costs(shape: Shape, label_points: Int32s) -> Int64s:
    """What fitting a node takes, roughly: its points times its edges. A point counts once per relevant label."""
    before = np.concatenate([[0], np.cumsum(label_points[shape.labels], dtype=np.int64)])
    edges = np.where(shape.child < 0, shape.last - shape.first, shape.n_children)
    return np.asarray((before[shape.last] - before[shape.first] + 1) * edges)


def _subtree_costs(shape: Shape, costs: Int64s) -> Int64s:
    """The cost of a node and all that is below it; nodes are numbered breadth-first, so children come last."""
    whole = costs.copy()
    for node in np.flatnonzero(shape.child >= 0)[::-1].tolist():
        child = shape.child[node]
        whole[node] += whole[child : child + shape.n_children[node]].sum()
    return whole


def subtree_roots(shape: Shape, params: Params, label_points: Int32s) -> Int64s:
    """The nodes at the cut: at a depth, or all leaves where leaves are routed to."""
    leaf = shape.child < 0
    if params.recipe.routed:
        return np.flatnonzero(leaf)
    costs = node_costs(shape, label_points)
    whole, depths = _subtree_costs(shape, costs), np.arange(1, shape.depth.max() + 1)
    chains = [costs[(shape.depth < d) & ~leaf].sum() + whole[(shape.depth == d) | leaf].max() for d in depths]
    cut = int(depths[np.argmin(chains)]) if len(depths) else 0
    return np.flatnonzero((shape.depth == cut) | (leaf & (shape.depth < cut)))


def subtree_groups(shape: Shape, params: Params, label_points: Int32s) -> list[Int64s]:
    """Runs of neighbouring subtrees of about the same cost, each a unit; the same whatever the number of workers."""
    roots = subtree_roots(shape, params, label_points)
    costs = _subtree_costs(shape, node_costs(shape, label_points))[roots]
    n_units = max(_UNITS_PER_TREE, -(-len(shape.labels) // _UNIT_LABELS))
    number = (np.cumsum(costs) - 1) * n_units // costs.sum()
    return np.split(roots, np.flatnonzero(np.diff(number)) + 1)


def grow_tree(centroids: Path, params: Params, tree: int) -> Shape:
    """The shape of a tree; the label centroids in this directory stay mapped no longer than it grows."""
    return collapse(grow(open_centroids(centroids), params.max_leaf, params.seed, tree), params.recipe.widest)


def top_unit(tell: Tell, out: Path, inputs: Path, centroids: Path, params: Params, tree: int) -> None:
    """The unit `top` of a tree."""
    shape = grow_tree(centroids, params, tree)
    save_top(out, fit_top(shared_inputs(inputs), params, shape, tree, lambda depth: tell(1, depth)))


def subtrees_unit(tell: Tell, out: Path, inputs: Path, top: Path, params: Params, tree: int, roots: Int64s) -> None:
    """A unit `subtrees` of a tree whose top is there."""
    shape, routed = load_shape(top), load_routed(top)
    fragment = fit_subtrees(shared_inputs(inputs), params, shape, tree, routed, roots, lambda depth: tell(1, depth))
    save_arrays(out, fragment._asdict())


def fit_top(inputs: Inputs, params: Params, shape: Shape, tree: int, on_node: OnNode) -> Top:
    """Fit the nodes of a tree above the cut, level by level; each is trained on what those above send it."""
    cut = subtree_roots(shape, params, inputs.label_points)
    above = np.setdiff1d(np.flatnonzero(shape.depth <= shape.depth[cut].max()), cut)
    above = above[shape.child[above] >= 0]
    routed = Routed(np.zeros(shape.n_nodes + 1, np.int64), np.empty(0, np.int32))
    scratch, done = Scratch(inputs.n_points), list[Fitted]()
    for depth in np.unique(shape.depth[above]):
        for node in above[shape.depth[above] == depth].tolist():
            done.append(_fit(inputs, params, shape, tree, node, routed.at(node), scratch))
            on_node(int(depth))
        if params.recipe.routed:
            routed = route(inputs, params, shape, join(done))
    return Top(shape, join(done), routed)


def fit_subtrees(
    inputs: Inputs, params: Params, shape: Shape, tree: int, routed: Routed, roots: Int64s, on_node: OnNode
) -> Fragment:
    """Fit every node of some subtrees."""
    scratch, done, nodes = Scratch(inputs.n_points), list[Fitted](), roots.tolist()
    for node in nodes:
        done.append(_fit(inputs, params, shape, tree, node, routed.at(node), scratch))
        on_node(int(shape.depth[node]))
        child = int(shape.child[node])
        nodes += range(child, child + int(shape.n_children[node])) if child >= 0 else []
    return join(done)


def _fit(
    inputs: Inputs, params: Params, shape: Shape, tree: int, node: int, routed: Int32s, scratch: Scratch
) -> Fitted:
    """The regressions of one node: its points, their targets and costs (training/targets.py), solved and packed."""
    recipe, labels = params.recipe, shape.labels
    leaf = shape.child[node] < 0
    mine = labels[shape.first[node] : shape.last[node]]
    if node == 0:  # at the root m := 1, for points without labels too
        points, mass = np.arange(inputs.n_points), np.ones(inputs.n_points, np.float32)
    else:
        points, mass = node_mass(inputs.by_label, mine, scratch)
    frac = len(points) / inputs.n_points
    if len(routed) and node != 0:
        points = np.union1d(points, routed)
    bounds = _edge_bounds(shape, node)

    def targets(first: int, last: int, z: Floats) -> None:
        edge_mass(inputs.by_label, labels, bounds[first : last + 1], points, scratch, z)
        if recipe.target == "conditional":
            z /= mass[:, None]

    how = recipe.leaf if leaf else recipe.route
    if recipe.target == "conditional":
        costs = mass * np.float32(how.cost * inputs.n_points / mass.sum(dtype=np.float64)) if len(mass) else mass
    else:
        costs = np.full(len(points), how.cost, np.float32)
    state = np.random.SeedSequence([params.seed, tree, int(shape.key[node])]).generate_state(1, np.uint64)
    block = fit_node(
        inputs.features, points, Problem(len(bounds) - 1, targets), costs, how, recipe, int(state[0] >> np.uint64(2))
    )
    return Fitted(node, block, frac)


def _edge_bounds(shape: Shape, node: int) -> Int64s:
    """Edge e of a node leads to the labels at bounds[e]:bounds[e+1] of the tree's order."""
    child = shape.child[node]
    if child < 0:
        return np.arange(shape.first[node], shape.last[node] + 1)
    return np.append(shape.first[child : child + shape.n_children[node]], shape.last[node])


def route(inputs: Inputs, params: Params, shape: Shape, upper: Fragment) -> Routed:
    """Send every training point down the fitted levels, as a search would: to the best leaves, or with the whole beam
    to the inner nodes of the next level."""
    recipe = params.recipe
    trie, order = build(upper_tree(shape, upper), inputs.features.n_cols, 0)
    searcher = Searcher(trie, np.ones(inputs.features.n_cols, np.float32))
    scoring = Scoring(recipe.target == "conditional", False, 0.0)
    nodes, _ = send(searcher, scoring, 0, max(recipe.beam, recipe.routed), inputs.features)
    _renumber(order, nodes)
    ptr = np.zeros(shape.n_nodes + 1, np.int64)
    _count(nodes, shape.child, recipe.routed, ptr)
    np.cumsum(ptr, out=ptr)
    points = np.empty(ptr[-1], np.int32)
    _group(nodes, shape.child, recipe.routed, ptr[:-1].copy(), points)
    return Routed(ptr, points)


@kernel()
def _renumber(order: Int64s, nodes: Int32s) -> None:
    """Nodes of the trie become those of the tree it was made from."""
    for i in range(nodes.shape[0]):
        for rank in range(nodes.shape[1]):
            if nodes[i, rank] >= 0:
                nodes[i, rank] = order[nodes[i, rank]]


@kernel()
def _count(nodes: Int32s, child: Int64s, routed: int, ptr: Int64s) -> None:
    """Points that go to node n, in ptr[n + 1]: a leaf takes those that have it among their `routed` best."""
    for i in range(nodes.shape[0]):
        for rank in range(nodes.shape[1]):
            node = nodes[i, rank]
            if node >= 0 and (child[node] >= 0 or rank < routed):
                ptr[node + 1] += 1


@kernel()
def _group(nodes: Int32s, child: Int64s, routed: int, cursor: Int64s, points: Int32s) -> None:
    for i in range(nodes.shape[0]):
        for rank in range(nodes.shape[1]):
            node = nodes[i, rank]
            if node >= 0 and (child[node] >= 0 or rank < routed):
                points[cursor[node]] = i
                cursor[node] += 1


def save_top(path: Path, top: Top) -> None:
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for part, values in top._asdict().items():
        arrays |= {f"{part}.{name}": value for name, value in values._asdict().items()}
    save_arrays(path, arrays)


def load_top(path: Path) -> Top:
    return Top(load_shape(path), _load_part(path, Fragment, "fragment"), load_routed(path))


def load_shape(path: Path) -> Shape:
    """The shape alone: a unit below the top needs neither its regressors nor their memory."""
    return _load_part(path, Shape, "shape")


def load_routed(path: Path) -> Routed:
    return _load_part(path, Routed, "routed")


def _load_part(path: Path, kind: type[T], part: str) -> T:
    prefix = f"{part}."
    return kind(**{name.removeprefix(prefix): value for name, value in load_arrays(path, prefix).items()})
