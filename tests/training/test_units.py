"""How a tree is cut: every node in one unit, whatever it is trained on in an earlier stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.engine import Engine
from tests.conftest import PARAMS
from training.dataset import Dataset
from training.fit import fit
from training.params import PAPER, ROUTED, Params, Recipe
from training.partition import Shape, collapse, skeleton
from training.units import runs_of, stages

Parts = tuple[Dataset, Dataset]


def shape_of(n_labels: int, params: Params) -> Shape:
    return collapse(skeleton(n_labels, params.max_leaf), params.recipe.widest)


@pytest.mark.parametrize("n_labels", [3, 40, 1000, 50_000])
@pytest.mark.parametrize("name", PARAMS)
def test_every_node_is_in_one_stage_and_in_one_unit_of_it(n_labels: int, name: str) -> None:
    shape = shape_of(n_labels, PARAMS[name])
    cut = stages(shape, PARAMS[name])
    assert cut[0].tolist() == [0]
    assert np.sort(np.concatenate(cut)).tolist() == list(range(shape.n_nodes))
    label_points = np.random.default_rng(0).integers(0, 50, n_labels).astype(np.int32)
    for nodes in cut:
        runs = runs_of(shape, nodes, label_points)
        assert np.concatenate(runs).tolist() == nodes.tolist()
        assert all(map(len, runs))


def test_with_routing_a_node_comes_after_all_that_are_above_it() -> None:
    shape = shape_of(100_000, Params(replace(ROUTED, widest=8)))
    cut = stages(shape, Params(ROUTED))
    stage = np.empty(shape.n_nodes, np.int64)
    for number, nodes in enumerate(cut):
        stage[nodes] = number
    assert len(cut) > 3
    for node in np.flatnonzero(shape.child >= 0):
        below = slice(shape.child[node], shape.child[node] + shape.n_children[node])
        assert (stage[below] > stage[node]).all()


def test_a_long_stage_is_cut_into_units_of_about_the_same_cost() -> None:
    """Labels of equal weight: leaves of equal cost."""
    shape = shape_of(200_000, Params(ROUTED))
    runs = runs_of(shape, stages(shape, Params(ROUTED))[-1], np.full(200_000, 7, np.int32))
    lengths = [len(run) for run in runs]
    assert len(runs) == 49
    assert max(lengths) - min(lengths) <= 2


@pytest.mark.parametrize("recipe", [PAPER, ROUTED])
def test_a_tree_may_be_its_root_alone(sample: Parts, tmp_path: Path, recipe: Recipe) -> None:
    fit(sample[0], replace(PARAMS["one leaf"], recipe=recipe), tmp_path / "m", 1)
    assert Engine.open(tmp_path / "m").predict_batch(sample[1].features, k=3).nnz
