"""What a market of 10M ads × 5M queries takes: `python bench/cluster_plan.py MEASURED.json`.

Computed, not run: the CPU of units that `bench/cluster.py --json MEASURED.json` measured, scaled, and put on 8, 32 and
128 cores, each unit on the core that is free first. How costs are scaled:

    top        per training point and regressor of the root
    level      per training point and regressor it trains there: those of a beam of nodes
    route      per training point and regressor it meets on the way
    leaves     per training point: the leaves it is relevant in and those it is sent to, whatever the number of labels
    reach      per ad and regressor it meets above the leaves
    lists      per entry of a list, queries × ads per query, in every block and tree
    answer     per entry of a list, in every block

The last three are shares of what one unit of a whole block took: SHARES, from units measured one by one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Run as a script, this file's folder comes first on the path, and `training` would mean bench/training.py.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np

from training.params import ROUTED, Params
from training.partition import collapse, skeleton

ADS, QUERIES, TREES, TOP, BLOCK = 10_000_000, 5_000_000, 3, 50, 1 << 20
CORES, CORES_PER_NODE = (8, 32, 128), 16
STAGE_UNITS, UNIT_LABELS, LIST_LABELS = 16, 4096, 1 << 17
SHARES = {"reach": 0.45, "lists": 0.38, "answer": 0.17}  # 3.35, 2.83 and 1.23 s of 7.4, 20K labels, 200K points
ENTRY = 8  # bytes of a feature and its value, of a point and its score
WORDS = 45  # features of a point

Chain = list[list[float]]  # stages one after the other, units of a stage side by side


class Level(NamedTuple):
    """Inner nodes of one depth of a tree; `regressors` of them that a point meets."""

    nodes: int
    regressors: int


def levels(labels: int) -> list[Level]:
    """From the root down to the last above the leaves."""
    shape = collapse(skeleton(labels, Params(ROUTED).max_leaf), ROUTED.widest)
    inner = shape.child >= 0
    edges = [np.sort(shape.n_children[inner & (shape.depth == d)])[::-1] for d in np.unique(shape.depth[inner])]
    return [Level(len(each), int(each[: ROUTED.beam].sum())) for each in edges]


def met(above: Sequence[Level]) -> int:
    """Regressors that a point meets on its way through these levels."""
    return sum(level.regressors for level in above)


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
    """Per tree: its top; level by level the nodes, and routing to the next; its leaves."""
    size, wide = measured["size"], levels(labels)
    seen = levels(size["labels"])
    stages, grown = range(1, len(seen)), points / size["training"] / size["trees"]

    def cpu(kind: str, stages: Iterable[int]) -> float:
        return float(grown * sum(measured["units"][f"{kind}{stage}"]["cpu"] for stage in stages))

    root, level = cpu("top_unit", [1]) / seen[0].regressors, cpu("nodes_unit", stages) / met(seen[1:])
    way = cpu("route_unit", [s + 1 for s in stages]) / sum(met(seen[: s + 1]) for s in stages)
    most = max(STAGE_UNITS, -(-labels // UNIT_LABELS))
    chain: Chain = [[root * wide[0].regressors]]
    for stage in range(1, len(wide)):
        count = min(most, wide[stage].nodes)
        chain += [[level * wide[stage].regressors / count] * count, [way * met(wide[: stage + 1])]]
    return [[*chain, [cpu("nodes_unit", [len(seen)]) / most] * most] for _ in range(TREES)]


def labelwise(measured: dict[str, Any]) -> list[Chain]:
    """Per block: who comes to which leaf, lists by subtree, the answer."""
    size, unit = measured["size"], measured["units"]["block_unit0"]
    block = unit["cpu"] / unit["count"]
    more_ads, more_entries = BLOCK / size["block"], QUERIES * TOP / size["labels"] / size["top"]
    wider = met(levels(QUERIES)) / met(levels(size["labels"]))
    reach = SHARES["reach"] * block / size["trees"] * more_ads * wider
    lists, parts = SHARES["lists"] * block / size["trees"] * more_entries, -(-QUERIES // LIST_LABELS)
    answer = SHARES["answer"] * block * more_entries
    return [[[reach] * TREES, [lists / parts] * (parts * TREES), [answer]]] * -(-ADS // BLOCK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="what bench/cluster.py --json wrote")
    measured = json.loads(parser.parse_args().measured.read_text())
    if len(levels(measured["size"]["labels"])) < 2:
        sys.exit("the trees that were measured have no level between root and leaves: measure without --quick")
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
