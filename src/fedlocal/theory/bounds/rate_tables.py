"""The text's two tables of rates as data: formulas, exponents, values, and how many rounds linear speed-up takes."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd
from scipy.optimize import root_scalar

from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.util import checks

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
FACTORS, DIVISORS = ("L", "Q", "sigma", "zeta", "zeta_*", "B"), ("mu", "M", "K", "R")
SYNCHRONOUS = ("deterministic", "statistical")  # terms that are there without any local step
SpeedupMethod = Literal["FedAvg", "FedAc"]
METHODS: tuple[str, ...] = get_args(SpeedupMethod)


class Exponents(NamedTuple):
    """How an overhead term scales with clients, local steps and rounds, other things equal."""

    term: str
    M: float
    K: float
    R: float


class Term(NamedTuple):
    """A product of powers of the letters of the text."""

    name: str
    powers: Mapping[str, Fraction | int]

    def __str__(self) -> str:
        above = " ".join(_power(letter, self.powers[letter]) for letter in FACTORS if letter in self.powers)
        divisors = [letter for letter in DIVISORS if letter in self.powers]
        if all(self.powers[letter] == -HALF for letter in divisors):
            return f"{above}/sqrt({' '.join(divisors)})"
        below = " ".join(_power(letter, -self.powers[letter]) for letter in divisors)
        return f"{above}/{below}" if len(divisors) == 1 else f"{above}/({below})"

    def value(self, letters: Mapping[str, float]) -> float:
        return math.prod(letters[letter] ** float(power) for letter, power in self.powers.items())

    def exponents(self) -> Exponents:
        return Exponents(self.name, *(float(self.powers.get(letter, 0)) for letter in ("M", "K", "R")))


class Rate(NamedTuple):
    """A row: the sum over `terms` of the smallest of each tuple."""

    table: str
    assumption: str
    method: str
    side: str  # "upper" or "lower" bound
    terms: tuple[tuple[Term, ...], ...]
    reference: str
    strongly_convex: bool = False  # with an exponential decay that the table does not spell out
    third_order: bool = False

    def __str__(self) -> str:
        parts = [str(one[0]) if len(one) == 1 else f"min{{{', '.join(map(str, one))}}}" for one in self.terms]
        return " + ".join(["exp. decay", *parts] if self.strongly_convex else parts)

    def overhead(self) -> Iterator[tuple[Term, ...]]:
        return (one for one in self.terms if one[0].name not in SYNCHRONOUS)


def rates(constants: Constants | None = None, setting: Setting | None = None) -> pd.DataFrame:
    r"""The rows of the text's tables of convergence rates, without constants, logarithms and exponentially decaying terms.

    Columns: table, assumption, method, side (upper or lower bound), rate, reference, overhead: the `Exponents` of each term that
    infrequent communication causes, those of a minimum one after the other. With constants and setting also value, which is NaN
    where the row asks for more than the constants say: strong convexity, homogeneous clients, or a number that is not known.
    Rows with third-order smoothness take the fourth moment for sigma.

    Args:
        constants, setting: as for every bound (`fedlocal.theory.bounds`); both or neither. None: no values.

    Reference: dissertation, tables table:complexity and tab:conv:rate. Differs from it: nothing.

    >>> table = rates(Constants(1.0, 1.0, 1.0, strong_convexity=0.5), Setting(clients=2, rounds=4, local_steps=8))
    >>> row = table[(table.assumption == "second-order, mu > 0") & (table.method == "FedAvg")].iloc[0]
    >>> row.rate
    'exp. decay + sigma^2/(mu M K R) + L sigma^2/(mu^2 K R^2)'
    >>> row.overhead, float(row.value)
    ((Exponents(term='drift', M=0.0, K=-1.0, R=-2.0),), 0.0625)
    """
    if (constants is None) != (setting is None):
        missing = "constants" if constants is None else "setting"
        raise ValueError(f"rates: {missing} must be given, as the other one is, got None")
    rows = []
    for rate in RATES:
        overhead = tuple(term.exponents() for one in rate.overhead() for term in one)
        columns: dict[str, Any] = {name: getattr(rate, name) for name in ("table", "assumption", "method", "side")}
        columns |= {"rate": str(rate), "reference": rate.reference, "overhead": overhead}
        if constants is not None and setting is not None:
            columns["value"] = _value(rate, constants, setting)
        rows.append(columns)
    return pd.DataFrame(rows)


def rounds_for_linear_speedup(method: SpeedupMethod, constants: Constants, clients: int, total_steps: int) -> float:
    r"""The smallest R, as a real number >= 1, for which infrequent communication costs at most what noise costs anyway.

    With T = K R fixed, of the row of table tab:conv:rate for this method (strongly convex where mu > 0, third-order
    smooth where Q is known): overhead terms <= statistical term. More rounds than steps are none: infinite. In orders
    of M and T, for strongly convex objectives FedAvg needs M and FedAc M^(1/3) rounds (M^(1/2) T^(-1/2) and M^(1/6)
    T^(-1/6) with third-order smoothness), for convex ones M^(3/2) T^(1/2) and min{M^(3/4) T^(1/4), M^(2/3) T^(1/3)}.

    Args:
        method: "FedAvg" or "FedAc".
        constants: the `Constants` of the problem; with third_order, fourth_moment must be known, too.
        clients, total_steps: M and T = K R, at least 1.

    Reference: dissertation, introduction of chapter fedac and its footnote. Differs from it: the deterministic term does not
    count, since for FedAvg it does not depend on R at all; FedAc's row for mu > 0 and known Q supposes R >= sqrt(L/mu), which is
    not checked here.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0, strong_convexity=0.25)
    >>> round(rounds_for_linear_speedup("FedAvg", constants, clients=16, total_steps=10_000), 6)
    64.0
    """
    owner = "rounds_for_linear_speedup"
    checks.choice(owner, "method", method, METHODS)
    letters = {"M": checks.whole(owner, "clients", clients)}
    steps = checks.whole(owner, "total_steps", total_steps)
    kind = constants.strong_convexity > 0, constants.third_order is not None
    rate = next(row for row in CONVERGENCE if (row.strongly_convex, row.third_order) == kind and row.method == method)
    if rate.third_order:
        constants.known(owner, "fourth_moment")
    letters |= _constants(rate, constants)

    def excess(log_rounds: float) -> float:
        rounds = math.exp(log_rounds)
        at = letters | {"K": steps / rounds, "R": rounds}
        overhead = math.fsum(min(term.value(at) for term in one) for one in rate.overhead())
        statistical = next(one[0].value(at) for one in rate.terms if one[0].name == "statistical")
        return math.log(overhead / statistical) if overhead > 0 else -math.inf

    if excess(0.0) <= 0:
        return 1.0
    if excess(math.log(steps)) > 0:
        return math.inf
    return math.exp(root_scalar(excess, bracket=(0.0, math.log(steps)), xtol=1e-14).root)


def _value(rate: Rate, constants: Constants, setting: Setting) -> float:
    letters = _constants(rate, constants)
    letters |= {"M": setting.clients, "K": setting.local_steps, "R": setting.rounds}
    named = {letter for one in rate.terms for term in one for letter in term.powers}
    homogeneous = named & {"zeta", "zeta_*"} or constants.heterogeneity == 0
    if not homogeneous or not named <= set(letters) or (rate.strongly_convex and constants.strong_convexity == 0):
        return math.nan
    return math.fsum(min(term.value(letters) for term in one) for one in rate.terms)


def _constants(rate: Rate, constants: Constants) -> dict[str, float]:
    """The known ones by the letters of the text."""
    letters = {
        "L": constants.smoothness,
        "mu": constants.strong_convexity,
        "sigma": constants.fourth_moment if rate.third_order else constants.noise,
        "B": constants.distance,
        "Q": constants.third_order,
        "zeta": constants.heterogeneity,
        "zeta_*": constants.optimum_heterogeneity,
    }
    return {letter: value for letter, value in letters.items() if value is not None}


def _power(letter: str, power: Fraction | int) -> str:
    if power == 1:
        return letter
    return f"{letter}^{power}" if Fraction(power).denominator == 1 else f"{letter}^({power})"


def _one(name: str, **powers: Fraction | int) -> tuple[Term]:
    return (Term(name, powers),)


EXACT = _one("statistical", sigma=2, mu=-1, M=-1, K=-1, R=-1)
AVERAGE = _one("statistical", sigma=1, B=1, M=-HALF, K=-HALF, R=-HALF)
DESCENT = _one("deterministic", L=1, B=2, K=-1, R=-1)
ACCELERATED = _one("deterministic", L=1, B=2, K=-1, R=-2)
AVG_DRIFT = _one("drift", L=THIRD, sigma=2 * THIRD, B=4 * THIRD, K=-THIRD, R=-2 * THIRD)
OLD_DRIFT = _one("drift", L=THIRD, sigma=2 * THIRD, B=4 * THIRD, K=-2 * THIRD, R=-2 * THIRD)
SPREAD = _one("heterogeneity", L=THIRD, zeta=2 * THIRD, B=4 * THIRD, R=-2 * THIRD)
SPREAD_AT_OPTIMUM = (Term("heterogeneity", {"L": THIRD, "zeta_*": 2 * THIRD, "B": 4 * THIRD, "R": -2 * THIRD}),)
SPREAD_OR_START = (*_one("heterogeneity", L=1, B=2, R=-1), *SPREAD_AT_OPTIMUM)

FIRST, SECOND = "table:complexity", "tab:conv:rate"
KHALED, ICML, NEURIPS = "Khaled et al. 2020", "Woodworth et al. 2020a", "Woodworth et al. 2020b"
AVG = (DESCENT, AVERAGE, AVG_DRIFT)
HOMOGENEOUS, HETEROGENEOUS = "convex, homogeneous", "convex, heterogeneous"

COMPLEXITY = (
    Rate(FIRST, HOMOGENEOUS, "FedAvg", "upper", AVG, KHALED),
    Rate(FIRST, HETEROGENEOUS, "FedAvg", "upper", (*AVG, SPREAD), f"{KHALED}, {NEURIPS}"),
    Rate(FIRST, HOMOGENEOUS, "FedAvg", "lower", AVG, "thm:fedavg:lb:homo"),
    Rate(FIRST, HETEROGENEOUS, "FedAvg", "lower", (*AVG, SPREAD_AT_OPTIMUM), "thm:fedavg:lb:hetero"),
    Rate(FIRST, HOMOGENEOUS, "FedAvg", "lower", (AVERAGE, OLD_DRIFT), ICML),
    Rate(FIRST, HETEROGENEOUS, "FedAvg", "lower", (AVERAGE, OLD_DRIFT, SPREAD_OR_START), NEURIPS),
)

SC_AVG = _one("drift", L=1, sigma=2, mu=-2, K=-1, R=-2)
SC_ONE = _one("drift", L=1, sigma=2, mu=-2, K=-1, R=-3)
SC_TWO = _one("drift", L=2, sigma=2, mu=-3, K=-1, R=-4)
SC_AVG_THIRD = _one("third_order", Q=2, sigma=4, mu=-5, K=-2, R=-4)
SC_TWO_THIRD = _one("third_order", Q=2, sigma=4, mu=-5, K=-2, R=-8)
ONE = _one("drift", L=THIRD, sigma=2 * THIRD, B=4 * THIRD, K=-THIRD, R=-1)
TWO = _one("drift", L=HALF, sigma=HALF, B=3 * HALF, K=-HALF / 2, R=-1)
AVG_THIRD = _one("third_order", Q=THIRD, sigma=2 * THIRD, B=5 * THIRD, K=-THIRD, R=-2 * THIRD)
TWO_THIRD = _one("third_order", Q=THIRD, sigma=2 * THIRD, B=5 * THIRD, K=-THIRD, R=-4 * THIRD)
TWO_NOISE = _one("acceleration", L=THIRD, sigma=2 * THIRD, B=4 * THIRD, M=-THIRD, K=-THIRD, R=-1)


def _row(assumption: str, method: str, reference: str, *terms: tuple[Term, ...]) -> Rate:
    strongly_convex, third_order = assumption.endswith("mu > 0"), assumption.startswith("third")
    return Rate(SECOND, assumption, method, "upper", terms, reference, strongly_convex, third_order)


CONVERGENCE = (
    _row("second-order, mu > 0", "FedAvg", f"fedavg:a1, {ICML}", EXACT, SC_AVG),
    _row("second-order, mu > 0", "FedAc", "fedac:a1", EXACT, SC_ONE + SC_TWO),
    _row("third-order, mu > 0", "FedAvg", "fedavg:a2", EXACT, SC_AVG_THIRD),
    _row("third-order, mu > 0", "FedAc", "fedacii:a2", EXACT, SC_TWO_THIRD),
    _row("second-order, mu = 0", "FedAvg", f"thm:fedavg:2o:ub, {ICML}", *AVG),
    _row("second-order, mu = 0", "FedAc", "fedaci:a1:gcvx, fedacii:a1:gcvx", ACCELERATED, AVERAGE, ONE + TWO),
    _row("third-order, mu = 0", "FedAvg", "thm:fedavg:3o:ub", DESCENT, AVERAGE, AVG_THIRD),
    _row("third-order, mu = 0", "FedAc", "fedacii:a2:gcvx", ACCELERATED, AVERAGE, TWO_NOISE, TWO_THIRD),
)
RATES = COMPLEXITY + CONVERGENCE
