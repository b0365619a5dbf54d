"""What all commands print to: the console, sentences, and errors as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

console = Console()


def say(text: Any) -> None:
    """Print a text as it is."""
    console.print(escape(str(text)), highlight=False, soft_wrap=True)


def stop(error: Exception | str, code: int = 2) -> NoReturn:
    """Print an error and end the command with this exit code."""
    console.print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def reported(
    errors: tuple[type[Exception], ...] = (ValueError, OSError), interrupted: str | None = None
) -> Iterator[None]:
    """End the command with the message of an error that its user can mend.

    Args:
        errors: the kinds of these errors.
        interrupted: what to print after Ctrl-C, with exit code 130; None leaves it to others.
    """
    try:
        yield
    except errors as error:
        stop(error)
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        console.print(interrupted)
        raise typer.Exit(130) from None
