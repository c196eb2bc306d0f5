"""Commands of the learner: from a data set to a model, and what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from core.errors import ResumeError, UsageError
from core.executors import Executor
from core.labelwise import Labelwise
from training.commands.options import (
    FILE,
    PATH,
    chosen_executor,
    chosen_params,
    executor_options,
    factor_option,
    json_option,
    propensity_option,
    reported,
    threads_option,
    training_options,
)
from training.commands.places import PLACE, fetched, left_at
from training.display import answers, notes, progress_bar, show_answer, show_figures, show_sources, show_trials
from training.params import Choice, Params

_ASKED = Labelwise()


@click.command()
@click.argument("data", type=PLACE)
@click.option("--out", type=PLACE, required=True, help="Directory to write the model to, here or on a store (s3://…).")
@training_options
@click.option("--tune", "tuned", is_flag=True, help="First choose costs, width, blend and alpha on held-out data.")
@click.option("--choice", type=FILE, help="Use a choice that `xreg tune` wrote.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@executor_options
@reported
def train(
    data: Path | str, out: Path | str, threads: int, tuned: bool, choice: Path | None, resume: bool, executor: str,
    ray_address: str | None, **options: Any,
) -> None:  # fmt: skip
    """Train a model on DATA (a directory's train part, or a file)."""
    if tuned and choice:
        raise UsageError("--tune and --choice both decide the costs: give one of them")
    with chosen_executor(executor, ray_address, threads) as where, left_at(out, resume) as path:
        _train(data, path, threads, tuned, choice, resume, where, chosen_params(**options))


def _train(
    data: Path | str, out: Path, threads: int, tuned: bool, choice: Path | None, resume: bool, where: Executor,
    params: Params,
) -> None:  # fmt: skip
    from core.work import work_of
    from training.dataset import read_dataset
    from training.fit import begin, finish
    from training.job import claimed_by
    from training.memory import return_large_arrays

    return_large_arrays()
    work = work_of(out)
    if out.exists() and not (resume and work.exists()):
        raise UsageError(f"{out} exists; remove it or choose another name")
    if work.exists() and not resume:
        raise ResumeError(f"{work} holds an unfinished run; go on with --resume, or remove it to begin anew")
    dataset = read_dataset(fetched(data), "train")
    if choice:
        params = _read_choice(choice).apply(params)
    if tuned:
        begun = claimed_by(work)  # an interrupted training goes on with the choice it had
        params = (Choice.of(begun.params) if begun else _tuned(dataset, params, threads)).apply(params)
    begin(dataset, params, out, resume)
    del dataset  # the rest of the run reads its prepared inputs
    with progress_bar("training", "nodes") as bar:
        task = bar.add_task("growing trees", total=None)

        def on_progress(done: int, total: int, depth: int) -> None:
            bar.update(task, completed=done, total=total or None, description=f"level {depth}")

        finish(out, threads, on_progress, where)
    size = sum(file.stat().st_size for file in out.iterdir())
    notes.print(f"{out}: {params.trees} trees, {size / 1e6:.1f} MB")


@click.command()
@click.argument("data", type=PATH)
@click.option("--out", type=FILE, help="Write the choice here, for `train --choice`.")
@training_options
@reported
def tune(data: Path, out: Path | None, threads: int, **options: Any) -> None:
    """Choose costs, routing width, blend and alpha on a held-out part of DATA's train part."""
    from training.dataset import read_dataset

    choice = _tuned(read_dataset(data, "train"), chosen_params(**options), threads)
    text = json.dumps(asdict(choice), indent=1)
    if out is not None:
        aside = out.with_name(f".{out.name}.writing")
        aside.write_text(f"{text}\n")
        aside.replace(out)
        notes.print(f"choice written to {out}")
    answers.print_json(text)


def _tuned(dataset: Any, params: Params, threads: int) -> Choice:
    """Tune and show the table."""
    from training.tune import Trial
    from training.tune import tune as run

    trials: list[Trial] = []
    with progress_bar("tuning", "trials") as bar:
        task = bar.add_task("held-out data", total=None)

        def on_trial(trial: Trial) -> None:
            trials.append(trial)
            bar.update(task, completed=len(trials), description=f"best {max(t.merit for t in trials):.2f}")

        choice = run(dataset, params, threads, on_trial)
    show_trials(trials)
    return choice


def _read_choice(path: Path) -> Choice:
    try:
        choice = Choice(**json.loads(path.read_text()))
        numbers = (choice.route_cost, choice.leaf_cost, choice.blend, choice.alpha)
        if not all(isinstance(number, int | float) for number in numbers) or not isinstance(choice.routed, int):
            raise ValueError("a number is missing")
        return choice
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path}: not a choice written by `xreg tune` ({error})") from error


