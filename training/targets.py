"""The graded relevance of every edge.

m_in = the largest relevance of point i among the labels under node n. With *conditional* targets an edge n → c learns
z = m_ic / m_in with weight s = m_in over the points with m_in > 0; with *raw* targets it learns m_ic itself, with
weight 1. At the root m := 1, so there the two are the same thing.
"""

from __future__ import annotations

import numpy as np

from core.jit import kernel
from core.sparse import Csr, Floats, Int32s, Int64s


class Scratch:
    """Buffers of one worker, as long as there are points; all zero (or -1) between uses."""

    def __init__(self, n_points: int) -> None:
        self.mass = np.zeros(n_points, np.float32)
        self.position = np.full(n_points, -1, np.int64)


def node_mass(by_label: Csr, labels: Int32s, scratch: Scratch) -> tuple[Int64s, Floats]:
    """I_n and m_in: the points with a relevant label among `labels`, ascending, and their largest relevance."""
    room = int((by_label.indptr[labels + 1] - by_label.indptr[labels]).sum())
    points, mass = np.empty(room, np.int64), np.empty(room, np.float32)
    n = _node_mass(*by_label[:3], labels, scratch.mass, points, mass)
    return points[:n], mass[:n]


@kernel()
def _node_mass(
    indptr: Int64s, indices: Int32s, values: Floats, labels: Int32s, largest: Floats, points: Int64s, mass: Floats
) -> int:
    n = 0
    for label in labels:
        for j in range(indptr[label], indptr[label + 1]):
            i = indices[j]
            if largest[i] == 0.0:
                points[n] = i
                n += 1
            largest[i] = max(largest[i], values[j])
    points[:n].sort()
    for k in range(n):
        mass[k] = largest[points[k]]
        largest[points[k]] = 0.0
    return n


def edge_mass(by_label: Csr, labels: Int32s, bounds: Int64s, points: Int64s, scratch: Scratch, mass: Floats) -> None:
    """mass[points, edges or more], all 0, becomes m_ic: edge e leads to labels[bounds[e]:bounds[e+1]]."""
    _edge_mass(*by_label[:3], labels, bounds, points, scratch.position, mass)


@kernel()
def _edge_mass(
    indptr: Int64s,
    indices: Int32s,
    values: Floats,
    labels: Int32s,
    bounds: Int64s,
    points: Int64s,
    position: Int64s,
    mass: Floats,
) -> None:
    for k in range(points.size):
        position[points[k]] = k
    for e in range(bounds.size - 1):
        for b in range(bounds[e], bounds[e + 1]):
            for j in range(indptr[labels[b]], indptr[labels[b] + 1]):
                k = position[indices[j]]
                if k >= 0:
                    mass[k, e] = max(mass[k, e], values[j])
    for k in range(points.size):
        position[points[k]] = -1
