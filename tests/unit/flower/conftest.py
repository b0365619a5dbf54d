"""Flower and the library are quiet in these tests, and nobody waits long."""

import logging
from collections.abc import Iterator

import pytest

from fedlocal.engines.flower import grids, patience


@pytest.fixture(autouse=True)
def _quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patience, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(grids, "LONGEST_WAIT", 0.02)
    loggers = [logging.getLogger(name) for name in ("flwr", "fedlocal")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
