"""Options and error reporting that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.markup import escape

from core.errors import UsageError, XregError
from core.executors import Executor, LocalExecutor
from core.labelwise import Labelwise
from training.display import notes
from training.params import RECIPES, Params, Recipe

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
_DEFAULT, _ASKED = Params(), Labelwise()


class _Propensity(click.ParamType[tuple[float, float]]):
    name = "A,B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        try:
            a, b = (float(part) for part in str(value).split(","))
            return a, b
        except ValueError:
            self.fail(f"must be two numbers, A,B, for example 0.55,1.5; got {value!r}", param, ctx)


threads_option = click.option(
    "--threads", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="all cores", help="Threads to use."
)
_executor = click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    envvar="XREG_EXECUTOR",
    show_envvar=True,
    help="Where units of work run: threads here, or a Ray cluster.",
)
_ray_address = click.option(
    "--ray-address",
    envvar="XREG_RAY_ADDRESS",
    show_envvar=True,
    help="With --executor ray: host:port of a running cluster.  [default: this machine's]",
)


def executor_options(command: F) -> F:
    """Where units run; `chosen_executor` makes an executor of it."""
    return _executor(_ray_address(command))


@contextmanager
def chosen_executor(executor: str, ray_address: str | None, threads: int) -> Iterator[Executor]:
    """The executor that was asked for. Ray is imported only where it was."""
    if executor == "local":
        source = click.get_current_context().get_parameter_source("ray_address")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("--ray-address goes with --executor ray")
        yield LocalExecutor(threads)
        return
    from core.ray_executor import RayExecutor

    with RayExecutor(ray_address) as opened:
        yield opened


propensity_option = click.option(
    "--propensity", type=_Propensity(), help="Weight labels by 1/propensity with these A,B; EURLex: 0.55,1.5."
)
factor_option = click.option(
    "--factor",
    type=float,
    default=_ASKED.factor,
    show_default=True,
    help="Points that a node may keep, in multiples of its share of the training points.",
)
json_option = click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Also write the figures here."
)


def tree_options(recipe: Recipe) -> Callable[[F], F]:
    """The hyper-parameters that every training has: a recipe, and the shape of its trees."""
    options = (
        click.option(
            "--recipe",
            type=click.Choice(list(RECIPES)),
            default=recipe.name,
            show_default=True,
            help="`routed`: the most accurate; `clicks`: for click rates; `paper`: XReg as published.",
        ),
        click.option("--trees", type=int, default=_DEFAULT.trees, show_default=True, help="Trees in the ensemble."),
        click.option(
            "--max-leaf", type=int, default=_DEFAULT.max_leaf, show_default=True, help="Labels in a leaf at most."
        ),
        click.option("--seed", type=int, default=_DEFAULT.seed, show_default=True, help="Seed of all randomness."),
        threads_option,
    )

    def with_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def training_options(command: F) -> F:
    """All hyper-parameters as options, with the defaults of `Params`."""
    for option in reversed(
        (
            click.option(
                "--cost",
                type=float,
                show_default="10",
                help="Cost of errors against the size of weights; in `routed` that of the routing levels.",
            ),
            click.option(
                "--clip",
                type=float,
                show_default="0.05 in `paper`",
                help="Drop weights up to this share of a regressor's largest.",
            ),
            click.option(
                "--energy",
                type=float,
                show_default=f"{RECIPES['routed'].amount} in `routed`",
                help="Drop the smallest weights that hold this share of a regressor's squared norm.",
            ),
            propensity_option,
            click.option(
                "--relevance",
                type=click.Choice(["graded", "binary"]),
                default=_DEFAULT.relevance,
                show_default=True,
                help="Use relevances as they are, or 1 for every positive.",
            ),
            click.option(
                "--calibrate/--no-calibrate",
                default=_DEFAULT.recipe.calibration == "isotonic",
                show_default=True,
                help="Map scores to relevances seen on a held-out tenth; trains twice.",
            ),
            click.option(
                "--tail/--no-tail",
                default=_DEFAULT.tail,
                show_default=True,
                help="Also store label centroids, for re-ranking with --alpha.",
            ),
        )
    ):
        command = option(command)
    return tree_options(_DEFAULT.recipe)(command)


def chosen_params(
    recipe: str, trees: int, max_leaf: int, seed: int, cost: float | None = None, clip: float | None = None,
    energy: float | None = None, propensity: tuple[float, float] | None = None, relevance: Any = _DEFAULT.relevance,
    calibrate: bool = False, tail: bool = _DEFAULT.tail,
) -> Params:  # fmt: skip
    value = RECIPES[recipe]
    if clip is not None and energy is not None:
        raise UsageError("--clip and --energy are two ways to prune: give one of them")
    if cost is not None:
        value = replace(value, route=replace(value.route, cost=cost))
        if value.target == "conditional":
            value = replace(value, leaf=replace(value.leaf, cost=cost))
    if clip is not None:
        value = replace(value, prune="clip", amount=clip)
    if energy is not None:
        value = replace(value, prune="energy", amount=energy)
    value = replace(value, calibration="isotonic" if calibrate else "none")
    return Params(value, trees, max_leaf, seed, propensity, relevance, tail)


def reported(command: F) -> F:
    """An error of ours ends the command with one line and its exit code, not with a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except XregError as error:
            notes.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
            sys.exit(error.exit_code)
        except OSError as error:
            notes.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
            sys.exit(1)

    return run  # type: ignore[return-value]
