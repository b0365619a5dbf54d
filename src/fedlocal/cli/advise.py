"""The command advise."""

from pathlib import Path
from typing import Annotated

import click
from typer import Argument, Option, Typer

from fedlocal.cli.output import console, reported

commands = Typer()
TASKS = click.Choice(["logistic", "least-squares"])


@commands.command(
    "advise",
    epilog="Examples:  fedlocal advise a9a --rounds 100 --l2 1e-3 --clients 64   |   "
    "fedlocal advise heart.csv --target disease --sites hospital --rounds 30 --l1 0.01   |   "
    "fedlocal advise w8a --rounds 50 --pilot",
)
def advise_command(
    data: Annotated[
        str,
        Argument(help="A data set of `fedlocal data list` with two classes, or a CSV, Parquet, npz or LIBSVM file."),
    ],
    rounds: Annotated[int, Option(min=1, help="How often the clients can communicate.")],
    task: Annotated[str, Option(click_type=TASKS, help="What is fitted.")] = "logistic",
    target: Annotated[str | None, Option(help="The column to predict, in tables.")] = None,
    sites: Annotated[str | None, Option(help="The column that says which client a row belongs to.")] = None,
    clients: Annotated[int, Option(min=1, help="Clients that draw from all rows, where there are no sites.")] = 10,
    l2: Annotated[float, Option(min=0, help="Strength of an l2 penalty.")] = 0.0,
    l1: Annotated[float, Option(min=0, help="Strength of an l1 penalty.")] = 0.0,
    local_steps: Annotated[
        int | None, Option(min=1, help="The most steps of a client in a round; one pass, at most 256, if left out.")
    ] = None,
    batch_size: Annotated[int, Option(min=1, help="Examples per step.")] = 1,
    pilot: Annotated[bool, Option("--pilot", help="Run the best methods and let the measurement decide.")] = False,
    seed: Annotated[int, Option(min=0, help="Everything random is a function of this number.")] = 0,
    standardize: Annotated[
        bool | None,
        Option(
            "--standardize/--no-standardize",
            help="Bring columns to mean 0 and variance 1 first (sparse ones only to variance 1), with empty cells at the mean, "
            "as deploy does. Files are standardised if left out, data sets of `fedlocal data list` are not.",
        ),
    ] = None,
    directory: Annotated[
        Path | None, Option(help="A new folder for table, figure and program; advice, advice-2, ... if left out.")
    ] = None,
) -> None:
    """Say which method, step size and number of local steps to use on a data set, and how sure that is."""
    given = {name: value for name, value in locals().items() if name != "directory"}
    from fedlocal.cli.advice_request import AdviceRequest, advise_data, new_folder  # imported here because it is slow

    with reported((ValueError, TypeError, OSError), interrupted="stopped; nothing was kept"):
        advise_data(AdviceRequest(**given), new_folder(directory), console)
