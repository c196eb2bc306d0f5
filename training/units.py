"""Units of work: pure functions of files, so that any worker may run them, twice if need be.

    top       one per tree: grows it, fits its root, routes the training points to the root's children
    nodes     some neighbouring nodes of one stage: fits them
    route     one per further stage: sends the training points down all that is fitted

A *stage* holds nodes that can be fitted side by side. With routing it is a level, and the leaves are the last one: the
hard negatives of a node are known when all paths to it are. Without, all nodes below the root are one stage. Stages and
units depend on the data alone, never on who works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from training.fragments import Fitted, Fragment, join, together, upper_tree
from training.inputs import Inputs, open_centroids, shared_inputs
from training.nodes import Problem, fit_node
from training.params import Params
from training.partition import Shape, collapse, grow
from training.targets import Scratch, edge_mass, node_mass

T = TypeVar("T")

_UNITS_PER_STAGE = 16
_UNIT_LABELS = 4096

OnNode = Callable[[int], None]  # told the depth of each node that is done


class Routed(NamedTuple):
    """Training points that a tree sends to node n: points[ptr[n]:ptr[n+1]], ascending."""

    ptr: Int64s
    points: Int32s

    def at(self, node: int) -> Int32s:
        return self.points[self.ptr[node] : self.ptr[node + 1]]


class Top(NamedTuple):
    """A grown tree, its nodes above some stage fitted, its training points routed to that stage."""

    shape: Shape
    fragment: Fragment
    routed: Routed


def stages(shape: Shape, params: Params) -> list[Int64s]:
    """The nodes of every stage, by rising id; the root alone is the first."""
    inner = shape.child >= 0
    if params.recipe.routed:
        levels = [np.flatnonzero(inner & (shape.depth == depth)) for depth in np.unique(shape.depth[inner])]
        return [*levels, np.flatnonzero(~inner)]
    return [nodes for nodes in (np.arange(1), np.arange(1, shape.n_nodes)) if len(nodes)]


def node_costs(shape: Shape, label_points: Int32s) -> Int64s:
    """What fitting a node takes, roughly: its points times its edges. A point counts once per relevant label."""
    before = np.concatenate([[0], np.cumsum(label_points[shape.labels], dtype=np.int64)])
    edges = np.where(shape.child < 0, shape.last - shape.first, shape.n_children)
    return np.asarray((before[shape.last] - before[shape.first] + 1) * edges)


def runs_of(shape: Shape, nodes: Int64s, label_points: Int32s) -> list[Int64s]:
    """The nodes of a stage in runs of about the same cost, each a unit; the same whatever the number of workers."""
    costs = node_costs(shape, label_points)[nodes]
    n_units = max(_UNITS_PER_STAGE, -(-len(shape.labels) // _UNIT_LABELS))
    number = (np.cumsum(costs) - 1) * n_units // costs.sum()
    return np.split(nodes, np.flatnonzero(np.diff(number)) + 1)


def grow_tree(centroids: Path, params: Params, tree: int) -> Shape:
    """The shape of a tree; the label centroids in this directory stay mapped no longer than it grows."""
    return collapse(grow(open_centroids(centroids), params.max_leaf, params.seed, tree), params.recipe.widest)


def top_unit(tell: Tell, out: Path, inputs: Path, centroids: Path, params: Params, tree: int) -> None:
    """The unit `top` of a tree."""
    shape = grow_tree(centroids, params, tree)
    save_top(out, fit_top(shared_inputs(inputs), params, shape, tree, 1, lambda depth: tell(1, depth)))


def nodes_unit(tell: Tell, out: Path, inputs: Path, stage: Path, params: Params, tree: int, nodes: Int64s) -> None:
    """A unit `nodes` of a stage: `stage` is the tree's top, or what its unit `route` left."""
    shape, routed = load_shape(stage), load_routed(stage)
    done = fit_nodes(shared_inputs(inputs), params, shape, tree, routed, nodes, lambda depth: tell(1, depth))
    save_arrays(out, join(done)._asdict())


def route_unit(tell: Tell, out: Path, inputs: Path, top: Path, *given: Any) -> None:
    """The unit `route` of a stage. `given`: the units `nodes` of all stages before it, then the parameters."""
    *fitted, params = given
    shape = load_shape(top)
    upper = together([load_root(top), *(Fragment(**load_arrays(path)) for path in fitted)])
    routed = route(shared_inputs(inputs), params, shape, upper)
    save_arrays(out, _named("shape", shape) | _named("routed", routed))


def fit_top(inputs: Inputs, params: Params, shape: Shape, tree: int, n_stages: int, on_node: OnNode) -> Top:
    """Fit the first stages of a tree; each is trained on what those above send it."""
    routed, done = Routed(np.zeros(shape.n_nodes + 1, np.int64), np.empty(0, np.int32)), list[Fitted]()
    for nodes in stages(shape, params)[:n_stages]:
        done += fit_nodes(inputs, params, shape, tree, routed, nodes, on_node)
        if params.recipe.routed and shape.child[nodes[0]] >= 0:
            routed = route(inputs, params, shape, join(done))
    return Top(shape, join(done), routed)


def fit_nodes(
    inputs: Inputs, params: Params, shape: Shape, tree: int, routed: Routed, nodes: Int64s, on_node: OnNode
) -> list[Fitted]:
    """Fit some nodes of one stage."""
    scratch, done = Scratch(inputs.n_points), list[Fitted]()
    for node in nodes.tolist():
        done.append(_fit(inputs, params, shape, tree, node, routed.at(node), scratch))
        on_node(int(shape.depth[node]))
    return done


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
    save_arrays(path, _named("shape", top.shape) | _named("fragment", top.fragment) | _named("routed", top.routed))


def _named(part: str, values: Shape | Fragment | Routed) -> dict[str, npt.NDArray[Any]]:
    return {f"{part}.{name}": value for name, value in values._asdict().items()}


def load_shape(path: Path) -> Shape:
    """The shape alone: a unit `nodes` needs neither the root's regressors nor their memory."""
    return _load_part(path, Shape, "shape")


def load_root(path: Path) -> Fragment:
    return _load_part(path, Fragment, "fragment")


def load_routed(path: Path) -> Routed:
    return _load_part(path, Routed, "routed")


def _load_part(path: Path, kind: type[T], part: str) -> T:
    prefix = f"{part}."
    return kind(**{name.removeprefix(prefix): value for name, value in load_arrays(path, prefix).items()})
