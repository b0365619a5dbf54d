"""Mirror maps in plain NumPy, written from their definitions, and the table of pairs that conjugate_grad must have."""

from typing import Any

import cvxpy as cp
import jax
import numpy as np
import scipy.special

from fedlocal.core import MirrorMap, Regularizer
from fedlocal.mirrors import DiagonalQuadratic, Entropy, Euclidean, PNorm
from fedlocal.regularizers import (
    L1,
    Box,
    ElasticNet,
    L1Ball,
    LInf,
    LInfBall,
    Lp,
    Monotone,
    NonNegative,
    Simplex,
    SquaredL2,
    TotalVariation,
    Zero,
)
from unit.one_program import for_each

SIZE = 6
P = 1.5
D = np.array([0.3, 2.0, 1.0, 1.0, 5.0, 0.7])
MIRRORS: dict[str, MirrorMap] = {"entropy": Entropy(), "p_norm": PNorm(P), "diagonal": DiagonalQuadratic(D)}
EVERY_MIRROR: dict[str, MirrorMap] = {"euclidean": Euclidean(), **MIRRORS}

PSIS: dict[str, Regularizer] = {
    "zero": Zero(),
    "l1": L1(0.7),
    "squared_l2": SquaredL2(0.4),
    "elastic_net": ElasticNet(0.5, 0.6),
    "l_inf": LInf(0.9),
    "lp": Lp(0.8, P),
    "total_variation": TotalVariation(0.6),
    "monotone": Monotone(),
    "decreasing": Monotone(increasing=False),
    "non_negative": NonNegative(),
    "box": Box(0.2, 0.9),
    "box_with_negative_lower": Box(-1.0, 0.9),
    "l1_ball": L1Ball(1.5),
    "l_inf_ball": LInfBall(0.8),
    "simplex": Simplex(1.3),
}
TERMS: dict[str, Any] = {  # psi and its constraints for cvxpy
    "zero": lambda x: (0.0, []),
    "l1": lambda x: (0.7 * cp.norm1(x), []),
    "squared_l2": lambda x: (0.2 * cp.sum_squares(x), []),
    "elastic_net": lambda x: (0.5 * cp.norm1(x) + 0.3 * cp.sum_squares(x), []),
    "l_inf": lambda x: (0.9 * cp.norm_inf(x), []),
    "lp": lambda x: (0.8 * cp.pnorm(x, P), []),  # pyright: ignore[reportArgumentType]
    "total_variation": lambda x: (0.6 * cp.norm1(x[1:] - x[:-1]), []),
    "monotone": lambda x: (0.0, [x[1:] >= x[:-1]]),
    "decreasing": lambda x: (0.0, [x[1:] <= x[:-1]]),
    "non_negative": lambda x: (0.0, [x >= 0]),
    "box": lambda x: (0.0, [x >= 0.2, x <= 0.9]),
    "box_with_negative_lower": lambda x: (0.0, [x >= -1, x <= 0.9]),
    "l1_ball": lambda x: (0.0, [cp.norm1(x) <= 1.5]),
    "l_inf_ball": lambda x: (0.0, [cp.norm_inf(x) <= 0.8]),
    "simplex": lambda x: (0.0, [cp.sum(x) == 1.3, x >= 0]),
}
_LINK_KEEPS = ["zero", "l1", "non_negative", "l_inf", "total_variation", "monotone", "decreasing"]
WITH: dict[str, list[str]] = {
    "entropy": [name for name in PSIS if name != "lp"],
    "p_norm": [*_LINK_KEEPS, "lp"],
    "diagonal": [name for name in PSIS if name != "lp"],
}
PAIRS = [(mirror, psi) for mirror, names in WITH.items() for psi in names]
FINITE = {"zero", "l1", "squared_l2", "elastic_net", "l_inf", "lp", "total_variation"}  # the others are constraints


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE)


def label(mirror: str, psi: str) -> str:
    return f"{mirror}-{psi}"


TABLE = {label(mirror, psi): (MIRRORS[mirror], PSIS[psi]) for mirror, psi in PAIRS}
conjugates = for_each(lambda pair, y, t: pair[0].conjugate_grad(y, pair[1], t))
psi_values = for_each(lambda pair, x: pair[1].array_value(x))
feasibles = for_each(lambda pair, z: pair[1].prox(z, 0.0))


@jax.jit
def conjugate(mirror: MirrorMap, psi: Regularizer, y: Any, t: Any) -> jax.Array:
    return mirror.conjugate_grad(y, psi, t)


def h(mirror: MirrorMap, x: np.ndarray) -> float:
    match mirror:
        case Entropy():
            return float(np.sum(scipy.special.xlogy(x, x) - x))
        case PNorm():
            return float(np.sum(np.abs(x) ** mirror.p) ** (2 / mirror.p) / 2)
        case DiagonalQuadratic():
            return float(np.sum(mirror.diagonal * x**2) / 2)
    return float(np.sum(x**2) / 2)


def divergence(mirror: MirrorMap, x: np.ndarray, z: np.ndarray) -> float:
    """D_h(x, z), each from a formula of its own."""
    match mirror:
        case Entropy():
            return float(np.sum(scipy.special.kl_div(x, z)))
        case PNorm():  # <grad h(z), z> = ||z||_p^2
            norm = np.linalg.norm(z, mirror.p)
            if norm == 0:
                return h(mirror, x)
            slope = np.sign(z) * (np.abs(z) / norm) ** (mirror.p - 1) * norm
            return h(mirror, x) + h(mirror, z) - float(slope @ x)
        case DiagonalQuadratic():
            return float(np.sum(mirror.diagonal * (x - z) ** 2) / 2)
    return float(np.sum((x - z) ** 2) / 2)


def cvxpy_h(mirror: MirrorMap, x: cp.Variable) -> Any:
    match mirror:
        case Entropy():
            return -cp.sum(cp.entr(x)) - cp.sum(x)
        case PNorm():
            return cp.square(cp.pnorm(x, mirror.p)) / 2
        case DiagonalQuadratic():
            return cp.sum(cp.multiply(mirror.diagonal, cp.square(x))) / 2
    raise TypeError(mirror)
