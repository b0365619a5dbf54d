"""Families: the methods that can be advised, each with how it is built, how it is written, and what the theorems promise it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedlocal.core import LocalMethod, Regularizer
from fedlocal.methods import FedAc, FedAvg, FedDualAvg, FedMiD, MinibatchAcSGD, MinibatchSGD
from fedlocal.theory.bound import Bound, BoundFn, Constants, Setting, tightest
from fedlocal.theory.composite_bounds import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
)
from fedlocal.theory.fed_ac_bounds import (
    fed_ac_one_bound,
    fed_ac_two_bound,
    fed_ac_two_third_order_bound,
    minibatch_ac_sgd_bound,
)
from fedlocal.theory.fed_ac_convex_bounds import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.fed_avg_bounds import (
    fed_avg_convex_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.minibatch_bounds import minibatch_sgd_bound


@dataclass(frozen=True)
class Numbers:
    """What a method of a family is built from."""

    step_size: float
    local_steps: int
    strong_convexity: float
    regularizer: Regularizer | None = None


@dataclass(frozen=True)
class Family:
    """A method with its numbers open."""

    name: str
    build: Callable[[Numbers], LocalMethod]
    code: str  # that builds it, with the numbers' names in braces
    bounds: tuple[tuple[BoundFn, float], ...] = ()  # theorems, and the largest step size times L that each allows
    accelerated: bool = False  # needs a modulus of strong convexity
    predictable: bool = True  # whether the local model knows how it walks

    def best_bound(self, constants: Constants, setting: Setting) -> Bound | None:
        """The smallest value that a theorem promises, with a step size of its own; None where none applies."""
        promised = []
        for bound_fn, largest in self.bounds:
            try:
                as_stated = bound_fn(constants, setting)
                promised += [as_stated, tightest(bound_fn, constants, setting, largest / constants.smoothness)]
            except ValueError:  # a constant that it needs is not known
                continue
        holding = [found for found in promised if found.applies and math.isfinite(found.value)]
        return min(holding, key=lambda found: found.value, default=None)


SMOOTH = (
    Family(
        "FedAc-I",
        lambda n: FedAc.one(step_size=n.step_size, strong_convexity=n.strong_convexity, local_steps=n.local_steps),
        "fl.methods.FedAc.one(step_size={step_size:.6g}, strong_convexity={strong_convexity:.6g}, "
        "local_steps={local_steps})",
        ((fed_ac_one_bound, 1.0), (fed_ac_one_convex_bound, 1.0)),
        accelerated=True,
    ),
    Family(
        "FedAc-II",
        lambda n: FedAc.two(step_size=n.step_size, strong_convexity=n.strong_convexity, local_steps=n.local_steps),
        "fl.methods.FedAc.two(step_size={step_size:.6g}, strong_convexity={strong_convexity:.6g}, "
        "local_steps={local_steps})",
        (
            (fed_ac_two_bound, 1.0),
            (fed_ac_two_third_order_bound, 1.0),
            (fed_ac_two_convex_bound, 1.0),
            (fed_ac_two_third_order_convex_bound, 1.0),
        ),
        accelerated=True,
    ),
    Family(
        "FedAvg",
        lambda n: FedAvg(client_step_size=n.step_size),
        "fl.methods.FedAvg(client_step_size={step_size:.6g})",
        (
            (fed_avg_convex_bound, 0.25),
            (fed_avg_third_order_bound, 0.5),
            (fed_avg_strongly_convex_third_order_bound, 0.25),
        ),
    ),
    Family(
        "MB-AC-SGD",
        lambda n: MinibatchAcSGD(step_size=n.step_size, strong_convexity=n.strong_convexity),
        "fl.methods.MinibatchAcSGD(step_size={step_size:.6g}, strong_convexity={strong_convexity:.6g})",
        ((minibatch_ac_sgd_bound, 1.0),),
        accelerated=True,
    ),
    Family(
        "MB-SGD",
        lambda n: MinibatchSGD(step_size=n.step_size),
        "fl.methods.MinibatchSGD(step_size={step_size:.6g})",
        ((minibatch_sgd_bound, 0.25),),
    ),
)
COMPOSITE = (
    Family(
        "FedDualAvg",
        lambda n: FedDualAvg(client_step_size=n.step_size, regularizer=_psi(n)),
        "fl.methods.FedDualAvg(client_step_size={step_size:.6g}, regularizer=regularizer)",
        ((fed_dual_avg_bounded_gradient_bound, 0.25), (composite_small_step_bound, 0.25)),
    ),
    Family(
        "FedMiD",
        lambda n: FedMiD(client_step_size=n.step_size, regularizer=_psi(n)),
        "fl.methods.FedMiD(client_step_size={step_size:.6g}, regularizer=regularizer)",
        ((composite_small_step_bound, 0.25),),
        predictable=False,  # psi acts on the clients and again on the server
    ),
)
WITHOUT_THEORY = ("FedAvg", "MB-SGD")  # of SMOOTH, for problems that are not convex


def _psi(numbers: Numbers) -> Regularizer:
    assert numbers.regularizer is not None
    return numbers.regularizer
