"""A hospital with sixty patients and the app that `fedlocal deploy` writes by default, for tests in this process."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fedlocal.flower.site.app import SiteApp
from hostile.hostile_coordinator import Coordinator, opened, patients, write_hospital

SHARED = "shared_hospital"  # name of its folder
_runs = itertools.count(10)


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SiteApp, dict[str, Any]]]:
    """The app and the node's configuration, with default policy and agreement."""
    app, node = write_hospital(tmp_path_factory.mktemp(SHARED), patients())
    yield app, node
    Coordinator(app, node).end()


@pytest.fixture(autouse=True)
def _end_sites() -> Iterator[None]:
    """End the processes of the sites that a test began. The hospital that all tests share goes on."""
    yield
    for coordinator in opened:
        if SHARED not in str(coordinator.node.get("data")):
            coordinator.end()
    opened.clear()


@pytest.fixture
def run() -> int:
    """A run that nobody asked for yet."""
    return next(_runs)


@pytest.fixture
def coordinator(hospital: tuple[SiteApp, dict[str, Any]], run: int) -> Coordinator:
    """A coordinator that begins a run and has asked for the site's moments, which it claims to be those of all."""
    asking = Coordinator(*hospital)
    asking.run = run
    asking.claim(asking.own_moments())
    return asking
