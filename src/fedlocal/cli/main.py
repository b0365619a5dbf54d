"""The command `fedlocal`: its groups of commands, and the version."""

from typing import Annotated

from typer import Exit, Option, Typer

import fedlocal as fl
from fedlocal.cli import advise, app_commands, data, experiments, process_commands
from fedlocal.cli.output import console

app = Typer(
    name="fedlocal",
    help="Federated optimisation with local methods.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    add_completion=False,
)
for group in (experiments, advise, data, app_commands, process_commands):
    app.add_typer(group.commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"fedlocal {fl.__version__}", highlight=False)
        raise Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated optimisation with local methods: FedAvg, FedAc, FedMiD, FedDualAvg."""
