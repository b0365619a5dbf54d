"""Families: the methods that `advise` compares, each with its constructor, its code and the theorems that bound its error."""

import math
from dataclasses import dataclass
from functools import partial

from fedlocal.core import Regularizer, Zero
from fedlocal.methods.table import METHODS, MethodRow
from fedlocal.theory.bounds import fed_ac, fed_ac_augmented, fed_ac_convex, fed_avg
from fedlocal.theory.bounds.bound import Bound, BoundFn, Constants, Setting, tightest
from fedlocal.theory.bounds.composite import composite_small_step_bound, fed_dual_avg_bounded_gradient_bound
from fedlocal.theory.bounds.fed_mid import fed_mid_constraint_bound, fed_mid_osp_bound
from fedlocal.theory.bounds.minibatch import minibatch_sgd_bound


@dataclass(frozen=True)
class Family:
    """A method without its parameters."""

    row: MethodRow  # of the table of methods
    code: str  # Python that builds it, with the parameters' names in braces
    bounds: tuple[tuple[BoundFn, float], ...] = ()  # theorems, and the largest step size times L that each allows
    augmented_bounds: tuple[BoundFn, ...] = ()  # theorems about runs on the l2-augmented objective, for any lambda
    bound_of_psi: BoundFn | None = None  # one that takes the regulariser; its own step size is good
    predictable: bool = True  # True if the local model can predict its error

    @property
    def name(self) -> str:
        return self.row.label

    @property
    def accelerated(self) -> bool:
        """True if it needs a modulus of strong convexity."""
        return self.row.accelerated

    def best_bound(
        self,
        constants: Constants,
        setting: Setting,
        regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
        regularization: float = 0.0,
    ) -> Bound | None:
        """Return the smallest bound of the theorems that apply, each with its own step size; None if none applies.

        With a regularization lambda > 0 these are bounds of runs on F + lambda/2 ||x - x0||^2 with this lambda, otherwise on F.
        """
        promised = []
        for bound_fn, largest in self._bounds(regularizer, regularization, constants.smoothness):
            try:
                promised.append(bound_fn(constants, setting))
                if largest is not None:
                    promised.append(tightest(bound_fn, constants, setting, largest / constants.smoothness))
            except ValueError:  # the theorem needs a constant that is not known
                continue
        about = (found for found in promised if (found.regularization or 0.0) == regularization)
        holding = [found for found in about if found.applies and math.isfinite(found.value)]
        return min(holding, key=lambda found: found.value, default=None)

    def regularizations(self, constants: Constants, setting: Setting) -> list[float]:
        """Return the lambdas that the theorems about the augmented objective choose, of those that apply."""
        found = []
        for bound_fn, _ in self.bounds:
            try:
                found.append(bound_fn(constants, setting))
            except ValueError:  # as above
                continue
        return sorted({bound.regularization for bound in found if bound.regularization is not None and bound.applies})

    def _bounds(
        self, regularizer: Regularizer, regularization: float, smoothness: float
    ) -> list[tuple[BoundFn, float | None]]:
        """Return bounds, and the largest step sizes times L; None where the bound's own step size is taken."""
        if regularization > 0:
            largest = smoothness / (smoothness + regularization)
            given = [(partial(bound_fn, regularization=regularization), largest) for bound_fn in self.augmented_bounds]
            return [*given, *((bound_fn, None) for bound_fn, _ in self.bounds)]
        own = [] if self.bound_of_psi is None else [(partial(self.bound_of_psi, regularizer=regularizer), None)]
        return [*self.bounds, *own]


ARGUMENTS = "(step_size={step_size:.6g}, strong_convexity={strong_convexity:.6g}, local_steps={local_steps})"
SMOOTH = (
    Family(
        METHODS["fed_ac_one"],
        f"fl.methods.FedAc.one{ARGUMENTS}",
        ((fed_ac.fed_ac_one_bound, 1.0), (fed_ac_convex.fed_ac_one_convex_bound, 1.0)),
        (fed_ac_augmented.fed_ac_one_augmented_bound,),
    ),
    Family(
        METHODS["fed_ac_two"],
        f"fl.methods.FedAc.two{ARGUMENTS}",
        (
            (fed_ac.fed_ac_two_bound, 1.0),
            (fed_ac.fed_ac_two_third_order_bound, 1.0),
            (fed_ac_convex.fed_ac_two_convex_bound, 1.0),
            (fed_ac_convex.fed_ac_two_third_order_convex_bound, 1.0),
        ),
        (fed_ac_augmented.fed_ac_two_augmented_bound, fed_ac_augmented.fed_ac_two_third_order_augmented_bound),
    ),
    Family(
        METHODS["fed_avg"],
        "fl.methods.FedAvg(client_step_size={step_size:.6g})",
        (
            (fed_avg.fed_avg_convex_bound, 0.25),
            (fed_avg.fed_avg_third_order_bound, 0.5),
            (fed_avg.fed_avg_strongly_convex_third_order_bound, 0.25),
        ),
    ),
    Family(
        METHODS["minibatch_ac_sgd"],
        "fl.methods.MinibatchAcSGD(step_size={step_size:.6g}, strong_convexity={strong_convexity:.6g})",
        ((fed_ac.minibatch_ac_sgd_bound, 1.0),),
    ),
    Family(
        METHODS["minibatch_sgd"], "fl.methods.MinibatchSGD(step_size={step_size:.6g})", ((minibatch_sgd_bound, 0.25),)
    ),
)
COMPOSITE = (
    Family(
        METHODS["fed_dual_avg"],
        "fl.methods.FedDualAvg(client_step_size={step_size:.6g}, regularizer=regularizer)",
        ((fed_dual_avg_bounded_gradient_bound, 0.25), (composite_small_step_bound, 0.25)),
    ),
    Family(
        METHODS["fed_mid"],
        "fl.methods.FedMiD(client_step_size={step_size:.6g}, regularizer=regularizer)",
        bound_of_psi=fed_mid_constraint_bound,
        predictable=False,  # psi acts on the clients and again on the server
    ),
    Family(
        METHODS["fed_mid_osp"],
        "fl.methods.FedMiD(client_step_size={step_size:.6g}, regularizer=regularizer, prox_on_clients=False)",
        bound_of_psi=fed_mid_osp_bound,
        predictable=False,  # clients walk in all coordinates
    ),
)
WITHOUT_THEORY = ("FedAvg", "MB-SGD")  # of SMOOTH, for problems that are not convex
