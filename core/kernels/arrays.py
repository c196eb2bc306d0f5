"""The arrays that a search works on, by name.

A kernel is handed one table of addresses (core/kernels/memory.py) and takes out of it what it needs: passing tuples of
fifty arrays from kernel to kernel would cost more than the kernels do. `TYPES` is the order of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.jit import kernel
from core.kernels.memory import Table, address_table, view
from core.kernels.numbers import UInt64s
from core.sparse import Floats, Int32s, Int64s
from core.trie import Places, Trie, UInt32s


class Facts(NamedTuple):
    """What else is known of a model: [bytes of an entry], idf weights of the features."""

    numbers: Int64s
    feature_weight: Floats


class Request(NamedTuple):
    """Which labels an answer may hold, and what they are worth; empty arrays ask for nothing.

    exclude       labels that are not returned, ascending
    candidates    the only labels that are scored
    edge_weight   labels compete by score · weight of the leaf's edge that leads to them
    node_weight   the largest weight below a node
    """

    exclude: Int32s
    candidates: Int32s
    edge_weight: Floats
    node_weight: Floats


class Search(NamedTuple):
    """Buffers of a beam search.

    used [3]                how many slots, pool places and values are taken
    slot_node               head of the group
    slot_at, slot_len       its list in the pool
    slot_value              its edges' scores in `value`, -1 until evaluated
    slot_path               probability of the head; at leaves the factor of its labels' scores
    node_slot [nodes]       slot of a head, -1 if it has none
    pool_row, pool_x        rows of the features in the group's layer, and the point's values
    pool_start, pool_stop   the rows' entries, once fetched
    value                   scores of edges
    beam_*                  the nodes of a level, `beam` places for every tree; paths; their groups' slots
    beam_size [trees]       how many nodes a tree's beam holds
    next_*                  the children of one tree's beam
    next_worth              what they compete by, where nodes have weights
    chosen                  which of the children stay
    keys, work              their order, and room to select in
    leaves [trees + 1]      slots of the leaves in the beam of tree t: leaf[leaves[t]:leaves[t+1]]
    leaf
    """

    used: Int64s
    slot_node: Int32s
    slot_at: Int64s
    slot_len: Int64s
    slot_value: Int64s
    slot_path: Floats
    node_slot: Int32s
    pool_row: UInt32s
    pool_x: Floats
    pool_start: Int64s
    pool_stop: Int64s
    value: Floats
    beam_node: Int32s
    beam_path: Floats
    beam_slot: Int32s
    beam_size: Int64s
    next_node: Int32s
    next_path: Floats
    next_slot: Int32s
    next_worth: Floats
    chosen: Int32s
    keys: UInt64s
    work: UInt64s
    leaves: Int64s
    leaf: Int32s


class Ranking(NamedTuple):
    """Buffers of a ranking; heaps hold complemented keys, so their worst is first.

    leaf_heap           leaves to open, by path
    leaf_most           largest score · weight of a leaf's labels, -1 if it was not opened
    lane [T · lanes]    largest scores of parts of a tree's labels
    lane_key, lane_work room to select among them
    tree_least [T]      what k labels of a tree reach
    heap                the best labels by what the beams reached
    kept [k]            the best labels by their scores
    best [T]            probability of the best leaf of a tree
    """

    leaf_heap: UInt64s
    leaf_most: Floats
    lane: Floats
    lane_key: UInt64s
    lane_work: UInt64s
    tree_least: Floats
    heap: UInt64s
    kept: UInt64s
    best: Floats


_I1, _I4, _I8, _F4, _U4, _U8 = np.uint8, np.int32, np.int64, np.float32, np.uint32, np.uint64
TYPES: tuple[type, ...] = (
    *(_I8, _I1, _I1, _F4, _I8, _I4, _F4, _F4, _I8, _I8, _I8, _I8, _U4, np.uint16, _I4, np.uint16),  # Trie: 0
    *(_I4, _I4, _I4, _I4, _I4, _I4),  # Places: 16
    *(_I8, _F4),  # Facts: 22
    *(_I4, _I4, _F4, _F4),  # Request: 24
    *(_I8, _I4, _I8, _I8, _I8, _F4, _I4, _U4, _F4, _I8, _I8, _F4, _I4, _F4, _I4, _I8, _I4, _F4, _I4),  # Search: 28
    *(_F4, _I4, _U8, _U8, _I8, _I4),
    *(_U8, _F4, _F4, _U8, _U8, _F4, _U8, _U8, _F4),  # Ranking: 53
)

ENTRY = 13  # place of the entries


def table_of(arrays: Sequence[npt.NDArray[Any]]) -> Table:
    """The table of all arrays; the caller keeps them alive. Wide entries are handed over as pairs of 16 bits."""
    arrays = [array.view(np.uint16) if i == ENTRY else array for i, array in enumerate(arrays)]
    for array, kind in zip(arrays, TYPES, strict=True):
        assert array.dtype == kind, (array.dtype, kind)
    return address_table(arrays)


@kernel(inline=True)
def trie(a: Table) -> Trie:
    return Trie(
        view(a, 0, np.int64), view(a, 1, np.uint8), view(a, 2, np.uint8), view(a, 3, np.float32),
        view(a, 4, np.int64), view(a, 5, np.int32), view(a, 6, np.float32), view(a, 7, np.float32),
        view(a, 8, np.int64), view(a, 9, np.int64), view(a, 10, np.int64), view(a, 11, np.int64),
        view(a, 12, np.uint32), view(a, 13, np.uint16), view(a, 14, np.int32), view(a, 15, np.uint16),
    )  # fmt: skip


@kernel(inline=True)
def places(a: Table) -> Places:
    return Places(
        view(a, 16, np.int32), view(a, 17, np.int32), view(a, 18, np.int32),
        view(a, 19, np.int32), view(a, 20, np.int32), view(a, 21, np.int32),
    )  # fmt: skip


@kernel(inline=True)
def facts(a: Table) -> Facts:
    return Facts(view(a, 22, np.int64), view(a, 23, np.float32))


@kernel(inline=True)
def request(a: Table) -> Request:
    return Request(view(a, 24, np.int32), view(a, 25, np.int32), view(a, 26, np.float32), view(a, 27, np.float32))


@kernel(inline=True)
def search(a: Table) -> Search:
    return Search(
        view(a, 28, np.int64), view(a, 29, np.int32), view(a, 30, np.int64), view(a, 31, np.int64),
        view(a, 32, np.int64), view(a, 33, np.float32), view(a, 34, np.int32), view(a, 35, np.uint32),
        view(a, 36, np.float32), view(a, 37, np.int64), view(a, 38, np.int64), view(a, 39, np.float32),
        view(a, 40, np.int32), view(a, 41, np.float32), view(a, 42, np.int32), view(a, 43, np.int64),
        view(a, 44, np.int32), view(a, 45, np.float32), view(a, 46, np.int32), view(a, 47, np.float32),
        view(a, 48, np.int32), view(a, 49, np.uint64), view(a, 50, np.uint64), view(a, 51, np.int64),
        view(a, 52, np.int32),
    )  # fmt: skip


@kernel(inline=True)
def ranking(a: Table) -> Ranking:
    return Ranking(
        view(a, 53, np.uint64), view(a, 54, np.float32), view(a, 55, np.float32), view(a, 56, np.uint64),
        view(a, 57, np.uint64), view(a, 58, np.float32), view(a, 59, np.uint64), view(a, 60, np.uint64),
        view(a, 61, np.float32),
    )  # fmt: skip