@click.command()
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@json_option
@click.option("--labelwise", is_flag=True, help="Exchange points and labels: how well are points ranked for labels?")
@click.option("--transposed", is_flag=True, help="With --labelwise: from pointwise scores, not labelwise inference.")
@factor_option
@click.option("--beam", type=click.IntRange(1), help="Nodes kept per level.  [default: the recipe's]")
@click.option("--alpha", type=float, help="Tail re-ranking, 1 is off.  [default: the model's]")
@propensity_option
@click.option("--threshold", type=float, default=0.01, show_default=True, help="Least score that counts for coverage.")
@click.option(
    "--baseline",
    "baselines",
    type=click.Choice(["popular", "bm25", "memory"]),
    multiple=True,
    help="Beside the model: most clicked ads; BM25 over ad texts; the query's own past clicks. DATA is then what "
    "`xreg ingest` made, MODEL that of its direction `online`.",
)
@threads_option
@reported
def evaluate(
    model: Path, data: Path, json_file: Path | None, labelwise: bool, transposed: bool, factor: float,
    beam: int | None, alpha: float | None,
    propensity: tuple[float, float] | None, threshold: float, baselines: tuple[str, ...], threads: int,
) -> None:  # fmt: skip
    """Figures of MODEL on DATA (a directory's test part, or a file)."""
    from core.engine import Engine
    from training.dataset import read_dataset
    from training.evaluate import LABEL_TOP, evaluate_model
    from training.release.compare import compare_with

    if baselines and (labelwise or propensity):
        raise UsageError("baselines answer queries: --labelwise and --propensity do not go with --baseline")
    if transposed and not labelwise:
        raise UsageError("--transposed says where labelwise figures come from: give --labelwise with it")
    how: Labelwise | Literal["transposed"] | None = None
    if labelwise:
        how = "transposed" if transposed else Labelwise(LABEL_TOP, factor)
    engine = Engine.open(model)
    if baselines:
        with notes.status("evaluating"):
            sources = compare_with(baselines, engine, data, beam, alpha, threshold, threads)
        if json_file:
            json_file.write_text(json.dumps(sources, indent=1) + "\n")
        show_sources(sources)
        return
    with notes.status("evaluating"):
        figures = evaluate_model(engine, read_dataset(data, "test"), propensity, beam, alpha, how, threshold, threads)
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")
    show_figures(figures)


