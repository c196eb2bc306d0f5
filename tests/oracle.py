"""Plain references, written from the mathematics and sharing no code with what they check. Slow on purpose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Dense = npt.NDArray[np.float64]
Row = dict[int, float]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


# ---------------------------------------------------------------- search


def edge_margins(arrays: dict[str, Any], node: int, x: Row) -> list[float]:
    """bias + Σ w·x for every edge of a node, entry by entry."""
    a = arrays
    first, last = int(a["edge_ptr"][node]), int(a["edge_ptr"][node + 1])
    sums = [0.0] * (last - first)
    rows = range(int(a["row_ptr"][node]), int(a["row_ptr"][node + 1]))
    for row in rows:
        base = int(a["entry_ptr"][node])
        start = base + int(a["row_start"][row])
        stop = base + int(a["row_start"][row + 1]) if row + 1 in rows else int(a["entry_ptr"][node + 1])
        for entry in range(start, stop):
            sums[int(a["entry_edge"][entry])] += int(a["entry_weight"][entry]) * x.get(int(a["row_feature"][row]), 0.0)
    return [float(a["edge_bias"][first + e]) + float(a["edge_step"][first + e]) * s for e, s in enumerate(sums)]


def leaves_of_labels(arrays: dict[str, Any], tree: int) -> dict[int, tuple[list[tuple[int, int]], int, int]]:
    """For every label: the path of (node, edge) pairs from the root to its leaf, the leaf, its edge there."""
    found: dict[int, tuple[list[tuple[int, int]], int, int]] = {}
    todo: list[tuple[int, list[tuple[int, int]]]] = [(int(arrays["tree_ptr"][tree]), [])]
    while todo:
        node, path = todo.pop()
        first, last = int(arrays["edge_ptr"][node]), int(arrays["edge_ptr"][node + 1])
        for e, target in enumerate(arrays["edge_target"][first:last].tolist()):
            if arrays["node_leaf"][node]:
                found[target] = (path, node, e)
            else:
                todo.append((target, [*path, (node, e)]))
    return found


def beam_leaves(arrays: dict[str, Any], conditional: bool, x: Row, beam: int, tree: int) -> dict[int, float]:
    """The leaves that a beam search ends with, and their probabilities."""
    level = [(1.0, int(arrays["tree_ptr"][tree]))]
    while any(not arrays["node_leaf"][node] for _, node in level):
        below: list[tuple[float, int]] = []
        for score, node in level:
            if arrays["node_leaf"][node]:
                below.append((score, node))
                continue
            for e, margin in enumerate(edge_margins(arrays, node, x)):
                child = int(arrays["edge_target"][int(arrays["edge_ptr"][node]) + e])
                below.append((sigmoid(margin) * (score if conditional else 1.0), child))
        level = sorted(below, key=lambda pair: (-pair[0], pair[1]))[:beam]
    return {node: score for score, node in level}


def search(
    arrays: dict[str, Any], recipe: dict[str, Any], x: Row, beam: int, k: int, label_points: npt.NDArray[Any]
) -> list[tuple[int, float]]:
    """The k best labels of one transformed unit point, best first, by the definition of pointwise inference.

    With conditional targets the best by what the beams reached (k of them, 16 at least) are scored in every tree;
    without, a tree whose beam does not hold a label counts 0.
    """
    conditional, n_trees = recipe["target"] == "conditional", len(arrays["tree_ptr"]) - 1
    reached: dict[int, float] = {}
    everywhere: dict[int, float] = {}
    for tree in range(n_trees):
        leaves = beam_leaves(arrays, conditional, x, beam, tree)
        best = max(leaves.values())
        margins = {node: edge_margins(arrays, node, x) for node in range(len(arrays["node_leaf"]))}
        for label, (path, leaf, e) in leaves_of_labels(arrays, tree).items():
            margin = margins[leaf][e]
            own = min(max(margin, 0.0), 1.0) if recipe["leaf"]["loss"] == "ridge" else sigmoid(margin)
            if conditional:
                own *= math.prod(sigmoid(margins[node][edge]) for node, edge in path)
            elif leaf in leaves:
                own *= (leaves[leaf] / best) ** recipe["blend"]
            if label_points[label] == 0:
                continue
            everywhere[label] = everywhere.get(label, 0.0) + own / n_trees
            if leaf in leaves:
                reached[label] = reached.get(label, 0.0) + own / n_trees
    if conditional:
        candidates = sorted(reached, key=lambda label: (-reached[label], label))[: max(k, 16)]
        reached = {label: everywhere[label] for label in candidates}
    kept = [(label, score) for label, score in reached.items() if score > 0]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:k]


# ---------------------------------------------------------------- metrics


def best_ids(values: Dense, k: int) -> list[int]:
    """S(v, k) among the entries that are not 0."""
    order = sorted(np.flatnonzero(values), key=lambda i: (-values[i], i))
    return [int(i) for i in order[:k]]


def metrics(y: Dense, s: Dense, k: int) -> dict[str, float]:
    """All figures at k of dense truth and scores, as DESIGN defines them, one point at a time."""
    n = len(y)
    gain = ideal = discounted = ideal_discounted = hits = inversions = xmad = xrmse = regret = 0.0
    for truth, score in zip(y, s, strict=True):
        answer, best = best_ids(score, k), best_ids(truth, k)
        gain += sum(truth[i] for i in answer)
        ideal += sum(truth[i] for i in best)
        discounted += sum(truth[i] / math.log2(r + 2) for r, i in enumerate(answer))
        ideal_discounted += sum(truth[i] / math.log2(r + 2) for r, i in enumerate(best))
        hits += sum(truth[i] > 0 for i in answer)
        inversions += sum(
            truth[j] < truth[t] - 1e-6 and score[j] > score[t] + 1e-6 for j in answer for t in np.flatnonzero(truth)
        )
        errors = sorted(np.abs(score - truth), reverse=True)[:k]
        xmad += sum(errors) / k
        xrmse += math.sqrt(sum(e * e for e in errors) / k)
        regret += (sum(truth[i] for i in best) - sum(truth[i] for i in answer)) / k
    return {
        f"WP@{k}": 100 * gain / ideal,
        f"nDCG@{k}": 100 * discounted / ideal_discounted,
        f"P@{k}": 100 * hits / (n * k),
        f"Tau@{k}": 100 * (1 - inversions / (k * np.count_nonzero(y))),
        f"XMAD@{k}": xmad / n,
        f"XRMSE@{k}": xrmse / n,
        f"regret@{k}": regret / n,
        "MAD": float(np.abs(s - y).sum() / n),
    }


def auprc(y: Dense, s: Dense) -> float:
    """One threshold at a time, over every score that occurs."""
    area, recall_before = 0.0, 0.0
    for threshold in sorted(set(s[s > 0].tolist()), reverse=True):
        kept = s >= threshold
        precision, recall = float(y[kept].mean()), float((y[kept] > 0).sum() / (y > 0).sum())
        area += precision * (recall - recall_before)
        recall_before = recall
    return area


# ---------------------------------------------------------------- training


def objective(loss: str, x: Dense, z: Dense, c: Dense, w: Dense) -> float:
    """½‖w‖² + Σ c·loss for one edge; the last column of x is the constant 1."""
    m = x @ w
    if loss == "ridge":
        return float(0.5 * w @ w + 0.5 * c @ (z - m) ** 2)
    return float(0.5 * w @ w + c @ (z * np.logaddexp(0, -m) + (1 - z) * np.logaddexp(0, m)))


def gradient(loss: str, x: Dense, z: Dense, c: Dense, w: Dense) -> Dense:
    m = x @ w
    residual = m - z if loss == "ridge" else 1 / (1 + np.exp(-m)) - z
    return np.asarray(w + x.T @ (c * residual))


def node_targets(y: Dense, labels: list[list[int]], root: bool) -> tuple[list[int], Dense, Dense]:
    """Points, conditional targets and weights of a node whose edges lead to these groups of labels."""
    everything = [label for group in labels for label in group]
    m_node = np.ones(len(y)) if root else y[:, everything].max(axis=1)
    points = [i for i in range(len(y)) if m_node[i] > 0]
    z = np.array([[y[i, group].max() / m_node[i] for group in labels] for i in points])
    return points, z.reshape(len(points), len(labels)), m_node[points]


# ---------------------------------------------------------------- labelwise


def all_margins(arrays: dict[str, Any], node: int, x: Dense) -> Dense:
    """Margins of every point at every edge of a node, [points, edges], by a dense matrix of its weights."""
    a = arrays
    edges, rows = slice(a["edge_ptr"][node], a["edge_ptr"][node + 1]), slice(a["row_ptr"][node], a["row_ptr"][node + 1])
    entries = slice(a["entry_ptr"][node], a["entry_ptr"][node + 1])
    n_entries = entries.stop - entries.start
    features = np.repeat(a["row_feature"][rows], np.diff(a["row_start"][rows].astype(int), append=n_entries))
    weights = np.zeros((x.shape[1], edges.stop - edges.start))
    weights[features, a["entry_edge"][entries]] = a["entry_weight"][entries]
    return np.asarray(a["edge_bias"][edges] + a["edge_step"][edges].astype(float) * (x @ weights))


def _sigmoid(margins: Dense) -> Dense:
    return np.asarray(np.vectorize(sigmoid, otypes=[float])(margins))


class LabelwiseTree:
    """Leaf probabilities and label scores of dense pairs (point, label) in one tree, from the definition.

    x: transformed unit points, dense.
    """

    def __init__(self, arrays: dict[str, Any], recipe: dict[str, Any], tree: int, x: Dense) -> None:
        self.arrays, self.recipe, self.x = arrays, recipe, x
        self.conditional = recipe["target"] == "conditional"
        self.root = int(arrays["tree_ptr"][tree])
        self.node: dict[int, Dense] = {self.root: np.ones(len(x))}
        self.leaves: list[int] = []
        queue = [self.root]
        for node in queue:
            if arrays["node_leaf"][node]:
                self.leaves.append(node)
                continue
            own = _sigmoid(all_margins(arrays, node, x))
            for e, child in enumerate(self.targets(node)):
                self.node[child] = own[:, e] * self.node[node] if self.conditional else own[:, e]
                queue.append(child)
        self.beams = [self.beam(i) for i in range(len(x))]
        self.best = np.array([max(self.node[n][i] for n in beam) for i, beam in enumerate(self.beams)])

    def targets(self, node: int) -> list[int]:
        first, last = self.arrays["edge_ptr"][node], self.arrays["edge_ptr"][node + 1]
        return [int(t) for t in self.arrays["edge_target"][first:last]]

    def beam(self, i: int) -> list[int]:
        """The leaves that a beam search ends with."""
        level = [self.root]
        while any(not self.arrays["node_leaf"][node] for node in level):
            below = [c for n in level for c in ([n] if self.arrays["node_leaf"][n] else self.targets(n))]
            level = sorted(below, key=lambda n: (-self.node[n][i], n))[: self.recipe["beam"]]
        return level

    def label_scores(self, n_labels: int) -> Dense:
        """Every pair's score in this tree: [points, labels]. With raw targets a leaf outside a point's beam gives 0."""
        scores = np.zeros((len(self.x), n_labels))
        for leaf in self.leaves:
            inside = np.array([leaf in beam for beam in self.beams])
            raw = np.where(inside, (self.node[leaf] / self.best) ** self.recipe["blend"], 0.0)
            path = self.node[leaf] if self.conditional else raw
            margins = all_margins(self.arrays, leaf, self.x)
            own = np.clip(margins, 0, 1) if self.recipe["leaf"]["loss"] == "ridge" else _sigmoid(margins)
            scores[:, self.targets(leaf)] = own * path[:, None]
        return scores

    def points_of_leaves(self, factor: float) -> dict[int, list[int]]:
        """Who reaches which leaf, by quota; ties by lower id."""
        n = len(self.x)
        if not self.conditional:
            reach = {leaf: [i for i in range(n) if leaf in self.beams[i]] for leaf in self.leaves}
            return {
                leaf: sorted(ids, key=lambda i: (-self.node[leaf][i], i))[
                    : math.ceil(factor * n * float(self.arrays["node_frac"][leaf]))
                ]
                for leaf, ids in reach.items()
            }
        reach = {self.root: list(range(n))}
        for node in list(self.node):  # parents come first
            for child in [] if self.arrays["node_leaf"][node] else self.targets(node):
                quota = math.ceil(factor * n * float(self.arrays["node_frac"][child]))
                ranked = sorted(reach[node], key=lambda i: (-self.node[child][i], i))
                reach[child] = ranked[: min(quota, len(ranked))]
        return {leaf: reach[leaf] for leaf in self.leaves}


def ranked_points(score: dict[int, float], top: int) -> list[tuple[int, float]]:
    return sorted(((i, s) for i, s in score.items() if s > 0), key=lambda pair: (-pair[1], pair[0]))[:top]


def labelwise(
    trees: list[LabelwiseTree], label_points: npt.NDArray[Any], top: int, factor: float, complete: bool
) -> list[list[tuple[int, float]]]:
    """The best points of every label, best first."""
    n_labels, n = len(label_points), len(trees[0].x)
    scores = [tree.label_scores(n_labels) for tree in trees]
    mean = np.mean(scores, axis=0)
    reach = [tree.points_of_leaves(factor) for tree in trees]
    leaf_of = [{label: leaf for leaf in tree.leaves for label in tree.targets(leaf)} for tree in trees]
    answers: list[list[tuple[int, float]]] = []
    for label in range(n_labels):
        came = [reach[t][leaf_of[t][label]] for t in range(len(trees))]
        everyone = [n if t.conditional else sum(leaf_of[k][label] in b for b in t.beams) for k, t in enumerate(trees)]
        lists = [ranked_points({i: scores[t][i, label] for i in came[t]}, top) for t in range(len(trees))]
        total: dict[int, float] = {}
        for i, s in (pair for pairs in lists for pair in pairs):
            total[i] = total.get(i, 0.0) + s / len(trees)
        chosen = ranked_points(total, top)
        if label_points[label] == 0:
            chosen = []
        elif complete and [len(points) for points in came] == everyone:
            chosen = ranked_points(dict(enumerate(mean[:, label])), top)
        elif complete:
            chosen = ranked_points({i: mean[i, label] for i, _ in chosen}, top)
        answers.append(chosen)
    return answers
