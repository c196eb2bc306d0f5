"""The pipeline: data set → inputs → units → shards.

Everything that takes time is a file in `<model>.work` beside the model, so a run that was killed goes on from its
finished units with `resume`, and ends byte for byte where an uninterrupted one would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core import __version__
from core.calibration import Calibration, fit_isotonic
from core.engine import Engine
from core.errors import ResumeError, UsageError
from core.executors import Executor, LocalExecutor, Unit
from core.format import create_array, write_manifest, written_aside
from core.metrics import relevance_of
from core.model import FORMAT, VERSION, open_model
from core.sparse import Int32s, Int64s
from core.trie import Trie
from core.trie_build import build_tree
from core.work import claim, load_arrays, locked, remove, save_arrays, work_of
from training.dataset import Dataset, hold_out, read_dataset, write_dataset
from training.evaluate import scores_for_evaluation, weighting_for
from training.fragments import Fragment, whole_tree, write_shards
from training.inputs import Inputs, check_trainable, forget_inputs, prepare, prepare_centroids, shared_inputs
from training.job import Job, claimed_by
from training.params import Params
from training.partition import Shape, collapse, label_centroids, skeleton
from training.units import load_root, load_shape, nodes_unit, route_unit, runs_of, stages, top_unit

_HELD_OUT = 0.1  # share of the points that calibration is fitted on

OnProgress = Callable[[int, int, int], None]  # nodes done, nodes in all, depth of the last one


def fit(
    data: Dataset,
    params: Params,
    out: Path,
    threads: int,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    executor: Executor | None = None,
) -> None:
    """Train a model and write it to `out`, which must not exist."""
    if threads < 1:
        raise UsageError(f"threads must be at least 1, got {threads}")
    begin(data, params, out, resume)
    finish(out, threads, on_progress, executor)


def begin(data: Dataset, params: Params, out: Path, resume: bool = False) -> None:
    """Write down what is to be trained, and its inputs. `finish` reads these files, so the caller may let the data set
    go: the run then needs its memory for itself."""
    out = Path(out)
    work = work_of(out)
    if out.exists() and not (resume and work.exists()):
        raise UsageError(f"{out} exists; remove it or choose another name")
    check_trainable(data)
    work.mkdir(parents=True, exist_ok=True)
    with locked(work):
        claim(work, Job(params, data.fingerprint()).as_text(), resume)
        if not (work / "inputs").exists():
            prepare(data, params, work / "inputs")
        if params.recipe.calibration == "isotonic" and not (work / "held").exists():
            _begin_calibration(data, params, work)


def finish(out: Path, threads: int, on_progress: OnProgress | None = None, executor: Executor | None = None) -> None:
    """Train what was begun and write the model to `out`; units run on the threads, or where the executor says."""
    out, executor = Path(out), executor or LocalExecutor(threads)
    work = work_of(out)
    with locked(work):
        job = claimed_by(work)
        if job is None:
            raise ResumeError(f"{work}: nothing was begun here")
        if not out.exists():  # else killed between the model's last step and the removal of its work
            params, fingerprint = job
            inputs = shared_inputs(work / "inputs")
            if not (work / "centroids").exists():
                prepare_centroids(inputs, params, work / "centroids")
            try:
                _Units(inputs, params, work, on_progress).run(executor)
            finally:
                forget_inputs()
            if params.recipe.calibration == "isotonic":
                _calibrate(work, threads, on_progress, executor)
            _assemble(inputs, params, work, out, fingerprint)
        remove(work)


def _begin_calibration(data: Dataset, params: Params, work: Path) -> None:
    """A run of its own on nine tenths of the points, and the last tenth beside it."""
    kept, held = hold_out(data, _HELD_OUT, params.seed)
    plain = replace(params, recipe=replace(params.recipe, calibration="none"))
    begin(kept, plain, work / "calibration", resume=True)
    with written_aside(work / "held") as aside:
        write_dataset(aside, "test", held)


def _calibrate(work: Path, threads: int, on_progress: OnProgress | None, executor: Executor) -> None:
    """Finish the run on nine tenths, answer the last, fit the map from score to relevance; a unit like any other."""
    if (work / "calibration.npz").exists():
        return
    model = work / "calibration"
    if work_of(model).exists():
        finish(model, threads, on_progress, executor)
    held = read_dataset(work / "held", "test")
    engine = Engine.open(model, verify=False)
    scores = scores_for_evaluation(engine, held, None, None, threads)
    truth = weighting_for(engine.model, None).apply(held.relevance)
    fitted = fit_isotonic(scores.values, relevance_of(truth, scores))
    save_arrays(work / "calibration.npz", fitted._asdict())


class _Units:
    """The units of one run: which there are, where their results lie, how far they are."""

    def __init__(self, inputs: Inputs, params: Params, work: Path, on_progress: OnProgress | None) -> None:
        self.inputs, self.params, self.work = inputs, params, work
        self.on_progress = on_progress or (lambda done, total, depth: None)
        shape = collapse(skeleton(inputs.by_label.n_rows, params.max_leaf), params.recipe.widest)
        self.done, self.total = 0, params.trees * shape.n_nodes
        self.cuts = dict[int, Cut]()  # of the trees whose tops are there
        self.places = dict[Path, tuple[int, int]]()  # tree and stage of every unit
        self.left = Counter[tuple[int, int]]()  # units `nodes` of a stage that are not done yet

    def run(self, executor: Executor) -> None:
        executor.run([self._top(tree) for tree in range(self.params.trees)], self._after, self._told)

    def _top(self, tree: int) -> Unit:
        needs = self.work / "inputs", self.work / "centroids"
        return self._placed(tree, 1, Unit(top_unit, stage_path(self.work, tree, 1), needs, args=(self.params, tree)))

    def _nodes(self, tree: int, stage: int) -> list[Unit]:
        needs = self.work / "inputs", stage_path(self.work, tree, stage)
        cut = self.cuts[tree].get(stage, [])
        self.left[tree, stage] = len(cut)
        return [
            self._placed(tree, stage, Unit(nodes_unit, path, needs, args=(self.params, tree, nodes)))
            for path, nodes in cut
        ]

    def _route(self, tree: int, stage: int) -> Unit:
        above = [path for before in range(1, stage) for path, _ in self.cuts[tree][before]]
        needs = self.work / "inputs", stage_path(self.work, tree, 1), *above
        unit = Unit(route_unit, stage_path(self.work, tree, stage), needs, args=(self.params,))
        return self._placed(tree, stage, unit)

    def _placed(self, tree: int, stage: int, unit: Unit) -> Unit:
        self.places[unit.makes] = tree, stage
        return unit._replace(rank=stage)

    def _after(self, unit: Unit, fresh: bool) -> Iterable[Unit]:
        """The nodes of a stage once its points are routed; routing to the next stage once all of them are fitted."""
        tree, stage = self.places[unit.makes]
        if not fresh:  # nodes that an earlier run finished count as done
            self.done += _n_fitted(unit)
        if unit.do is top_unit:
            self.cuts[tree] = cut_of(self.work, tree, self.params, self.inputs.label_points)
        if unit.do is not nodes_unit:
            return self._nodes(tree, stage)
        self.left[tree, stage] -= 1
        more = not self.left[tree, stage] and stage + 1 in self.cuts[tree]
        return [self._route(tree, stage + 1)] if more else []

    def _told(self, nodes: int, depth: int) -> None:
        self.done += nodes
        self.on_progress(self.done, self.total, depth)


def _n_fitted(unit: Unit) -> int:
    if unit.do is route_unit:
        return 0
    return len(unit.args[2]) if unit.do is nodes_unit else 1


Cut = dict[int, list[tuple[Path, Int64s]]]  # the units `nodes` of a tree by stage: the file of each, and its nodes


def cut_of(work: Path, tree: int, params: Params, label_points: Int32s) -> Cut:
    """How a tree is cut whose top is there."""
    shape = load_shape(stage_path(work, tree, 1))
    return {
        stage: [
            (work / f"tree{tree}-{stage}-{number:05d}.npz", run)
            for number, run in enumerate(runs_of(shape, nodes, label_points))
        ]
        for stage, nodes in enumerate(stages(shape, params))
        if stage > 0
    }


def stage_path(work: Path, tree: int, stage: int) -> Path:
    """What the units `nodes` of a stage read: the tree's top, or what its unit `route` left."""
    return work / f"tree{tree}-{stage}.npz"


