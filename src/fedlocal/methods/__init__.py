"""One file per algorithm. A method is data plus pure functions; any engine can run it."""

from fedlocal.methods.accelerated_proximal_gradient import AcceleratedProximalGradient
from fedlocal.methods.agd import AGD
from fedlocal.methods.fed_ac import FedAc, GeneralFedAc
from fedlocal.methods.fed_avg import FedAvg
from fedlocal.methods.fed_dual_avg import FedDualAvg
from fedlocal.methods.fed_mid import FedMiD
from fedlocal.methods.fed_prox import FedProx
from fedlocal.methods.minibatch_ac_sgd import MinibatchAcSGD
from fedlocal.methods.minibatch_sgd import MinibatchSGD
from fedlocal.methods.proximal_gradient import ProximalGradient
from fedlocal.methods.scaffold import Scaffold
from fedlocal.methods.subgradient_fed_avg import SubgradientFedAvg

__all__ = [
    "AGD",
    "AcceleratedProximalGradient",
    "FedAc",
    "FedAvg",
    "FedDualAvg",
    "FedMiD",
    "FedProx",
    "GeneralFedAc",
    "MinibatchAcSGD",
    "MinibatchSGD",
    "ProximalGradient",
    "Scaffold",
    "SubgradientFedAvg",
]


def __dir__() -> list[str]:
    return sorted(__all__)
