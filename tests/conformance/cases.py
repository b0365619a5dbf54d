"""The tables of the conformance tests. A new method adds one row to CASES, a new psi or h rows to PAIRS.

Every test runs each row of CASES. PAIRS are further psi and h of FedMiD and FedDualAvg, `h_psi`: there only the formulas
are new, so they skip the comparison of the engines and all samplings but one.
"""

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


def _composite(
    label: str,
    psi: fl.Regularizer,
    make: Callable,
    h: fl.MirrorMap | None = None,
    osp: tuple[bool, ...] = (False, True),
    positive: bool = False,
) -> dict[str, Case]:
    """FedMiD and FedDualAvg, with and without (`_osp`) the proximal map on the clients; make(mask): psi in NumPy."""
    rows, suffix = {}, "" if h is None else "_bregman"
    geometry: dict[str, Any] = {} if h is None else {"mirror_map": h}
    for name, method in (("fed_mid", fl.methods.FedMiD), ("fed_dual_avg", fl.methods.FedDualAvg)):
        run = getattr(transcripts, name + suffix)
        for only_server in osp:
            rows[f"{name}_{label}" + ("_osp" if only_server else "")] = Case(
                method(ETA, SERVER_ETA, psi, prox_on_clients=not only_server, **geometry),
                lambda x0, rounds, mask, run=run, prox=not only_server: run(
                    x0, rounds, ETA, SERVER_ETA, make(mask), prox
                ),
                positive,
            )
    return rows


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
        fl.methods.GeneralFedAc(alpha=3.0, beta=2.5, eta=ETA, gamma=0.08),
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
    "scaffold": Case(
        fl.methods.Scaffold(ETA, SERVER_ETA),
        lambda x0, rounds, mask: transcripts.scaffold(x0, rounds, ETA, SERVER_ETA),
    ),
    "fed_prox": Case(
        fl.methods.FedProx(ETA, 0.8, SERVER_ETA),
        lambda x0, rounds, mask: transcripts.fed_prox(x0, rounds, ETA, 0.8, SERVER_ETA),
    ),
    "proximal_gradient": Case(
        fl.methods.ProximalGradient(ETA, fl.regularizers.L1(0.3)),
        lambda x0, rounds, mask: transcripts.proximal_gradient(x0, rounds, ETA, transcripts.l1(0.3, mask)),
    ),
    "accelerated_proximal_gradient": Case(
        fl.methods.AcceleratedProximalGradient(ETA, fl.regularizers.L1(0.3)),
        lambda x0, rounds, mask: transcripts.accelerated_proximal_gradient(x0, rounds, ETA, transcripts.l1(0.3, mask)),
    ),
}
for _name, (_psi, _make) in PSIS.items():
    CASES |= _composite(_name, _psi, _make)
for _name, _share in {"l1": 0.3, "l2_ball": 0.3, "squared_l2": 0.3, "l1_ocp": 1.0, "l2_ball_ocp": 1.0}.items():
    _psi, _make = PSIS[_name.removesuffix("_ocp")]
    CASES[f"fed_mid_shared_{_name}"] = Case(
        fl.methods.FedMiD(ETA, SERVER_ETA, _psi, client_share=_share),
        lambda x0, rounds, mask, make=_make, share=_share: transcripts.fed_mid_shared(
            x0, rounds, ETA, SERVER_ETA, make(mask), share
        ),
    )
CASES |= _composite(
    "entropy_l1",
    fl.regularizers.L1(0.3),
    lambda mask: transcripts.entropy_l1(0.3, mask),
    fl.mirrors.Entropy(),
    positive=True,
)

MORE_PSIS: dict[str, tuple[fl.Regularizer, Callable]] = {
    "elastic_net": (fl.regularizers.ElasticNet(0.3, 0.4), lambda mask: transcripts.elastic_net(0.3, 0.4, mask)),
    "l2_norm": (fl.regularizers.L2Norm(0.6), lambda mask: transcripts.l2_norm(0.6, mask)),
    "group_l1": (fl.regularizers.GroupL1(0.5), lambda mask: transcripts.group_l1(0.5, [[1, 2, 3], [4, 5, 6]])),
    "l_inf": (fl.regularizers.LInf(0.6), lambda mask: transcripts.l_inf(0.6, mask)),
    "nuclear_ball": (fl.regularizers.NuclearBall(0.4), lambda mask: transcripts.nuclear_ball(0.4, mask, (2, 3))),
    "non_negative": (fl.regularizers.NonNegative(), lambda mask: transcripts.non_negative(mask)),
    "l_inf_ball": (fl.regularizers.LInfBall(0.15), lambda mask: transcripts.l_inf_ball(0.15, mask)),
}
D = np.array([1.0, 0.5, 2.0, 3.0, 0.7, 1.2, 4.0])  # of the diagonal quadratic: the intercept's, then the weights'
P_NORM, DIAGONAL = (
    fl.mirrors.PNorm(1.5),
    fl.mirrors.DiagonalQuadratic({"weights": D[1:].reshape(2, 3), "intercept": 1.0}),
)
MIRRORS: dict[str, tuple[fl.MirrorMap, fl.Regularizer, Callable]] = {
    "entropy_simplex": (
        fl.mirrors.Entropy(),
        fl.regularizers.Simplex(0.28),
        lambda mask: transcripts.entropy_simplex(0.28, mask),
    ),
    "entropy_box": (
        fl.mirrors.Entropy(),
        fl.regularizers.Box(0.01, 0.11),
        lambda mask: transcripts.entropy_box(0.01, 0.11, mask),
    ),
    "p_norm_zero": (P_NORM, fl.regularizers.Zero(), lambda mask: transcripts.p_norm_l1(1.5, 0.0, mask)),
    "p_norm_l1": (P_NORM, fl.regularizers.L1(0.3), lambda mask: transcripts.p_norm_l1(1.5, 0.3, mask)),
    "diagonal_l1": (
        DIAGONAL,
        fl.regularizers.L1(0.3),
        lambda mask: transcripts.diagonal_elastic_net(D, 0.3, 0.0, mask),
    ),
    "diagonal_elastic_net": (
        DIAGONAL,
        fl.regularizers.ElasticNet(0.3, 0.4),
        lambda mask: transcripts.diagonal_elastic_net(D, 0.3, 0.4, mask),
    ),
    "diagonal_box": (
        DIAGONAL,
        fl.regularizers.Box(-0.1, 0.2),
        lambda mask: transcripts.diagonal_box(D, -0.1, 0.2, mask),
    ),
}
PAIRS: dict[str, Case] = {}
for _name, (_psi, _make) in MORE_PSIS.items():
    PAIRS |= _composite(_name, _psi, _make, osp=(False,))
for _name, (_h, _psi, _make) in MIRRORS.items():
    PAIRS |= _composite(_name, _psi, _make, _h, positive="entropy" in _name)
