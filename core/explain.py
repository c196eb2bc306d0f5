"""Why this label? Its path in every tree, the probability at each edge, and the features that pushed it.

Slow and plain on purpose: it reads the same rows as a search, in Python, and adds up in 64 bits, so that what it shows
adds up exactly.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from core.errors import UsageError
from core.model import Model
from core.sparse import Csr, transformed
from core.trie import Places, Trie, padded, places_of, row_stride


class Step(NamedTuple):
    """One edge on the way to a label.

    node            where the edge begins
    bias            what the constant feature pushes
    contributions   (feature, weight · x) of the point's features that the edge knows, the strongest first
    logit           bias + the sum of the contributions, exactly
    probability     σ(logit), or the clipped logit at ridge leaves
    """

    node: int
    bias: float
    contributions: tuple[tuple[int, float], ...]
    logit: float
    probability: float


class Explanation(NamedTuple):
    """A label's score and how it came about: one path per tree, from the root's edge to the label's own.

    factors   what each tree's path makes of the label's own probability: the product of the edges before it, or with
              raw targets (probability of the leaf / that of the best leaf)^blend
    score     mean over trees of factor · own probability
    """

    label: int
    score: float
    paths: tuple[tuple[Step, ...], ...]
    factors: tuple[float, ...]


def explain(model: Model, point: Csr, label: int) -> Explanation:
    """Why `label` has its score for the one row of `point`."""
    if not 0 <= label < model.n_labels:
        raise UsageError(f"label {label} is not in 0 … {model.n_labels - 1}")
    t, p = model.trie, places_of(model.trie)
    unit = transformed(point, float(model.manifest["params"]["recipe"]["value_power"]), model.feature_weight)
    x = dict(zip(unit.indices.tolist(), unit.values.tolist(), strict=True))
    paths, factors = [], []
    for tree in range(t.n_trees):
        leaf = int(t.label_leaf[label * t.n_trees + tree])
        edges = [*_edges_to(t, p, leaf), int(t.edge_ptr[leaf] + t.label_position[label * t.n_trees + tree])]
        path = tuple(_step(model, p, x, edge, last=edge == edges[-1]) for edge in edges)
        paths.append(path)
        factors.append(_factor(model, p, x, tree, path[:-1]))
    score = sum(factor * path[-1].probability for factor, path in zip(factors, paths, strict=True)) / t.n_trees
    return Explanation(label, score, tuple(paths), tuple(factors))


def _edges_to(t: Trie, p: Places, node: int) -> list[int]:
    """The edges from the root to a node."""
    edges: list[int] = []
    while p.parent[node] >= 0:
        edges.insert(0, int(p.parent_edge[node]))
        node = int(p.parent[node])
    return edges


def _step(model: Model, p: Places, x: dict[int, float], edge: int, last: bool) -> Step:
    t = model.trie
    node = int(np.searchsorted(t.edge_ptr, edge, side="right")) - 1
    head = int(p.head[node])
    number, step, bias = edge - int(t.edge_ptr[head]), float(t.edge_step[edge]), float(t.edge_bias[edge])
    pushes = [(f, step * _weight(t, p, head, f, number) * value) for f, value in x.items()]
    known = tuple(sorted((push for push in pushes if push[1] != 0), key=lambda push: (-abs(push[1]), push[0])))
    logit = math.fsum([bias, *(push for _, push in known)])
    ridge = last and model.scoring.ridge_leaves
    return Step(node, bias, known, logit, min(max(logit, 0.0), 1.0) if ridge else _sigmoid(logit))


def _weight(t: Trie, p: Places, head: int, feature: int, number: int) -> int:
    """The stored weight of a feature at an edge of a group, 0 where it has none: down the trie, row by row."""
    groups = [head]
    while p.parent[groups[0]] >= 0:
        groups.insert(0, int(p.head[p.parent[groups[0]]]))
    row = feature
    for above, below in pairwise(groups):
        at = _place(t, p, above, row)
        way = int(p.way[below])
        first_below, mask = (int(number) for number in t.row[at + 1 + 2 * (way >> 5) :][:2])
        if not mask >> (way & 31) & 1:
            return 0
        row = first_below + (mask & ((1 << (way & 31)) - 1)).bit_count()
    at, first = _place(t, p, head, row), int(t.layer_entry[p.layer[head]])
    start, stop = int(t.row[at]), int(t.row[at + row_stride(int(t.layer_words[p.layer[head]]))])
    entries = t.entry[first + start : first + stop]
    if len(entries) == padded(int(p.n_edges[head])) // t.entry.itemsize:
        return int(entries.view(np.int8)[number])
    return next((int(np.uint8(e & 255).view(np.int8)) for e in entries.tolist() if e >> 8 == number), 0)


def _place(t: Trie, p: Places, head: int, row: int) -> int:
    layer = int(p.layer[head])
    return int(t.layer_row[layer]) + row * int(row_stride(int(t.layer_words[layer])))


def _factor(model: Model, p: Places, x: dict[int, float], tree: int, path: tuple[Step, ...]) -> float:
    if model.scoring.conditional:
        return math.prod(step.probability for step in path)
    if not path:
        return 1.0
    best = _best_leaf(model, p, x, tree)
    return float(min(path[-1].probability / best, 1.0) ** model.scoring.blend) if best > 0 else 1.0


def _best_leaf(model: Model, p: Places, x: dict[int, float], tree: int) -> float:
    """Probability of the best leaf in the recipe's beam; with raw targets a node's is its own edge's."""
    t, beam = model.trie, int(model.manifest["params"]["recipe"]["beam"])
    level = [(1.0, int(t.tree_ptr[tree]))]
    while any(not t.node_leaf[node] for _, node in level):
        below: list[tuple[float, int]] = []
        for score, node in level:
            if t.node_leaf[node]:
                below.append((score, node))
                continue
            for edge in range(int(t.edge_ptr[node]), int(t.edge_ptr[node + 1])):
                below.append((_step(model, p, x, edge, last=False).probability, int(t.edge_target[edge])))
        level = sorted(below, key=lambda pair: (-pair[0], pair[1]))[:beam]
    return max(score for score, _ in level)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
