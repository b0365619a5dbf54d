"""The command line: parse, call, print."""

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedlocal as fl
from fedlocal.core import AbstractProblem, LocalMethod, MirrorMap, Regularizer

app = typer.Typer(
    name="fedlocal",
    help="Federated optimisation with local methods.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
console = Console()


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    REGULARIZERS = "regularizers"
    MIRRORS = "mirrors"
    PROBLEMS = "problems"


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
    from fedlocal.report.demo import demo as run

    try:
        run(directory, seed, console)
    except KeyboardInterrupt:
        console.print("stopped; run it again for all figures")
        raise typer.Exit(130) from None


@app.command("list", epilog="Example:  fedlocal list methods")
def list_(kind: Annotated[Kind | None, typer.Argument(help="What to list; everything when left out.")] = None) -> None:
    """List methods, regularisers, mirror maps and problems, one line each."""
    modules = {
        Kind.METHODS: (fl.methods, LocalMethod),
        Kind.REGULARIZERS: (fl.regularizers, Regularizer),
        Kind.MIRRORS: (fl.mirrors, MirrorMap),
        Kind.PROBLEMS: (fl.problems, AbstractProblem),
    }
    for wanted in [kind] if kind else list(modules):
        module, base = modules[wanted]
        table = Table(title=wanted.value, title_justify="left", title_style="bold", header_style="bold", box=None)
        table.add_column("name", style="green", no_wrap=True)
        table.add_column("what it is")
        for name in module.__all__:
            item = getattr(module, name)
            if (inspect.isclass(item) and issubclass(item, base)) or inspect.isfunction(item):
                table.add_row(name, escape((inspect.getdoc(item) or "").split("\n")[0]))
        console.print(table, "")


if __name__ == "__main__":
    app()
