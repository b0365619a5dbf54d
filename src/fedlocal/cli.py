"""The command line: parse, call, print."""

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich import filesize
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedlocal as fl
from fedlocal.deploy.commands import commands

app = typer.Typer(
    name="fedlocal",
    help="Federated optimisation with local methods.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
data = typer.Typer(no_args_is_help=True, help="List, fetch and verify data sets of the LIBSVM collection.")
app.add_typer(
    data,
    name="data",
    epilog="Examples:  fedlocal data list   |   fedlocal data fetch news20   |   fedlocal data verify",
)
app.add_typer(commands)
console = Console()
FolderOption = Annotated[
    Path | None,
    typer.Option(
        help="Look here and in its subfolder libsvm, then in the cache ($FEDLOCAL_DATA or ~/.cache/fedlocal)."
    ),
]


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    REGULARIZERS = "regularizers"
    MIRRORS = "mirrors"
    PROBLEMS = "problems"
    EXPERIMENTS = "experiments"


class Scale(StrEnum):
    """How large an experiment is run."""

    QUICK = "quick"
    PAPER = "paper"


class Task(StrEnum):
    """What is fitted to data."""

    LOGISTIC = "logistic"
    LEAST_SQUARES = "least-squares"


class GridName(StrEnum):
    """Which step sizes are tried."""

    TEXT = "text"
    WIDE = "wide"


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"fedlocal {fl.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated optimisation with local methods: FedAvg, FedAc, FedMiD, FedDualAvg."""


@app.command(epilog="Example:  fedlocal demo --directory pictures --seed 1")
def demo(
    directory: Annotated[Path, typer.Option(help="Where figures and tables go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Everything random is a function of this number.")] = 0,
) -> None:
    """Show why FedDualAvg beats FedMiD on a sparse problem, and FedAc beats FedAvg when communication is rare."""
    from fedlocal.experiments.demo import demo as run

    try:
        run(directory, seed, console)
    except OSError as error:
        _say_and_stop(error)
    except KeyboardInterrupt:
        console.print("stopped; run it again for all figures")
        raise typer.Exit(130) from None


@app.command(
    "run",
    epilog="Examples:  fedlocal run lasso-1   |   fedlocal run lasso-1 --scale paper --seeds 0,1,2   |   "
    "fedlocal run nuclear-1 --set rounds=50 --set score.window=10   |   fedlocal run lasso-1 --scale paper --resume",
)
def run_(
    name: Annotated[str, typer.Argument(help="An experiment; `fedlocal list experiments` shows them.")],
    scale: Annotated[Scale, typer.Option(help="quick: seconds; paper: as in the text.")] = Scale.QUICK,
    grid: Annotated[
        GridName, typer.Option(help="The text's step sizes, or smaller client step sizes too.")
    ] = GridName.TEXT,
    seeds: Annotated[str | None, typer.Option(help="Seeds of data and sampling, e.g. 0,1,2.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="name=value; dots reach inside.")] = None,
    directory: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest unfinished run of this kind.")] = False,
) -> None:
    """Run an experiment of the text: table, figures, and verdicts on claims of the text."""
    from fedlocal import experiments

    try:
        experiments.run(
            name,
            scale=scale.value,
            grid=grid.value,
            seeds=None if seeds is None else _whole_numbers("--seeds", seeds),
            overrides=overrides or [],
            root=directory,
            resume=resume,
            console=console,
        )
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    except KeyboardInterrupt:
        console.print("stopped; the same command with --resume continues")
        raise typer.Exit(130) from None


@app.command(epilog="Example:  fedlocal show runs/lasso-1-paper-20260101-120000")
def show(directory: Annotated[Path, typer.Argument(help="The directory of a finished run.")]) -> None:
    """Show the table and the verdicts of a finished run again."""
    from fedlocal import experiments

    try:
        experiments.show(directory, console)
    except (ValueError, OSError) as error:
        _say_and_stop(error)


@app.command(epilog="Example:  fedlocal compare runs/a9a-1e-3-paper-20260101-120000 published.csv")
def compare(
    directory: Annotated[Path, typer.Argument(help="The directory of a finished study of speed-up.")],
    table: Annotated[
        Path, typer.Argument(help="CSV: method, eta, M, K, best_loss, final_loss; or another run's results.csv.")
    ],
) -> None:
    """Compare every run of a study with a published table, in the light of the noise from seed to seed."""
    from fedlocal.experiments.compare import compare as compare_with
    from fedlocal.experiments.compare import show_comparison

    try:
        show_comparison(compare_with(directory, table), console)
    except (ValueError, OSError) as error:
        _say_and_stop(error)


@app.command(
    epilog="Examples:  fedlocal advise a9a --rounds 100 --l2 1e-3 --clients 64   |   "
    "fedlocal advise heart.csv --target disease --sites hospital --rounds 30 --l1 0.01   |   "
    "fedlocal advise w8a --rounds 50 --pilot"
)
def advise(
    data: Annotated[
        str,
        typer.Argument(
            help="A data set of `fedlocal data list` with two classes, or a CSV, Parquet, npz or LIBSVM file."
        ),
    ],
    rounds: Annotated[int, typer.Option(min=1, help="How often the clients can communicate.")],
    task: Annotated[Task, typer.Option(help="What is fitted.")] = Task.LOGISTIC,
    target: Annotated[str | None, typer.Option(help="The column to predict, in tables.")] = None,
    sites: Annotated[str | None, typer.Option(help="The column that says which client a row belongs to.")] = None,
    clients: Annotated[
        int, typer.Option(min=1, help="Clients that draw from all rows, where there are no sites.")
    ] = 10,
    l2: Annotated[float, typer.Option(min=0, help="Strength of an l2 penalty.")] = 0.0,
    l1: Annotated[float, typer.Option(min=0, help="Strength of an l1 penalty.")] = 0.0,
    local_steps: Annotated[
        int | None,
        typer.Option(min=1, help="The most steps of a client in a round; one pass, at most 256, if left out."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 1,
    pilot: Annotated[
        bool, typer.Option("--pilot", help="Run the best methods and let the measurement decide.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Everything random is a function of this number.")] = 0,
    standardize: Annotated[
        bool | None,
        typer.Option(
            "--standardize/--no-standardize",
            help="Bring columns to mean 0 and variance 1 first (sparse ones only to variance 1), with empty cells at the mean, "
            "as deploy does. Files are standardised if left out, data sets of `fedlocal data list` are not.",
        ),
    ] = None,
    directory: Annotated[Path, typer.Option(help="Where table, figure and program go.")] = Path("advice"),
) -> None:
    """Say which method, step size and number of local steps to use on a data set, and how sure that is."""
    from fedlocal.experiments.advising import Wish, advise_data

    try:
        wish = Wish(
            data, rounds, task.value, target, sites, clients, l2, l1, local_steps, batch_size, pilot, seed, standardize
        )
        advise_data(wish, directory, console)
    except (ValueError, TypeError, OSError) as error:
        _say_and_stop(error)
    except KeyboardInterrupt:
        console.print("stopped; nothing was kept")
        raise typer.Exit(130) from None


@app.command("list", epilog="Example:  fedlocal list methods")
def list_(kind: Annotated[Kind | None, typer.Argument(help="What to list; everything when left out.")] = None) -> None:
    """List methods, regularisers, mirror maps, problems and experiments, one line each."""
    from fedlocal.core import AbstractProblem

    modules = {
        Kind.METHODS: (fl.methods, fl.LocalMethod),
        Kind.REGULARIZERS: (fl.regularizers, fl.Regularizer),
        Kind.MIRRORS: (fl.mirrors, fl.MirrorMap),
        Kind.PROBLEMS: (fl.problems, AbstractProblem),
    }
    for wanted in [kind] if kind else list(Kind):
        table = Table(title=wanted.value, title_justify="left", title_style="bold", header_style="bold", box=None)
        table.add_column("name", style="green", no_wrap=True)
        table.add_column("what it is")
        if wanted is Kind.EXPERIMENTS:
            from fedlocal import experiments

            for name in experiments.names():
                table.add_row(name, escape(experiments.load(name).title))
            console.print(table, "")
            continue
        module, base = modules[wanted]
        for name in module.__all__:
            item = getattr(module, name)
            if (inspect.isclass(item) and issubclass(item, base)) or inspect.isfunction(item):
                table.add_row(name, escape((inspect.getdoc(item) or "").split("\n")[0]))
        console.print(table, "")


@data.command("list", epilog="Example:  fedlocal data list --folder datasets")
def data_list(folder: FolderOption = None) -> None:
    """List data sets: size, source, and where they are, if they are here."""
    from fedlocal.data import catalogue

    table = Table(header_style="bold", box=None)
    table.add_column("name", style="green", no_wrap=True)
    for header in ("rows", "features", "size"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("source, licence")
    table.add_column("where", overflow="fold")
    for name, entry in catalogue.KNOWN.items():
        size = "not known" if entry.size is None else filesize.decimal(entry.size)
        where = escape(catalogue.whereabouts(name, folder)) or "not here"
        table.add_row(name, f"{entry.rows:,}", f"{entry.features:,}", size, entry.source, where)
    console.print(table)


@data.command("fetch", epilog="Examples:  fedlocal data fetch news20   |   fedlocal data fetch w8a --folder datasets")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set; `fedlocal data list` shows them.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where it goes; the cache ($FEDLOCAL_DATA or ~/.cache/fedlocal) if left out.")
    ] = None,
) -> None:
    """Fetch a data set, unless it is there; it is kept only if its SHA-256 is the one we know."""
    try:
        path = fl.data.fetch(name, folder)
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    except KeyboardInterrupt:
        console.print("stopped; nothing was kept")
        raise typer.Exit(130) from None
    console.print(f"{name} is in {escape(str(path))}", highlight=False, soft_wrap=True)


@data.command("verify", epilog="Examples:  fedlocal data verify   |   fedlocal data verify news20 --folder datasets")
def data_verify(
    name: Annotated[str | None, typer.Argument(help="A data set; every file that is here when left out.")] = None,
    folder: FolderOption = None,
) -> None:
    """Compare files with the SHA-256 that we know (where we know none: that of the first fetch)."""
    from fedlocal.data import catalogue

    names = [name] if name else [known for known in catalogue.KNOWN if catalogue.find(known, folder)]
    wrong: list[Exception] = []
    for each in names:
        try:
            path = fl.data.verify(each, folder)
            console.print(f"{each} is right: {escape(str(path))}", highlight=False, soft_wrap=True)
        except (ValueError, OSError) as error:
            wrong.append(error)
    if wrong:
        _say_and_stop(ValueError("\n".join(map(str, wrong))))
    if not names:
        console.print("no file of a data set is here; `fedlocal data fetch NAME` gets one", highlight=False)


def _whole_numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"run: {option} must be whole numbers with commas between them, e.g. 0,1,2, got {text!r}"
        ) from None


def _say_and_stop(error: Exception) -> NoReturn:
    console.print(f"[red]{escape(str(error))}[/]", highlight=False)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()
