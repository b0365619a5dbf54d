"""What the commands of a deployment print."""

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

console = Console()
FolderArgument = Annotated[Path, typer.Argument(help="The app's folder, as `fedlocal deploy` wrote it.")]


def say(text: Any) -> None:
    """Print a text as it is."""
    console.print(escape(str(text)), highlight=False, soft_wrap=True)


def stop(error: Exception | str, code: int = 2) -> NoReturn:
    """Print an error and end with this exit code."""
    console.print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
    raise typer.Exit(code)
