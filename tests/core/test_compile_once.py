"""Processes that begin together compile a kernel once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# All wait at the gate, so that none finds what another has compiled before.
SCRIPT = """
import json, sys, time
from pathlib import Path
import numpy as np
from core import compile_once
from core.kernels.labelwise import by_falling
if sys.argv[2] == "once":
    compile_once.install()
    compile_once.install()
gate = Path(sys.argv[1])
(gate / sys.argv[3]).touch()
while len(list(gate.iterdir())) < 3:
    time.sleep(0.001)
by_falling(np.ones(3, np.float32))
print(json.dumps([sum(by_falling.stats.cache_misses.values()), sum(by_falling.stats.cache_hits.values())]))
"""


def together(directory: Path, how: str) -> list[list[int]]:
    """[misses, hits] of three processes."""
    gate = directory / f"{how}-gate"
    gate.mkdir()
    env = {**os.environ, "XREG_KERNEL_CACHE": str(directory / how)}
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(gate), how, str(i)], stdout=subprocess.PIPE, env=env)
        for i in range(3)
    ]
    return [json.loads(process.communicate()[0]) for process in started]


def test_one_process_compiles_and_the_others_load(tmp_path: Path) -> None:
    assert sorted(together(tmp_path, "once")) == [[0, 1], [0, 1], [1, 0]]


def test_without_it_they_all_compile(tmp_path: Path) -> None:
    """So the test above can fail."""
    assert sum(misses for misses, _ in together(tmp_path, "each")) > 1
