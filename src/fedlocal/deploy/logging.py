"""What a coordinator or a site shows on its screen: this library's log, and Flower's warnings."""

import linecache
import logging
from types import TracebackType


class ScreenHandler(logging.Handler):
    """Prints to the present standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)


class StopReasonFilter(logging.Filter):
    """Logs in one sentence why a run stopped early, in place of Flower's traceback. Other exceptions keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, Exception) and _is_stop_reason(error):
            self._stopped = True
            logging.getLogger("fedlocal").error("the run stopped: %s", error)
            return False
        return not (self._stopped and record.getMessage().startswith("Exit Code"))


def _is_stop_reason(error: Exception) -> bool:
    """Return True if this library raised the error to say why a run cannot go on."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return isinstance(error, (ValueError, RuntimeError, FloatingPointError)) and _is_raised_here(place)


def _is_raised_here(place: TracebackType | None) -> bool:
    """Return True for a `raise` statement of this library."""
    if place is None or not str(place.tb_frame.f_globals.get("__name__")).startswith("fedlocal."):
        return False
    return linecache.getline(place.tb_frame.f_code.co_filename, place.tb_lineno).lstrip().startswith("raise ")


def configure_logging() -> None:
    """Print what this library logs, each line with the time of day, and of Flower only warnings and errors."""
    log = logging.getLogger("fedlocal")
    if not any(isinstance(handler, ScreenHandler) for handler in log.handlers):
        screen = ScreenHandler()
        screen.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
        log.addHandler(screen)
    log.setLevel(logging.INFO)
    log.propagate = False
    flower = logging.getLogger("flwr")
    flower.setLevel(logging.WARNING)
    if not any(isinstance(known, StopReasonFilter) for known in flower.filters):
        flower.addFilter(StopReasonFilter())
