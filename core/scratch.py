"""The buffers of searches: one set per thread, as large as its searches needed so far.

`Searcher` is a trie that searches can be run on: it puts the addresses of a model's arrays and of the calling thread's
buffers into one table (core/kernels/arrays.py). Kernels never allocate: they answer NO_ROOM, and `grow` makes room.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from core.kernels.arrays import Facts, Ranking, Request, Search, table_of
from core.kernels.memory import Table
from core.kernels.rank import COMPLETED, lanes_of
from core.kernels.routing import route_rows
from core.kernels.search import Scoring
from core.kernels.vectors import LANES
from core.sparse import Csr, Floats, Int32s
from core.trie import Places, Trie, padded, places_of

_REQUEST_AT = 2 * len(Trie._fields + Places._fields + Facts._fields)  # of the request's addresses in a table
NO_REQUEST = Request(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.float32))


class Searcher:
    """A trie with what a search needs beside it."""

    def __init__(self, trie: Trie, feature_weight: Floats) -> None:
        self.trie = trie
        self.places = places_of(trie)
        facts = Facts(np.array([trie.entry.itemsize], np.int64), feature_weight)
        self.arrays: list[npt.NDArray[Any]] = [*trie, *self.places, *facts, *NO_REQUEST]
        inner = np.diff(trie.edge_ptr)[trie.node_leaf == 0]
        self.most_children = int(inner.max(initial=1))
        self.most_edges = int(padded(int(self.places.n_edges.max())))
        self.most_nodes = int(np.diff(trie.tree_ptr).max())
        self._local = threading.local()

    def scratch(self, k: int, beam: int) -> Scratch:
        """The calling thread's buffers, large enough for k answers and this beam at least."""
        mine: Scratch | None = getattr(self._local, "scratch", None)
        if mine is None or mine.k < k or mine.beam < beam:
            k, beam = (k, beam) if mine is None else (max(k, mine.k), max(beam, mine.beam))
            mine = self._local.scratch = Scratch(self, k, beam, 1 if mine is None else mine.room)
        return mine


def route(searcher: Searcher, scoring: Scoring, tree: int, beam: int, points: Csr) -> tuple[Int32s, Floats]:
    """The leaves in the beam of every point in one tree, best first, and their probabilities: [points, beam]; -1 where
    a beam holds fewer. Points are unit rows in the model's features."""
    beam, done = min(beam, searcher.most_nodes), 0
    nodes, paths = np.full((points.n_rows, beam), -1, np.int32), np.zeros((points.n_rows, beam), np.float32)
    scratch = searcher.scratch(1, beam)
    while done < points.n_rows:
        done = route_rows(scratch.table, scoring, tree, beam, done, *points[:3], nodes, paths)
        scratch = scratch if done == points.n_rows else scratch.grown()
    return nodes, paths


class Scratch:
    """The buffers of one thread, and the table of all arrays that its searches use."""

    def __init__(self, searcher: Searcher, k: int, beam: int, room: int) -> None:
        self.k, self.beam, self.room = k, beam, room
        self._searcher = ref(searcher)  # which holds this: without a cycle a model's mapping ends with its last user
        best = max(k, COMPLETED)
        lanes = lanes_of(best)
        trees, n_nodes = searcher.trie.n_trees, len(searcher.trie.node_leaf)
        slots = min(trees * (2 + 4 * beam) * room, n_nodes)
        pool = 64 * slots * room
        children = min(beam * searcher.most_children, searcher.most_nodes) + beam + LANES
        search = {
            "used": (3, np.int64),
            "slot_node": (slots, np.int32),
            "slot_at": (slots, np.int64),
            "slot_len": (slots, np.int64),
            "slot_value": (slots, np.int64),
            "slot_path": (slots, np.float32),
            "node_slot": (n_nodes, np.int32),
            "pool_row": (pool, np.uint32),
            "pool_x": (pool, np.float32),
            "pool_start": (pool, np.int64),
            "pool_stop": (pool, np.int64),
            "value": (slots * searcher.most_edges, np.float32),
            "beam_node": (trees * beam, np.int32),
            "beam_path": (trees * beam, np.float32),
            "beam_slot": (trees * beam, np.int32),
            "beam_size": (trees, np.int64),
            "next_node": (children, np.int32),
            "next_path": (children, np.float32),
            "next_slot": (children, np.int32),
            "next_worth": (children, np.float32),
            "chosen": (children, np.int32),
            "keys": (children, np.uint64),
            "work": (children, np.uint64),
            "leaves": (trees + 1, np.int64),
            "leaf": (trees * beam, np.int32),
        }
        ranking = {
            "leaf_heap": (trees * beam, np.uint64),
            "leaf_most": (trees * beam, np.float32),
            "lane": (trees * lanes, np.float32),
            "lane_key": (lanes, np.uint64),
            "lane_work": (lanes, np.uint64),
            "tree_least": (trees, np.float32),
            "heap": (best, np.uint64),
            "kept": (k, np.uint64),
            "best": (trees, np.float32),
        }
        # np.zeros maps pages as they are used, so room that no search needed costs nothing.
        buffers = Search(**{name: np.zeros(*about) for name, about in search.items()})
        buffers.node_slot[:] = -1
        self.arrays = [*searcher.arrays, *buffers, *Ranking(**{n: np.zeros(*about) for n, about in ranking.items()})]
        self.table = table_of(self.arrays)

    def grown(self) -> Scratch:
        """Larger buffers for the same thread."""
        searcher = self._searcher()
        assert searcher is not None  # whoever searches holds it
        larger = searcher._local.scratch = Scratch(searcher, self.k, self.beam, 2 * self.room)
        return larger

    def table_for(self, request: Request) -> Table:
        """The table with a request in it; the caller keeps the request's arrays alive."""
        if request is NO_REQUEST:
            return self.table
        table = self.table.copy()
        for i, array in enumerate(request):
            table[_REQUEST_AT + 2 * i] = array.ctypes.data
            table[_REQUEST_AT + 2 * i + 1] = array.size
        return table
