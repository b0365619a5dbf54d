"""What all commands print to: the console, and errors as one sentence."""

from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

console = Console()


def stop_with_error(error: Exception) -> NoReturn:
    """Print the message of an error and end the command with exit code 2."""
    console.print(f"[red]{escape(str(error))}[/]", highlight=False)
    raise typer.Exit(2)


def stop_interrupted(sentence: str) -> NoReturn:
    """Print what an interrupted command leaves behind and end it with exit code 130."""
    console.print(sentence)
    raise typer.Exit(130) from None
