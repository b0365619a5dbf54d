"""What a coordinator or a site shows on its screen: this library's log, and Flower's warnings."""

import linecache
import logging
import traceback


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
    """Return True if a `raise` statement of this library raised the error to say why a run cannot go on."""
    places = list(traceback.walk_tb(error.__traceback__))
    if not places or not isinstance(error, (ValueError, RuntimeError, FloatingPointError)):
        return False
    frame, line = places[-1]
    is_ours = str(frame.f_globals.get("__name__")).startswith("fedlocal.")
    return is_ours and linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise ")


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
