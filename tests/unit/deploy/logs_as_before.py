"""Apps in this process change how this library and Flower log; afterwards all is as it was."""

import logging

import pytest


@pytest.fixture(autouse=True)
def logs_as_before():
    """Imported by a test file, it is around every test there."""
    logs = [logging.getLogger(name) for name in ("fedlocal", "flwr")]
    before = [(log, log.level, log.propagate, list(log.handlers), list(log.filters)) for log in logs]
    yield
    for log, level, propagate, handlers, filters in before:
        log.setLevel(level)
        log.propagate, log.handlers[:], log.filters[:] = propagate, handlers, filters
