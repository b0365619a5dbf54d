"""Commands about experiments: demo, run, show, compare, list."""

import inspect
from pathlib import Path
from typing import Annotated, Literal, get_args

import click
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option, Typer

import fedlocal as fl
from fedlocal.cli.output import console, reported

commands = Typer()
Scale = Literal["quick", "paper"]
Grid = Literal["text", "wide"]
Tuning = Literal["all", "halving"]
SCALES, GRIDS, TUNINGS = (click.Choice(get_args(each)) for each in (Scale, Grid, Tuning))
KINDS = ("methods", "regularizers", "mirrors", "problems", "experiments")


@commands.command(epilog="Example:  fedlocal demo --directory pictures --seed 1")
def demo(
    directory: Annotated[Path, Option(help="Where figures and tables go.")] = Path("demo"),
    seed: Annotated[int, Option(min=0, help="Everything random is a function of this number.")] = 0,
) -> None:
    """Show why FedDualAvg beats FedMiD on a sparse problem, and FedAc beats FedAvg when communication is rare."""
    from fedlocal.experiments.demonstration import demo as run

    with reported((OSError,), interrupted="stopped; run it again for all figures"):
        run(directory, seed, console)


@commands.command(
    "run",
    epilog="Examples:  fedlocal run lasso-1   |   fedlocal run lasso-1 --scale paper --seeds 0,1,2   |   "
    "fedlocal run nuclear-1 --set rounds=50 --set score.window=10   |   fedlocal run lasso-1 --scale paper --resume   |   "
    "fedlocal run femnist-l1 --scale paper --tuning halving",
)
def run_(
    name: Annotated[str, Argument(help="An experiment; `fedlocal list experiments` shows them.")],
    scale: Annotated[
        Scale,
        Option(click_type=SCALES, help="quick: small, up to two minutes; paper: as in the text."),
    ] = "quick",
    grid: Annotated[
        Grid, Option(click_type=GRIDS, help="The text's step sizes, or smaller client step sizes too.")
    ] = "text",
    tuning: Annotated[
        Tuning,
        Option(click_type=TUNINGS, help="all pairs of step sizes run to the end; halving drops the worse on the way."),
    ] = "all",
    seeds: Annotated[
        str | None, Option(help="Seeds of data and sampling, e.g. 0,1,2; several give means and 95 % t intervals.")
    ] = None,
    overrides: Annotated[list[str] | None, Option("--set", help="name=value; dots reach inside.")] = None,
    directory: Annotated[Path, Option(help="Where runs are kept.")] = Path("runs"),
    resume: Annotated[bool, Option("--resume", help="Continue the newest unfinished run of this kind.")] = False,
) -> None:
    """Run an experiment of the text: table, figures, and verdicts on claims of the text."""
    from fedlocal import experiments

    with reported(interrupted="stopped; the same command with --resume continues"):
        experiments.run(
            name,
            scale=scale,
            grid=grid,
            tuning=tuning,
            seeds=None if seeds is None else _seeds(seeds),
            overrides=overrides or [],
            root=directory,
            resume=resume,
            console=console,
        )


@commands.command(epilog="Examples:  fedlocal show runs/lasso-1-paper-20260101-120000   |   fedlocal show lasso-1")
def show(
    directory: Annotated[Path, Argument(help="The directory of a finished run; or an experiment, for its settings.")],
) -> None:
    """Show the table and the verdicts of a finished run again, or the settings of an experiment."""
    from fedlocal import experiments

    with reported():
        experiments.show(directory, console)


@commands.command(
    epilog="Example:  fedlocal compare runs/a9a-1e-3-paper-20260101-120000 summary.csv   |   "
    "The author's table for a9a-1e-3:  https://github.com/hongliny/FedAc-NeurIPS20, file out/a9a_1e-03/summary.csv"
)
def compare(
    directory: Annotated[Path, Argument(help="The directory of a finished study of speed-up.")],
    table: Annotated[
        Path, Argument(help="CSV: method (or alg), eta, M, K, best_loss, final_loss; or another run's results.csv.")
    ],
) -> None:
    """Compare every run of a study with a published table, in the light of the noise from seed to seed."""
    from fedlocal.experiments.runner.comparison import compare as compare_with
    from fedlocal.experiments.runner.comparison import show_comparison

    with reported():
        show_comparison(compare_with(directory, table), console)


@commands.command("list", epilog="Example:  fedlocal list methods")
def list_(
    kind: Annotated[
        str | None, Argument(click_type=click.Choice(KINDS), help="What to list; everything when left out.")
    ] = None,
) -> None:
    """List methods, regularisers, mirror maps, problems and experiments, one line each."""
    from fedlocal.core import AbstractProblem

    bases = {"methods": fl.LocalMethod, "regularizers": fl.Regularizer, "mirrors": fl.MirrorMap}
    for wanted in [kind] if kind else KINDS:
        table = Table(title=wanted, title_justify="left", title_style="bold", header_style="bold", box=None)
        table.add_column("name", style="green", no_wrap=True)
        table.add_column("what it is")
        if wanted == "experiments":
            from fedlocal import experiments

            lines = {name: experiments.load(name).title for name in experiments.names()}
        else:
            module, base = getattr(fl, wanted), bases.get(wanted, AbstractProblem)
            items = {name: getattr(module, name) for name in module.__all__}
            lines = {
                name: (inspect.getdoc(item) or "").split("\n")[0]
                for name, item in items.items()
                if (inspect.isclass(item) and issubclass(item, base)) or inspect.isfunction(item)
            }
        for name, line in lines.items():
            table.add_row(name, escape(line))
        console.print(table, "")


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        wanted = "whole numbers with commas between them, e.g. 0,1,2"
        raise ValueError(f"run: --seeds must be {wanted}, got {text!r}") from None
