"""Problems and lemmas of the study of discrepancies, and the measured quantities that the lemmas bound."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings
from fedlocal.theory import Constants, Setting
from fedlocal.theory.bounds import fed_ac_stability as stability
from fedlocal.theory.bounds.composite import fed_dual_avg_quadratic_discrepancy_bound
from fedlocal.theory.bounds.fed_avg_stability import client_discrepancy_bound


class LemmaProblem(NamedTuple):
    """A problem with the constants that the lemmas need."""

    problem: AbstractProblem
    constants: Constants
    x0: Params
    solution: Params
    optimum: float

    @property
    def step_size(self) -> float:
        return 1 / (4 * self.constants.smoothness)

    @property
    def vanilla_gamma(self) -> float:
        return math.sqrt(self.step_size / self.constants.strong_convexity)


class Lemma(NamedTuple):
    """A lemma: the measured column that it bounds, and how this is written."""

    label: str
    column: str
    written: str
    bound: Callable[[LemmaProblem, Setting], float]
    potential: str | None = None  # the column that the analysis decreases
    narrowed: str = ""  # how the measured quantity is narrower than the lemma's


def _one(task: LemmaProblem, setting: Setting, vanilla: bool = False) -> float:
    gamma = task.vanilla_gamma if vanilla else None
    return stability.fed_ac_one_discrepancy_bound(task.constants, setting, task.step_size, gamma)


CROSS = "mean |Δmd| |Δ(x, ag)|"
LEMMAS = {
    "FedAvg": Lemma(
        "lem:fedavg:2o:ub:2",
        "discrepancy",
        "mean |x_m - mean x|²",
        lambda t, s: client_discrepancy_bound(t.constants, s, t.step_size).value,
        narrowed=", on average over clients (the lemma: every client)",
    ),
    "FedDualAvg": Lemma(
        "quad:stability",
        "discrepancy_y",
        "mean |y_m - mean y|²",
        lambda t, s: fed_dual_avg_quadratic_discrepancy_bound(t.constants, s, t.step_size),
    ),
    "FedAc-I": Lemma("fedaci:stab:main", "cross_term", CROSS, _one, "psi"),
    "FedAc-vanilla": Lemma("fedaci:stab:main", "cross_term", CROSS, partial(_one, vanilla=True), "psi"),
    "FedAc-II": Lemma(
        "fedacii:stab:main",
        "gradient_discrepancy",
        "|∇F(mean md) - mean ∇F(md_m)|²",
        lambda t, s: stability.fed_ac_two_third_order_discrepancy_bound(t.constants, s, t.step_size),
        "phi",
    ),
}
RUNS = {
    "quadratic": ["FedAvg", "FedAc-I", "FedAc-vanilla"],
    "unequal": ["FedAvg", "FedDualAvg"],
    "a9a": ["FedAvg", "FedAc-I", "FedAc-vanilla", "FedAc-II"],
}
TITLES = {"quadratic": "equal quadratics", "unequal": "unequal quadratics", "a9a": "a9a"}


def over_seeds(part: Any, column: str) -> Any:
    """Return mean and standard error of a column for every round and step."""
    grouped = part.groupby(["round", "step"])[column]
    out = grouped.agg(["mean", "std", "count"]).reset_index()
    out["error"] = out["std"].fillna(0) / np.sqrt(out["count"])
    return out[["round", "step", "mean", "error"]]


def growth(part: Any) -> Any:
    """Return the bounded quantity by local step, averaged over rounds and seeds."""
    return part[part["step"] > 0].groupby("step")["measured"].mean()


def potential_bound(settings: DiscrepancySettings, task: LemmaProblem, part: Any, name: str, k: int) -> np.ndarray:
    """Return (R,) the lemma's right side after each round, with the largest discrepancy measured in the rounds before it."""
    inside = over_seeds(part[part["step"] < k], "measured")
    apart = inside.groupby("round")["mean"].max().cummax()
    two = name == "FedAc-II"
    bound = stability.fed_ac_two_perturbed_bound if two else stability.fed_ac_one_perturbed_bound
    gamma = task.vanilla_gamma if name == "FedAc-vanilla" else None
    after = [Setting(settings.clients, r, k) for r in range(1, settings.rounds + 1)]
    return np.array([bound(task.constants, s, task.step_size, apart[s.rounds - 1], gamma).value for s in after])
