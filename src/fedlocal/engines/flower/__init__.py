"""flower: the same methods between real machines, over Flower (`pip install "fedlocal[flower]"`)."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('fedlocal.engines.flower needs Flower: pip install "fedlocal[flower]"') from error

from fedlocal.engines.flower.agreement import Agreement
from fedlocal.engines.flower.client import client_app
from fedlocal.engines.flower.events import Event
from fedlocal.engines.flower.grids import InProcess
from fedlocal.engines.flower.loss_bounds import LossBounds
from fedlocal.engines.flower.outcome import Outcome
from fedlocal.engines.flower.patience import TooFewSites
from fedlocal.engines.flower.policy import Policy
from fedlocal.engines.flower.server import start
from fedlocal.engines.flower.strategy import Strategy

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
