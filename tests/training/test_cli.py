"""The command as people use it: the walk of the README, wrong input included."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import sparse

from tests.conftest import SAMPLE
from training.dataset import Dataset
from training.fit import begin
from training.params import PAPER, Params


def xreg(*args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "training.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


KEYS = "WP@1 WP@3 WP@5 nDCG@1 nDCG@3 nDCG@5 Tau@5 XMAD@5 XRMSE@5 regret@5 MAD AUPRC coverage P@1 P@3 P@5"


def test_from_data_to_answers(tmp_path: Path) -> None:
    data, model = tmp_path / "shop", tmp_path / "shop.model"
    xreg("make-data", data, "--labels", 200, "--points", 800, "--features", 400)
    assert "3 trees" in xreg("train", data, "--out", model, "--tail").stderr
    table = xreg("evaluate", model, data, "--json", tmp_path / "f.json").stdout
    assert "WP" in table
    figures = json.loads((tmp_path / "f.json").read_text())
    assert set(KEYS.split()) <= figures.keys()
    assert figures["WP@5"] > 50
    for how in ([], ["--factor", 2], ["--transposed", "--beam", 5, "--alpha", 0.5]):
        xreg("evaluate", model, data, "--labelwise", "--json", tmp_path / "l.json", *how)
        assert {"WP-l@5", "Tau-l@5", "XMAD-l@5", "coverage-l"} <= json.loads((tmp_path / "l.json").read_text()).keys()
    assert "belong to pointwise" in xreg("evaluate", model, data, "--labelwise", "--beam", 5, code=2).stderr
    assert "give --labelwise" in xreg("evaluate", model, data, "--transposed", code=2).stderr
    shown = xreg("predict", model, data, "-k", 7, "--out", tmp_path / "p.npz", "--show", 1).stdout
    assert "point 0: best 5 of 7" in shown
    answers = sparse.csr_matrix(sparse.load_npz(tmp_path / "p.npz"))
    assert answers.shape == (200, 200)
    assert answers.getnnz(axis=1).max() <= 7
    inside = xreg("inspect", model, "--verify").stdout
    for part in ("hyper-parameters", "label frequency", "levels", "sha256", "verified"):
        assert part in inside


def test_tune_shows_a_table_and_writes_a_choice_that_train_uses(tmp_path: Path) -> None:
    done = xreg("tune", SAMPLE, "--out", tmp_path / "choice.json", "--max-leaf", 40, "--tail")
    assert "held-out part, one tree" in done.stderr
    choice = json.loads((tmp_path / "choice.json").read_text())
    assert choice == json.loads(done.stdout)
    xreg("train", SAMPLE, "--out", tmp_path / "m", "--choice", tmp_path / "choice.json", "--max-leaf", 40, "--tail")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    recipe = manifest["params"]["recipe"]
    assert (recipe["leaf"]["loss"], recipe["leaf"]["cost"]) == (choice["leaf_loss"], choice["leaf_cost"])
    assert (recipe["blend"], recipe["routed"]) == (choice["blend"], choice["routed"])
    assert manifest["params"]["alpha"] == choice["alpha"]


def test_the_paper_can_be_tuned_in_one_command(tmp_path: Path) -> None:
    xreg("train", SAMPLE, "--out", tmp_path / "m", "--recipe", "paper", "--max-leaf", 40, "--tune", "--trees", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    recipe = json.loads((tmp_path / "m" / "manifest.json").read_text())["params"]["recipe"]
    assert recipe["leaf"]["cost"] == recipe["route"]["cost"]


def test_an_interrupted_training_goes_on_with_the_choice_it_had(
    sample: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    recipe = replace(PAPER, route=replace(PAPER.route, cost=3.0), leaf=replace(PAPER.leaf, cost=3.0))
    begin(sample[0], Params(recipe, trees=1, max_leaf=40), tmp_path / "m")
    options = ("--recipe", "paper", "--max-leaf", 40, "--tune", "--trees", 1, "--resume")
    other = xreg("train", SAMPLE / "tst_X_Xf.txt", "--out", tmp_path / "m", *options, code=5)
    assert "belongs to a run with other data" in other.stderr.replace("\n", " ")
    done = xreg("train", SAMPLE, "--out", tmp_path / "m", *options)
    assert "held-out part" not in done.stderr
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["params"]["recipe"]["leaf"]["cost"] == 3.0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--trees", "0"], 2, "trees must be between 1 and 100, got 0"),
        (["--max-leaf", "0"], 2, "max-leaf must be between 1 and 65535, got 0"),
        (["--cost", "-1"], 2, "a cost must be above 0, got -1.0"),
        (["--clip", "1"], 2, "the amount to prune must be at least 0 and below 1, got 1.0"),
        (["--clip", "0.1", "--energy", "0.1"], 2, "give one of them"),
        (["--propensity", "x"], 2, "must be two numbers, A,B"),
        (["--propensity", "0.5,-1"], 2, "propensity must be two numbers above 0"),
        (["--recipe", "magic"], 2, "'magic' is not one of 'routed', 'clicks', 'paper'"),
        (["--choice", "nowhere.json"], 2, "not a choice written by `xreg tune`"),
    ],
)
def test_wrong_options_name_the_rule(tmp_path: Path, options: list[str], code: int, message: str) -> None:
    done = xreg("train", SAMPLE, "--out", tmp_path / "m", *options, code=code)
    assert message in done.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_bad_data_and_bad_models_end_with_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("1 5 4\n0 0:nan\n")
    done = xreg("train", bad, "--out", tmp_path / "m", code=3)
    assert f"{bad}, line 2: feature 0: the value is not a number (NaN)" in done.stderr.replace("\n", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.txt"]
    assert "no such directory" in xreg("inspect", tmp_path / "none", code=4).stderr
    assert "give --out FILE.npz, or --show N" in xreg("predict", tmp_path, SAMPLE, code=2).stderr


def test_help_teaches() -> None:
    text = xreg("--help").stdout
    for command in (
        "ingest",
        "refresh",
        "ask",
        "rollback",
        "train",
        "tune",
        "evaluate",
        "predict",
        "inspect",
        "make-data",
    ):
        assert command in text
    assert "From click logs to a served release" in text
    assert "From matrices to answers" in text
    for option in [
        "--recipe",
        "--trees",
        "--max-leaf",
        "--cost",
        "--clip",
        "--seed",
        "--threads",
        "--propensity",
        "--relevance",
        "--tail",
    ]:
        assert option in xreg("train", "--help").stdout
