"""Shared fixtures: a real sample, a made-up world, models trained once per session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from tests.training.nightly import PLAN, make_clicks, terms
from training.dataset import Dataset, read_dataset
from training.fit import fit
from training.params import PAPER, ROUTED, Params
from training.release.refresh import refresh
from training.synth import make_points, make_world

SAMPLE = Path(__file__).parent / "sample"
# Kernels compile inside the first example, and the machine may be busy: no deadline.
settings.register_profile("xreg", deadline=None, print_blob=True)
settings.load_profile("xreg")


@pytest.fixture(scope="session")
def sample() -> tuple[Dataset, Dataset]:
    """A few hundred real packages: train and test part."""
    return read_dataset(SAMPLE, "train"), read_dataset(SAMPLE, "test")


@pytest.fixture(scope="session")
def shop() -> tuple[Dataset, Dataset]:
    """Made-up data with 300 labels: train and test part."""
    world = make_world(300, 500, seed=1)
    return make_points(world, 900, 20, seed=1), make_points(world, 200, 20, seed=2)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The directory of a large real data set; skips where XREG_DATA does not lead to it."""

    def find(name: str) -> Path:
        root = os.environ.get("XREG_DATA")
        if root is None:
            pytest.skip(f"XREG_DATA is not set: the real data set {name} is not here")
        if not (Path(root) / name).is_dir():
            pytest.skip(f"XREG_DATA={root} has no {name}")
        return Path(root) / name

    return find


PARAMS = {
    "paper": Params(PAPER, trees=2, max_leaf=20, tail=True),
    "routed": Params(ROUTED, trees=2, max_leaf=20, tail=True),
    "two levels": Params(replace(ROUTED, widest=8, beam=6, routed=4), trees=2, max_leaf=5),
    "logistic leaves": Params(replace(ROUTED, leaf=replace(ROUTED.leaf, loss="logistic"), blend=0.5), max_leaf=30),
    "one leaf": Params(PAPER, trees=1, max_leaf=1000),
}


@pytest.fixture(scope="session", params=PARAMS)
def model(
    request: pytest.FixtureRequest, sample: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model directory for each kind of recipe, trained on the real sample."""
    path: Path = tmp_path_factory.mktemp("model") / "m"
    fit(sample[0], PARAMS[request.param], path, threads=2)
    return path


@pytest.fixture(scope="session")
def paper_model(sample: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's recipe, with label centroids."""
    path: Path = tmp_path_factory.mktemp("paper") / "m"
    fit(sample[0], PARAMS["paper"], path, threads=2)
    return path


@pytest.fixture(scope="session")
def routed_model(sample: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default recipe."""
    path: Path = tmp_path_factory.mktemp("routed") / "m"
    fit(sample[0], PARAMS["routed"], path, threads=2)
    return path


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small made-up market: ads.csv, events.parquet, and the data set `clicks`."""
    return make_clicks(tmp_path_factory.mktemp("market") / "market")


@pytest.fixture(scope="session")
def night(market: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Releases after the first night: one, which no test changes."""
    path: Path = tmp_path_factory.mktemp("night") / "releases"
    refresh(market / "clicks", PLAN, terms(path))
    return path


@pytest.fixture
def releases(night: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(night, tmp_path / "releases"))
