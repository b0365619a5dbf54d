"""flower: the same methods between real machines, over Flower (`pip install "fedlocal[flower]"`).

Everything is imported when it is first used: a coordinator's process needs no JAX.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("flwr") is None:
    raise ModuleNotFoundError('fedlocal.flower needs Flower: pip install "fedlocal[flower]"')

if TYPE_CHECKING:
    from fedlocal.flower.checks.site_moments import LossBounds
    from fedlocal.flower.coordinator.outcome import Outcome
    from fedlocal.flower.coordinator.run_log import Event
    from fedlocal.flower.coordinator.server import start
    from fedlocal.flower.coordinator.strategy import Strategy
    from fedlocal.flower.coordinator.waiting import TooFewSites
    from fedlocal.flower.messages.grids import InProcess
    from fedlocal.flower.site.app import client_app
    from fedlocal.flower.site.policy import Agreement, Policy

__all__ = [
    "Agreement",
    "Event",
    "InProcess",
    "LossBounds",
    "Outcome",
    "Policy",
    "Strategy",
    "TooFewSites",
    "client_app",
    "start",
]

_MODULES = {
    "Agreement": "site.policy",
    "Event": "coordinator.run_log",
    "InProcess": "messages.grids",
    "LossBounds": "checks.site_moments",
    "Outcome": "coordinator.outcome",
    "Policy": "site.policy",
    "Strategy": "coordinator.strategy",
    "TooFewSites": "coordinator.waiting",
    "client_app": "site.app",
    "start": "coordinator.server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
