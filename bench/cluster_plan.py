"""What a market of 10M ads × 5M queries takes: `python bench/cluster_plan.py MEASURED.json`.

Computed, not run: the CPU of units that `bench/cluster.py --json MEASURED.json` measured, scaled, and put on 8, 32 and
128 cores, each unit on the core that is free first. How costs are scaled:

    top        per training point and regressor it trains: all of the root's, and those of a beam of nodes below
    subtrees   per training point: the leaves it is relevant in and those it is sent to, whatever the number of labels
    reach      per ad and regressor it meets, as for a top
    lists      per entry of a list, queries × ads per query, in every block and tree
    answer     per entry of a list, in every block

The last three are shares of what one unit of a whole block took: SHARES, from units measured one by one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np

from training.params import ROUTED, Params
from training.partition import collapse, skeleton

ADS, QUERIES, TREES, TOP, BLOCK = 10_000_000, 5_000_000, 3, 50, 1 << 20
CORES, CORES_PER_NODE = (8, 32, 128), 16
UNIT_LABELS, LIST_LABELS = 4096, 1 << 17
SHARES = {"reach": 0.45, "lists": 0.38, "answer": 0.17}  # 3.35, 2.83 and 1.23 s of 7.4, 20K labels, 200K points
ENTRY = 8  # bytes of a feature and its value, of a point and its score
WORDS = 45  # features of a point

Chain = list[list[float]]  # stages one after the other, units of a stage side by side


def regressors(labels: int) -> int:
    """That a point meets above the leaves of a tree."""
    shape = collapse(skeleton(labels, Params(ROUTED).max_leaf), ROUTED.widest)
    inner = shape.child >= 0
    total = 0
    for depth in np.unique(shape.depth[inner]):
        edges = np.sort(shape.n_children[inner & (shape.depth == depth)])[::-1]
        total += int(edges[: ROUTED.beam].sum())
    return total


def makespan(chains: Iterable[Chain], cores: int) -> float:
    """Hours until all chains are through."""
    free = [0.0] * cores
    waiting = [(0.0, number, chain) for number, chain in enumerate(chains)]
    heapq.heapify(waiting)
    end = 0.0
    while waiting:
        ready, number, stages = heapq.heappop(waiting)
        ends = [ready]
        for cost in sorted(stages[0], reverse=True):
            at = max(heapq.heappop(free), ready)
            heapq.heappush(free, at + cost)
            ends.append(at + cost)
        end = max(end, *ends)
        if stages[1:]:
            heapq.heappush(waiting, (max(ends), number, stages[1:]))
    return end / 3600


def training(measured: dict[str, Any], points: int, labels: int) -> list[Chain]:
    """Per tree: its top, then its subtrees."""
    size, units = measured["size"], measured["units"]
    grown = points / size["training"] / size["trees"]
    top = units["top_unit"]["cpu"] * grown * regressors(labels) / regressors(size["labels"])
    below, count = units["subtrees_unit"]["cpu"] * grown, -(-labels // UNIT_LABELS)
    return [[[top], [below / count] * count] for _ in range(TREES)]


def labelwise(measured: dict[str, Any]) -> list[Chain]:
    """Per block: who comes to which leaf, lists by subtree, the answer."""
    size, unit = measured["size"], measured["units"]["block_unit"]
    block = unit["cpu"] / unit["count"]
    more_ads, more_entries = BLOCK / size["block"], QUERIES * TOP / size["labels"] / size["top"]
    wider = regressors(QUERIES) / regressors(size["labels"])
    reach = SHARES["reach"] * block / size["trees"] * more_ads * wider
    lists, parts = SHARES["lists"] * block / size["trees"] * more_entries, -(-QUERIES // LIST_LABELS)
    answer = SHARES["answer"] * block * more_entries
    return [[[reach] * TREES, [lists / parts] * (parts * TREES), [answer]]] * -(-ADS // BLOCK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="what bench/cluster.py --json wrote")
    measured = json.loads(parser.parse_args().measured.read_text())
    nodes = [-(-cores // CORES_PER_NODE) for cores in CORES]
    handed_on = -(-ADS // BLOCK) * (TREES * (BLOCK * ROUTED.beam + QUERIES * TOP) + QUERIES * TOP) * ENTRY
    jobs = {
        "online model: 5M queries, 10M ads as labels": (
            training(measured, QUERIES, ADS),
            [n * QUERIES * WORDS * ENTRY for n in nodes],
        ),
        "labelwise model: 10M ads, 5M queries as labels": (
            training(measured, ADS, QUERIES),
            [n * ADS * WORDS * ENTRY for n in nodes],
        ),
        "table: 50 of 10M ads for each of 5M queries": (
            labelwise(measured),
            [n * ADS * WORDS * ENTRY + handed_on for n in nodes],
        ),
    }
    print("| | units | longest, s | CPU, h | GB moved on 8, 32, 128 cores | hours on 8 | on 32 | on 128 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (chains, moved) in jobs.items():
        costs = [cost for chain in chains for stage in chain for cost in stage]
        hours = " | ".join(f"{makespan(chains, cores):.1f}" for cores in CORES)
        gigabytes = ", ".join(f"{n / 1e9:,.0f}" for n in moved)
        total = sum(costs) / 3600
        print(f"| {name} | {len(costs):,} | {max(costs):,.0f} | {total:,.1f} | {gigabytes} | {hours} |")


if __name__ == "__main__":
    main()
