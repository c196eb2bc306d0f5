"""What a market of 10M ads × 5M queries takes: `python bench/cluster_plan.py MEASURED.json [MEASURED.json]`.

Computed, not run: unit costs that bench/cluster.py measured (its --json), scaled, and put on 8, 32 and 128 cores, the
longest unit first, each on the core that is free first. How costs scale:

    top        per training point and leaf: the root has a regressor per leaf, above 256 leaves per child of its levels
    subtrees   per training point: a point trains the leaves it is relevant in and the ten it is sent to
    labelwise  per ad and tree: routed by a beam, it meets as many leaves however many there are

With two files (--quick and full) the growth between them, in the logarithm of the number of labels, is added; with one,
costs per point stay as they were measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ADS, QUERIES, TREES, TOP, BLOCK = 10_000_000, 5_000_000, 3, 50, 1 << 17
CORES, CORES_PER_NODE = (8, 32, 128), 16
UNIT_LABELS, LIST_LABELS = 4096, 1 << 17
ENTRY = 8  # bytes of a feature and its value, of a point and its score
WORDS = 45  # features of a point
BEAM = 20  # leaves that a point is sent to


def per_point(measured: list[dict[str, Any]], unit: str, points: str, labels: int) -> float:
    """CPU seconds of a kind of unit per point and tree, for so many labels."""
    costs: list[tuple[float, float]] = [
        (math.log2(m["size"]["labels"]), m["units"][unit]["cpu"] / m["size"][points] / m["size"]["trees"])
        for m in measured
    ]
    if len(costs) == 1:
        return costs[0][1]
    (x0, y0), (x1, y1) = sorted(costs)[0], sorted(costs)[-1]
    return y1 + max(0.0, (y1 - y0) / (x1 - x0)) * (math.log2(labels) - x1)


def makespan(chains: Iterable[list[list[float]]], cores: int) -> float:
    """Hours of stages one after the other in each chain, chains side by side."""
    free = [0.0] * cores
    heapq.heapify(free)
    waiting = [(0.0, number, stage) for number, stage in enumerate(chains)]
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


def training(measured: list[dict[str, Any]], points: int, labels: int) -> tuple[list[list[list[float]]], float]:
    """Per tree: its top, then its subtrees; and the bytes of the inputs."""
    top = per_point(measured, "top_unit", "training", labels) * points
    below = per_point(measured, "subtrees_unit", "training", labels) * points
    count = -(-labels // UNIT_LABELS)
    return [[[top], [below / count] * count] for _ in range(TREES)], points * WORDS * ENTRY


def labelwise(measured: list[dict[str, Any]]) -> tuple[list[list[list[float]]], float]:
    """Per block: reach, lists by subtree, the answer; and the bytes that units hand on."""
    blocks, parts = -(-ADS // BLOCK), -(-QUERIES // LIST_LABELS)
    whole = per_point(measured, "block_unit", "points", QUERIES) * BLOCK  # of one tree
    reach, fill, answer = 0.45 * whole, 0.40 * whole, 0.15 * whole * TREES  # shares: README of bench
    chain = [[reach] * TREES, [fill / parts] * (parts * TREES), [answer]]
    moved = blocks * TREES * (BLOCK * BEAM + QUERIES * TOP) * ENTRY + blocks * QUERIES * TOP * ENTRY
    return [chain] * blocks, float(moved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="+", help="what bench/cluster.py --json wrote")
    measured = [json.loads(path.read_text()) for path in parser.parse_args().measured]
    online, online_inputs = training(measured, QUERIES, ADS)
    offline, offline_inputs = training(measured, ADS, QUERIES)
    table, moved = labelwise(measured)
    jobs = {
        "online model (5M queries → 10M ads)": (online, online_inputs),
        "labelwise model (10M ads → 5M queries)": (offline, offline_inputs),
        "table (10M ads × 5M queries)": (table, moved),
    }
    print("| | units | longest, s | CPU hours | GB moved on 8 / 32 / 128 cores | hours on 8 | on 32 | on 128 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (chains, inputs) in jobs.items():
        costs = [cost for chain in chains for stage in chain for cost in stage]
        shipped = [(inputs if chains is table else inputs * max(1, cores // CORES_PER_NODE)) / 1e9 for cores in CORES]
        hours = " | ".join(f"{makespan(chains, cores):.1f}" for cores in CORES)
        gigabytes = " / ".join(f"{gb:,.0f}" for gb in shipped)
        total = sum(costs) / 3600
        print(f"| {name} | {len(costs):,} | {max(costs):,.0f} | {total:,.1f} | {gigabytes} | {hours} |")


if __name__ == "__main__":
    main()
