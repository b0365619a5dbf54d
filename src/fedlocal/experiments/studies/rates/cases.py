"""The terms of the text's table of rates that are measured, each on an instance."""

from typing import Literal, NamedTuple

from fedlocal.theory.bounds.rate_tables import CONVERGENCE, Term

SHARP, UPPER = "sharp", "upper bound"
LETTERS = {"clients": "M", "local_steps": "K", "rounds": "R"}
INVERSE = "1/(mu gamma K)"  # replaces R in the exponents where mu > 0
METHODS = ("FedAvg", "FedAc-I")  # of the study of linear speed-up


class RateCase(NamedTuple):
    """A term in a row of the text's table of rates, and the instance on which it is measured."""

    assumption: str
    method: str
    term: Literal["statistical", "overhead"]
    instance: Literal["quadratic", "kink", "log cosh", "lower bound"]
    claim: str = UPPER  # what the text says about the term

    @property
    def strong(self) -> bool:
        """True if mu > 0."""
        return self.assumption.endswith("mu > 0")

    @property
    def name(self) -> str:
        """The value of the column `case`."""
        return "-".join((self.assumption, self.method, self.term, self.instance)).replace(" ", "")

    @property
    def part(self) -> str:
        """The name in the store, with characters that every file system has."""
        return self.name.replace("mu>0", "strongly-convex").replace("mu=0", "convex")

    def text(self) -> Term:
        """Return the term of the text; of a minimum of two terms, the one of this method."""
        row = self.assumption, self.method.partition("-")[0]
        rate = next(r for r in CONVERGENCE if (r.assumption, r.method) == row)
        if self.term == "statistical":
            return next(one[0] for one in rate.terms if one[0].name == "statistical")
        found = [one for one in rate.overhead() if one[0].name != "acceleration"][-1]
        return found[-1] if self.method == "FedAc-II" else found[0]


CASES = (
    RateCase("second-order, mu > 0", "FedAvg", "statistical", "quadratic"),
    RateCase("second-order, mu > 0", "FedAc-I", "statistical", "quadratic"),
    RateCase("second-order, mu = 0", "FedAvg", "statistical", "quadratic", SHARP),
    RateCase("second-order, mu = 0", "FedAc-I", "statistical", "quadratic"),
    RateCase("second-order, mu > 0", "FedAvg", "overhead", "kink"),
    RateCase("second-order, mu > 0", "FedAc-I", "overhead", "kink"),
    RateCase("second-order, mu > 0", "FedAc-II", "overhead", "kink"),
    RateCase("third-order, mu > 0", "FedAvg", "overhead", "log cosh"),
    RateCase("third-order, mu > 0", "FedAc-II", "overhead", "log cosh"),
    RateCase("second-order, mu = 0", "FedAvg", "overhead", "lower bound", SHARP),
    RateCase("second-order, mu = 0", "FedAc-I", "overhead", "kink"),
    RateCase("second-order, mu = 0", "FedAc-II", "overhead", "kink"),
    RateCase("third-order, mu = 0", "FedAvg", "overhead", "log cosh"),
    RateCase("third-order, mu = 0", "FedAc-II", "overhead", "log cosh"),
)
