"""Training points sent down a tree, as a search would send them: where a leaf's hard negatives come from."""

from __future__ import annotations

from core.jit import kernel
from core.kernels.arrays import search
from core.kernels.memory import Table
from core.kernels.numbers import key, key_number
from core.kernels.pointwise import NO_ROOM, start, take_point
from core.kernels.search import Scoring, descend, forget
from core.sparse import Floats, Int32s, Int64s


@kernel()
def route_rows(
    a: Table, scoring: Scoring, beam: int, first: int, indptr: Int64s, indices: Int32s, values: Floats, nodes: Int32s
) -> int:
    """The beam's leaves for every row from `first` on in the first tree, best first: nodes [rows, beam], -1 beyond.

    Returns the rows that are done; fewer than there are where a buffer is too small.
    """
    for i in range(first, indptr.size - 1):
        row = slice(indptr[i], indptr[i + 1])
        n = take_point(a, indices[row], values[row], 1.0)
        if n >= 0:
            n = _route(a, scoring, beam, n, nodes[i])
        forget(a)
        if n < 0:
            return i
    return indptr.size - 1


@kernel()
def _route(a: Table, scoring: Scoring, beam: int, n: int, nodes: Int32s) -> int:
    s = search(a)
    if not start(a, scoring, n, 1) or not descend(a, scoring, 1, beam):
        return NO_ROOM
    n_leaves = s.leaves[1]
    for b in range(n_leaves):
        slot = s.leaf[b]
        s.work[b] = ~key(s.slot_path[slot], s.slot_node[slot])
    s.work[:n_leaves].sort()
    for b in range(n_leaves):
        nodes[b] = key_number(~s.work[b])
    return n_leaves
