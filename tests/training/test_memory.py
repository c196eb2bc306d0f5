"""Training stays below 3 × (data + model), as the operating system counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training.dataset import read_dataset, write_dataset
from training.synth import make_points, make_world

STATUS = Path("/proc/self/status")
TRAIN = """
import sys
from training.cli import main
main(["train", *sys.argv[1:]], standalone_mode=False)
print(open("/proc/self/status").read())
"""


def peak_of_training(data: Path, out: Path, *options: str) -> float:
    """The most memory that `xreg train` ever had, in MB; the kernel's own count, which no sampling can miss."""
    command = [sys.executable, "-c", TRAIN, str(data), "--out", str(out), "--trees", "2", "--threads", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("VmHWM")) * 1024 / 1e6


def made_up(path: Path, n_points: int, n_labels: int) -> Path:
    path.mkdir()
    write_dataset(path, "train", make_points(make_world(n_labels, 8000, 0), n_points, 250, 0))
    return path


@pytest.mark.skipif(not STATUS.exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("recipe", ["routed", "paper"])
def test_memory_stays_below_three_times_data_and_model(tmp_path: Path, recipe: str) -> None:
    """Above what a tiny run takes: interpreter, libraries, kernels."""
    tiny, large = made_up(tmp_path / "tiny", 300, 300), made_up(tmp_path / "large", 24_000, 2000)
    peak_of_training(tiny, tmp_path / "warm", "--recipe", recipe)  # kernels are compiled and kept
    before = peak_of_training(tiny, tmp_path / "before", "--recipe", recipe)
    peak = peak_of_training(large, tmp_path / "m", "--recipe", recipe)
    data = sum(array.nbytes for rows in read_dataset(large, "train") for array in rows[:3]) / 1e6
    model = sum(file.stat().st_size for file in (tmp_path / "m").iterdir()) / 1e6
    ratio = (peak - before) / (data + model)
    assert ratio < 3, f"{peak - before:.0f} MB for data of {data:.0f} and a model of {model:.0f}"
