"""The contract of callbacks, and how a run calls them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from fedlocal.core import Params
from fedlocal.util import checks

Row = dict[str, float]  # of the history: a value for each column
CallbackFunction = Callable[[int, Row, Params], object]  # of (round, row, x)


class Callback(ABC):
    """Follows a run: what happens at its start, after every evaluation and at its end."""

    def start(self, configuration: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: B027  (nothing to do by default)
        """Prepare for a run.

        Args:
            configuration: the arguments of the run as plain values.
            rows: the rows that the history has already, of a run that is resumed; `evaluated` is not called for them.
        """

    @abstractmethod
    def evaluated(self, round: int, row: Row, x: Params) -> None:
        """Take note of an evaluation.

        Args:
            round: rounds done.
            row: the new row of the history.
            x: the point, a pytree of float64 arrays.
        """

    def end(self, error: BaseException | None) -> None:  # noqa: B027  (nothing to do by default)
        """Close what `start` has opened.

        Args:
            error: what ended the run, e.g. a KeyboardInterrupt; None if the run came to its end.
        """


class FunctionCallback(Callback):
    """A user's function of (round, row, x)."""

    def __init__(self, function: CallbackFunction):
        self.function = function

    def evaluated(self, round: int, row: Row, x: Params) -> None:
        self.function(round, row, x)


def check_callbacks(owner: str, callbacks: Sequence[Callback | CallbackFunction]) -> tuple[Callback, ...]:
    """Return the callbacks of a run, or raise an error that begins with `owner` and says what is wrong with them."""
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"{owner}: callbacks must be a list, got {type(callbacks).__name__}")
    checked: list[Callback] = []
    for callback in callbacks:
        if isinstance(callback, type):
            raise TypeError(f"{owner}: callbacks holds the class {callback.__name__}; give {callback.__name__}(...)")
        if not isinstance(callback, Callback):
            if not callable(callback):
                wanted = "functions of (round, row, x) or objects of fl.callbacks"
                raise TypeError(f"{owner}: callbacks must be {wanted}, got {callback!r}")
            checks.takes(owner, "callbacks", callback, ("round", "row", "x"))
            callback = FunctionCallback(callback)
        checked.append(callback)
    return tuple(checked)


@contextmanager
def following(callbacks: Sequence[Callback], configuration: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[None]:
    """Start the callbacks of a run, and end all that have started however the body ends."""
    with ExitStack() as stack:
        for callback in callbacks:
            callback.start(configuration, [dict(row) for row in rows])
            stack.push(partial(_end, callback))
        yield


def _end(callback: Callback, kind: object, error: BaseException | None, trace: object) -> None:
    callback.end(error)
