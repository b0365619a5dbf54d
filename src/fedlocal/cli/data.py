"""Commands about data sets: data list, data fetch, data verify."""

from pathlib import Path
from typing import Annotated

from rich import filesize
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option, Typer

import fedlocal as fl
from fedlocal.cli.output import console, reported, say, stop

commands = Typer(
    name="data",
    no_args_is_help=True,
    help="List, fetch and verify data sets of the LIBSVM collection.",
    epilog="Examples:  fedlocal data list   |   fedlocal data fetch news20   |   fedlocal data verify",
)
FolderOption = Annotated[
    Path | None,
    Option(help="Look here and in its subfolder libsvm, then in the cache ($FEDLOCAL_DATA or ~/.cache/fedlocal)."),
]


@commands.command("list", epilog="Example:  fedlocal data list --folder datasets")
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


@commands.command(
    "fetch", epilog="Examples:  fedlocal data fetch news20   |   fedlocal data fetch w8a --folder datasets"
)
def data_fetch(
    name: Annotated[str, Argument(help="A data set; `fedlocal data list` shows them.")],
    folder: Annotated[
        Path | None, Option(help="Where it goes; the cache ($FEDLOCAL_DATA or ~/.cache/fedlocal) if left out.")
    ] = None,
) -> None:
    """Fetch a data set, unless it is there; it is kept only if its SHA-256 is the one we know."""
    with reported(interrupted="stopped; nothing was kept"):
        path = fl.data.fetch(name, folder)
    say(f"{name} is in {path}")


@commands.command(
    "verify", epilog="Examples:  fedlocal data verify   |   fedlocal data verify news20 --folder datasets"
)
def data_verify(
    name: Annotated[str | None, Argument(help="A data set; every file that is here when left out.")] = None,
    folder: FolderOption = None,
) -> None:
    """Compare files with the SHA-256 that we know (where we know none: that of the first fetch)."""
    from fedlocal.data import catalogue

    names = [name] if name else [known for known in catalogue.KNOWN if catalogue.find(known, folder)]
    wrong: list[Exception] = []
    for each in names:
        try:
            path = fl.data.verify(each, folder)
            say(f"{each} is right: {path}")
        except (ValueError, OSError) as error:
            wrong.append(error)
    if wrong:
        stop("\n".join(map(str, wrong)))
    if not names:
        console.print("no file of a data set is here; `fedlocal data fetch NAME` gets one", highlight=False)