@click.command()
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option("-k", type=click.IntRange(1), default=100, show_default=True, help="Labels per point.")
@click.option("--out", type=FILE, help="Write the scores here, a scipy CSR in .npz.")
@click.option("--show", type=click.IntRange(0), default=0, help="Print the first answers beside the truth.")
@click.option("--beam", type=click.IntRange(1), help="Nodes kept per level.  [default: the recipe's]")
@click.option("--alpha", type=float, help="Tail re-ranking, 1 is off.  [default: the model's]")
@threads_option
@reported
def predict(
    model: Path, data: Path, k: int, out: Path | None, show: int, beam: int | None, alpha: float | None, threads: int
) -> None:
    """The k best labels of every point of DATA (a directory's test part, or a file), scores in 0 … 1."""
    from scipy import sparse

    from core.engine import Engine, Options
    from core.sparse import to_scipy
    from training.dataset import read_dataset

    if out is None and not show:
        raise UsageError("nothing to do: give --out FILE.npz, or --show N")
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out must end in .npz, got {out}")
    engine = Engine.open(model)
    dataset = read_dataset(data, "test")
    with notes.status("predicting"):
        scores = to_scipy(engine.predict_batch(dataset.features, k, beam, Options(alpha=alpha), threads))
    if out is not None:
        sparse.save_npz(out, scores)
    truth, scale = to_scipy(dataset.relevance), float(engine.model.manifest["scale"])
    for point in range(min(show, dataset.n_points)):
        show_answer(point, scores[point], truth[point], scale)


@click.command()
@click.argument("model", type=PLACE)
@click.argument("points", type=PLACE)
@click.option("--out", type=PLACE, required=True, help="A .parquet file to write, here or on a store (s3://…).")
@click.option("--top", type=int, default=_ASKED.top, show_default=True, help="Points per label.")
@factor_option
@click.option("--block", type=int, default=_ASKED.block, show_default=True, help="Points that are held at a time.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@threads_option
@executor_options
@reported
def labelwise(
    model: Path | str, points: Path | str, out: Path | str, top: int, factor: float, block: int, resume: bool,
    threads: int, executor: str, ray_address: str | None,
) -> None:  # fmt: skip
    """The best points of every label, out of POINTS (a directory's test part, or a file), scores in 0 … 1.

    Writes label, rank, point and score as Parquet, and beside it the same as a scipy CSR of labels × points (.npz).
    """
    from core.labelwise_job import run_job
    from training.dataset import read_dataset

    asked = Labelwise(top, factor, block=block)
    with chosen_executor(executor, ray_address, threads) as where, left_at(out, resume) as path:
        opened, rows = fetched(model), read_dataset(fetched(points), "test").features
        with progress_bar("labelwise", "units") as progress:
            task = progress.add_task("", total=None)

            def on_progress(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            best = run_job(opened, rows, asked, path, threads, resume, on_progress, where)
    notes.print(f"{out}: {int(best.counts.sum())} answers for {int((best.counts > 0).sum())} labels")


@click.command()
@click.argument("model", type=PATH)
@click.option("--verify", is_flag=True, help="Also check every checksum and the whole structure.")
@reported
def inspect(model: Path, verify: bool) -> None:
    """What is inside MODEL: sizes, hyper-parameters, label frequency, sparsity per level, checksums."""
    from training.inspection import show_model

    show_model(model, verify, answers)


@click.command("make-data")
@click.argument("out", type=PATH)
@click.option("--labels", type=click.IntRange(1), default=2000, show_default=True, help="Labels.")
@click.option(
    "--points",
    type=click.IntRange(10),
    default=8000,
    show_default=True,
    help="Training points; a quarter as many test points.",
)
@click.option("--features", type=click.IntRange(100), default=5000, show_default=True, help="Words of the language.")
@click.option("--words", type=click.IntRange(1), default=45, show_default=True, help="Words of a point, on average.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all randomness.")
@reported
def make_data(out: Path, labels: int, points: int, features: int, words: int, seed: int) -> None:
    """Write made-up data with topics, Zipfian words and graded relevance to the directory OUT."""
    from training.dataset import write_dataset
    from training.synth import make_points, make_world

    if out.exists():
        raise UsageError(f"{out} exists; remove it or choose another name")
    with notes.status("making data"):
        world = make_world(labels, features, seed)
        train, test = make_points(world, points, words, seed), make_points(world, -(-points // 4), words, seed + 1)
        out.mkdir(parents=True)
        write_dataset(out, "train", train)
        write_dataset(out, "test", test)
    notes.print(f"{out}: {points} + {-(-points // 4)} points, {features} features, {labels} labels")