def _assemble(inputs: Inputs, params: Params, work: Path, out: Path, fingerprint: str) -> None:
    """Turn the units' results into tries, tree by tree, and join those into a model directory."""
    paths = [work / f"trie{tree}.npz" for tree in range(params.trees)]
    for tree, path in enumerate(paths):
        if not path.exists():
            save_arrays(path, _trie(inputs, params, work, tree)._asdict())
    calibration = None
    if params.recipe.calibration == "isotonic":
        calibration = Calibration(**load_arrays(work / "calibration.npz"))
    write_model(out, inputs, params, [partial(_load_trie, path) for path in paths], fingerprint, calibration)


def _trie(inputs: Inputs, params: Params, work: Path, tree: int) -> Trie:
    top = stage_path(work, tree, 1)
    cut = cut_of(work, tree, params, inputs.label_points)
    parts = [partial(_load_fragment, path) for stage in cut.values() for path, _ in stage]
    return trie_of(inputs, load_shape(top), [partial(load_root, top), *parts])


def trie_of(inputs: Inputs, shape: Shape, fragments: Sequence[Callable[[], Fragment]]) -> Trie:
    """A fitted tree in the layout of the model."""
    tree = whole_tree(shape, fragments, inputs.label_points)
    return build_tree(tree, 0, inputs.features.n_cols, inputs.by_label.n_rows)[0]


