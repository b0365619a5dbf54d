"""Apps in this process change how this library and Flower log; afterwards all is as it was."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    logs = [logging.getLogger(name) for name in ("fedlocal", "flwr")]
    before = [(log, log.level, log.propagate, list(log.handlers)) for log in logs]
    yield
    for log, level, propagate, handlers in before:
        log.setLevel(level)
        log.propagate, log.handlers[:] = propagate, handlers
