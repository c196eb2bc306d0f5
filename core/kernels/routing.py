"""Many points sent down one tree, as a search would send them.

Training takes a leaf's hard negatives from it; labelwise inference with raw targets asks it who may score at a leaf.
"""

from __future__ import annotations

from core.jit import kernel
from core.kernels.arrays import search
from core.kernels.memory import Table
from core.kernels.numbers import key, key_number, key_score
from core.kernels.pointwise import NO_ROOM, start, take_point
from core.kernels.search import Scoring, descend, forget
from core.sparse import Floats, Int32s, Int64s


@kernel()
def route_rows(
    a: Table, scoring: Scoring, tree: int, beam: int, first: int,
    indptr: Int64s, indices: Int32s, values: Floats, nodes: Int32s, paths: Floats,
) -> int:  # fmt: skip
    """The beam's leaves in one tree for every row from `first` on, best first: nodes, paths [rows, beam], -1 beyond.

    Rows are unit vectors already. Returns the rows that are done; fewer than there are where a buffer is too small.
    """
    for i in range(first, indptr.size - 1):
        row = slice(indptr[i], indptr[i + 1])
        n = take_point(a, indices[row], values[row], 1.0)
        if n >= 0:
            n = _route(a, scoring, tree, beam, n, nodes[i], paths[i])
        forget(a)
        if n < 0:
            return i
    return indptr.size - 1


@kernel()
def _route(a: Table, scoring: Scoring, tree: int, beam: int, n: int, nodes: Int32s, paths: Floats) -> int:
    s = search(a)
    if not start(a, scoring, n, tree, 1) or not descend(a, scoring, 1, beam):
        return NO_ROOM
    n_leaves = s.leaves[1]
    for b in range(n_leaves):
        slot = s.leaf[b]
        s.work[b] = ~key(s.slot_path[slot], s.slot_node[slot])
    s.work[:n_leaves].sort()
    for b in range(n_leaves):
        nodes[b], paths[b] = key_number(~s.work[b]), key_score(~s.work[b])
    return n_leaves