def _load_fragment(path: Path) -> Fragment:
    return Fragment(**load_arrays(path))


def _load_trie(path: Path) -> Trie:
    return Trie(**load_arrays(path))


def write_model(
    out: Path,
    inputs: Inputs,
    params: Params,
    tries: Sequence[Callable[[], Trie]],
    fingerprint: str,
    calibration: Calibration | None = None,
) -> None:
    """Write a model directory aside; it gets its name only when it opens and verifies."""
    with written_aside(out) as aside:
        write_shards(aside, tries)
        _write(aside, "label_points", inputs.label_points)
        _write(aside, "feature_weight", inputs.feature_weight)
        if params.tail:
            _write_tail(aside, inputs)
        if calibration is not None:
            _write(aside, "calibration_score", calibration.scores)
            _write(aside, "calibration_relevance", calibration.relevances)
        write_manifest(aside, _manifest(inputs, params, fingerprint, aside))
        open_model(aside)


def _write(directory: Path, name: str, array: np.ndarray[Any, Any]) -> None:
    create_array(directory, name, array.dtype, len(array))[:] = array


def _write_tail(directory: Path, inputs: Inputs) -> None:
    """μ_l: unit-normalised mean of the unit points of a label, relevances ignored."""
    seen = inputs.by_label._replace(values=np.ones(inputs.by_label.nnz, np.float32))
    centroids = label_centroids(inputs.features, seen, largest=0)
    _write(directory, "tail_ptr", centroids.indptr)
    _write(directory, "tail_feature", centroids.indices)
    _write(directory, "tail_value", centroids.values)


def _manifest(inputs: Inputs, params: Params, fingerprint: str, directory: Path) -> dict[str, Any]:
    lengths = {n: len(np.load(directory / f"{n}.npy", mmap_mode="r")) for n in ("node_leaf", "edge_target", "entry")}
    return {
        "format": FORMAT,
        "version": VERSION,
        "xreg": __version__,
        "numpy": np.__version__,
        "params": params.as_json(),
        "scale": inputs.scale,
        "sizes": {
            "points": inputs.n_points,
            "features": inputs.features.n_cols,
            "labels": inputs.by_label.n_rows,
            "trees": params.trees,
            "nodes": lengths["node_leaf"],
            "edges": lengths["edge_target"],
            "entries": lengths["entry"],
        },
        "data": fingerprint,
    }
