"""The table of all methods: every conformance test runs each row. A new method adds one row here."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fedlocal as fl
from oracles import transcripts

ETA, SERVER_ETA, MU, STEPS = 0.05, 0.7, 0.1, 4


class Case(NamedTuple):
    """A method, its transcript from the text, and the regulariser as the transcript knows it."""

    method: fl.LocalMethod
    transcript: Callable[[np.ndarray, Any, np.ndarray], list[np.ndarray]]  # (x0, rounds, mask) -> solutions
    positive: bool = False  # whether it needs a positive starting point


def _ac(parameters: tuple[float, float, float]) -> Callable:
    alpha, beta, gamma = parameters
    return lambda x0, rounds, mask: transcripts.fed_ac(x0, rounds, alpha, beta, ETA, gamma)


def _composite(name: str, make_psi: Callable, prox_on_clients: bool) -> Callable:
    run = getattr(transcripts, name)
    return lambda x0, rounds, mask: run(x0, rounds, ETA, SERVER_ETA, make_psi(mask), prox_on_clients)


def _entropic(name: str, prox_on_clients: bool) -> Callable:
    run = getattr(transcripts, name)
    return lambda x0, rounds, mask: run(x0, rounds, ETA, SERVER_ETA, 0.3, mask, prox_on_clients)


PSIS: dict[str, tuple[fl.Regularizer, Callable]] = {
    "zero": (fl.regularizers.Zero(), lambda mask: transcripts.zero()),
    "l1": (fl.regularizers.L1(0.3), lambda mask: transcripts.l1(0.3, mask)),
    "squared_l2": (fl.regularizers.SquaredL2(0.4), lambda mask: transcripts.squared_l2(0.4, mask)),
    "l1_ball": (fl.regularizers.L1Ball(0.5), lambda mask: transcripts.l1_ball(0.5, mask)),
    "l2_ball": (fl.regularizers.L2Ball(0.4), lambda mask: transcripts.l2_ball(0.4, mask)),
    "box": (fl.regularizers.Box(-0.1, 0.2), lambda mask: transcripts.box(-0.1, 0.2, mask)),
    "nuclear": (fl.regularizers.Nuclear(0.3), lambda mask: transcripts.nuclear(0.3, mask, (2, 3))),
}

CASES: dict[str, Case] = {
    "fed_avg": Case(
        fl.methods.FedAvg(ETA, SERVER_ETA),
        lambda x0, rounds, mask: transcripts.fed_avg(x0, rounds, ETA, SERVER_ETA),
    ),
    "fed_ac_one": Case(
        fl.methods.FedAc.one(step_size=ETA, strong_convexity=MU, local_steps=STEPS),
        _ac(transcripts.fed_ac_one_parameters(ETA, MU, STEPS)),
    ),
    "fed_ac_two": Case(
        fl.methods.FedAc.two(step_size=ETA, strong_convexity=MU, local_steps=STEPS),
        _ac(transcripts.fed_ac_two_parameters(ETA, MU, STEPS)),
    ),
    "fed_ac_vanilla": Case(
        fl.methods.FedAc.vanilla(step_size=ETA, strong_convexity=MU), _ac(transcripts.vanilla_parameters(ETA, MU))
    ),
    "fed_ac_free": Case(
        fl.methods.FedAc(alpha=3.0, beta=2.5, eta=ETA, gamma=0.08),
        lambda x0, rounds, mask: transcripts.fed_ac(x0, rounds, 3.0, 2.5, ETA, 0.08),
    ),
    "minibatch_sgd": Case(
        fl.methods.MinibatchSGD(ETA), lambda x0, rounds, mask: transcripts.minibatch_sgd(x0, rounds, ETA)
    ),
    "minibatch_ac_sgd": Case(
        fl.methods.MinibatchAcSGD(ETA, MU), lambda x0, rounds, mask: transcripts.minibatch_ac_sgd(x0, rounds, ETA, MU)
    ),
    "agd": Case(fl.methods.AGD(8.0, MU), lambda x0, rounds, mask: transcripts.agd(x0, rounds, 8.0, MU)),
    "subgradient_fed_avg": Case(
        fl.methods.SubgradientFedAvg(ETA, fl.regularizers.L1(0.3), SERVER_ETA),
        lambda x0, rounds, mask: transcripts.subgradient_fed_avg(
            x0, rounds, ETA, SERVER_ETA, transcripts.l1(0.3, mask)
        ),
    ),
    "proximal_gradient": Case(
        fl.methods.ProximalGradient(ETA, fl.regularizers.L1(0.3)),
        lambda x0, rounds, mask: transcripts.proximal_gradient(x0, rounds, ETA, transcripts.l1(0.3, mask)),
    ),
}
for _name, (_psi, _make) in PSIS.items():
    for _osp in (False, True):
        _label = _name + ("_osp" if _osp else "")
        CASES[f"fed_mid_{_label}"] = Case(
            fl.methods.FedMiD(ETA, SERVER_ETA, _psi, prox_on_clients=not _osp), _composite("fed_mid", _make, not _osp)
        )
        CASES[f"fed_dual_avg_{_label}"] = Case(
            fl.methods.FedDualAvg(ETA, SERVER_ETA, _psi, prox_on_clients=not _osp),
            _composite("fed_dual_avg", _make, not _osp),
        )
for _osp in (False, True):
    _label = "entropy_osp" if _osp else "entropy"
    _kwargs = {
        "regularizer": fl.regularizers.L1(0.3),
        "mirror_map": fl.mirrors.Entropy(),
        "prox_on_clients": not _osp,
    }
    CASES[f"fed_mid_{_label}"] = Case(
        fl.methods.FedMiD(ETA, SERVER_ETA, **_kwargs), _entropic("fed_mid_entropy", not _osp), positive=True
    )
    CASES[f"fed_dual_avg_{_label}"] = Case(
        fl.methods.FedDualAvg(ETA, SERVER_ETA, **_kwargs), _entropic("fed_dual_avg_entropy", not _osp), positive=True
    )
