"""Bound: what a theorem says, term by term; with Constants of a problem and the Setting of a run, the words of all bounds."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Literal, NoReturn, TypeAlias, get_args

from scipy.optimize import minimize_scalar

from fedlocal.util import checks

Form = Literal["full", "simplified"]
FORMS: tuple[str, ...] = get_args(Form)
REQUIRED = ("smoothness", "noise", "distance", "strong_convexity")  # of `Constants`
DECADES = 12  # of step sizes below the largest one that are searched for the best


@dataclass(frozen=True)
class Constants:
    """What the theorems know about a problem, with its letter in the text: numbers >= 0, or None where not known.

    Args:
        smoothness: L > 0: every F_m has a gradient with this Lipschitz constant.
        noise: sigma: E ||g - grad F_m||^2 <= sigma^2 everywhere.
        distance: B = ||x0 - x*||.
        strong_convexity: mu.
        heterogeneity: zeta: ||grad F_m - grad F|| <= zeta everywhere.
        optimum_heterogeneity: zeta_*: mean_m ||grad F_m(x*)||^2 <= zeta_*^2.
        fourth_moment: the sigma of the third-order theorems: E ||g - grad F_m||^4 <= sigma^4.
        third_order: Q: the Hessian of F_m has this Lipschitz constant.
        gradient_bound: G: ||g|| <= G everywhere.
        gap: Delta = F(x0) - min F.
        mirror_distance: sqrt(D_h(x*, x0)), the B of the composite theorems; None: Euclidean.

    >>> round(Constants(smoothness=1.0, noise=0.5, distance=2.0).divergence, 6)
    1.414214
    """

    smoothness: float
    noise: float
    distance: float
    strong_convexity: float = 0.0
    heterogeneity: float | None = 0.0
    optimum_heterogeneity: float | None = 0.0
    fourth_moment: float | None = None
    third_order: float | None = None
    gradient_bound: float | None = None
    gap: float | None = None
    mirror_distance: float | None = None

    def __post_init__(self) -> None:
        checks.number("Constants", "smoothness", self.smoothness, above=0)
        for name, value in vars(self).items():
            if name in REQUIRED or value is not None:
                checks.number("Constants", name, value, at_least=0)

    @property
    def divergence(self) -> float:
        """sqrt(D_h(x*, x0)); B / sqrt(2) for the Euclidean h."""
        return self.distance / math.sqrt(2) if self.mirror_distance is None else self.mirror_distance

    def __getattr__(self, name: str) -> NoReturn:
        """Raise a TypeError for what a Setting has: a bound was given its two arguments in the other order."""
        raise _missing(self, name, ("clients", "rounds", "local_steps"), "the setting")

    def known(self, owner: str, name: str) -> float:
        """A constant that a theorem needs, or a ValueError that names it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{owner}: constants.{name} must be a number >= 0, got None (not known)")
        return value

    def letters(self, setting: "Setting") -> tuple[float, float, float, float, int, int, int]:
        """L, B, sigma, mu, M, K, R."""
        own = self.smoothness, self.distance, self.noise, self.strong_convexity
        return *own, setting.clients, setting.local_steps, setting.rounds


OPTIONAL = tuple(field.name for field in fields(Constants) if field.name not in REQUIRED)  # None where not known
CONSTANTS = (*(field.name for field in fields(Constants)), "divergence", "known", "letters")


def _missing(given: object, name: str, other: Collection[str], place: str) -> Exception:
    """The error for an attribute that `given` lacks: a TypeError if it is one of `other`, what stands in that place."""
    kind = type(given).__name__
    if name in other:
        return TypeError(f"bounds take (constants, setting), got {kind} in the place of {place}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}")


@dataclass(frozen=True)
class Setting:
    """How a run is cut.

    Args:
        clients, rounds, local_steps: M clients, R rounds, K local steps in each; whole numbers >= 1.
    """

    clients: int
    rounds: int
    local_steps: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checks.whole("Setting", name, value)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise a TypeError for what Constants have: a bound was given its two arguments in the other order."""
        raise _missing(self, name, CONSTANTS, "the constants")


@dataclass(frozen=True)
class Bound:
    """A theorem's right-hand side in one setting."""

    theorem: str  # its label in the text
    method: str  # the method's name in fedlocal, e.g. "FedAc-I"
    measure: str  # what is bounded, e.g. "E F(x_hat) - F*"
    terms: Mapping[str, float]  # named, in the order of the text
    step_size: float | None  # the one the value holds for; None where the text only says that there is one
    conditions: Mapping[str, bool]  # what the theorem asks for, in words, and whether it holds
    regularization: float | None = None  # lambda of the l2-augmented objective, for general convex FedAc
    product: bool = False  # step_size is that of the server times that of the clients, not that of the clients alone

    @property
    def value(self) -> float:
        """The sum of the terms."""
        return math.fsum(self.terms.values())

    @property
    def applies(self) -> bool:
        """Whether all conditions hold."""
        return all(self.conditions.values())


BoundFn: TypeAlias = Callable[..., Bound]  # (constants, setting, step_size=None, form="full") -> Bound


def ratio(numerator: float, denominator: float) -> float:
    """numerator / denominator where 0 / 0 is 0 and x / 0 is infinite: the limits that the theorems mean."""
    if numerator == 0:
        return 0.0
    return math.inf if denominator == 0 else numerator / denominator


def logged(amount: float, power: int, offset: float, argument: float) -> float:
    """amount log^power(offset + argument); zero where the amount is, though the argument is infinite then."""
    return amount * math.log(offset + argument) ** power if amount else 0.0


def homogeneous(constants: Constants) -> dict[str, bool]:
    """The condition that all clients share one distribution; what is not known does not hold."""
    return {"homogeneous clients": constants.heterogeneity == 0}


def is_simplified(owner: str, step_size: float | None, form: Form) -> bool:
    """Whether the O(.) form is asked for, which speaks of no particular step size."""
    checks.choice(owner, "form", form, FORMS)
    if step_size is None:
        return form == "simplified"
    checks.number(owner, "step_size", step_size, above=0)
    if form == "simplified":
        raise ValueError(f"{owner}: step_size must be None for form 'simplified', got {step_size}")
    return False


def smallest(bounds: list[Bound]) -> Bound:
    """The smallest of the bounds that apply, or of all where none does."""
    return min([bound for bound in bounds if bound.applies] or bounds, key=lambda bound: bound.value)


def tightest(bound_fn: BoundFn, constants: Constants, setting: Setting, largest: float) -> Bound:
    """The bound at the step size of (0, largest] that makes it smallest, found numerically.

    Args:
        bound_fn: a bound that takes any step size, such as `fed_avg_convex_bound`.
        constants, setting: as for every bound (`fedlocal.theory.bounds`).
        largest: the largest step size that the theorem allows, such as 1/(4 L).
    """

    def log_value(log_step: float) -> float:
        value = bound_fn(constants, setting, step_size=math.exp(log_step)).value
        return math.log(max(value, 1e-300))

    low, high = math.log(largest) - DECADES * math.log(10), math.log(largest)
    grid = [low + (high - low) * i / 60 for i in range(61)]
    values = [log_value(point) for point in grid]
    best = min(range(61), key=values.__getitem__)
    around = (grid[max(best - 1, 0)], grid[min(best + 1, 60)])
    found = minimize_scalar(log_value, bounds=around, method="bounded", options={"xatol": 1e-6})
    log_step = found.x if found.fun < values[best] else grid[best]
    return bound_fn(constants, setting, step_size=min(math.exp(log_step), largest))
