"""The command `fedlocal`: its groups of commands, and the version."""

from typing import Annotated

import typer

import fedlocal as fl
from fedlocal.cli import advise, app_commands, data, experiments, process_commands
from fedlocal.cli.output import console

app = typer.Typer(
    name="fedlocal",
    help="Federated optimisation with local methods.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
app.add_typer(experiments.commands)
app.add_typer(advise.commands)
app.add_typer(
    data.commands,
    name="data",
    epilog="Examples:  fedlocal data list   |   fedlocal data fetch news20   |   fedlocal data verify",
)
app.add_typer(app_commands.commands)
app.add_typer(process_commands.commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"fedlocal {fl.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated optimisation with local methods: FedAvg, FedAc, FedMiD, FedDualAvg."""
