"""talk_plainly: what a coordinator or a site says on its screen: our sentences, and Flower's warnings."""

import logging


class Screen(logging.Handler):
    """Prints to wherever output goes at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)


def talk_plainly() -> None:
    """Show what this library logs, one line each with the time of day, and of Flower warnings and errors only."""
    log = logging.getLogger("fedlocal")
    if not any(isinstance(handler, Screen) for handler in log.handlers):
        screen = Screen()
        screen.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
        log.addHandler(screen)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("flwr").setLevel(logging.WARNING)
