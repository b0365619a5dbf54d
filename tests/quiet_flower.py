"""Flower and the library are quiet in tests of runs in this process, and no run waits long."""

import logging
from collections.abc import Iterator

import pytest

from fedlocal.flower.coordinator import waiting
from fedlocal.flower.messages import grids


@pytest.fixture(autouse=True)
def _quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Imported by a conftest.py or a test file, it is around every test there."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(grids, "LONGEST_WAIT", 0.02)
    loggers = [logging.getLogger(name) for name in ("flwr", "fedlocal")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
