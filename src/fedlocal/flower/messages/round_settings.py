"""RoundSettings: what the server asks of a site in a round, as plain values."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx

from fedlocal.core import AbstractProblem
from fedlocal.simulation.plan import Plan, Sampling

FORMAT = 1
PREFIX = "settings."
MOST_DRAWS = 1 << 27  # rows that a site draws or shuffles in a round


@dataclass(frozen=True)
class RoundSettings:
    """A site's part of a round. Of the other sites it tells only how many rows the largest one has."""

    round: int
    client: int  # number of the site among all
    seed: int
    weights: str
    local_steps: int | None = None
    local_epochs: int | None = None
    batch_size: int | None = None
    largest: int | None = None  # examples of the largest site, on which the shuffles of all depend; None without epochs

    def to_config(self) -> dict[str, Any]:
        """For a ConfigRecord, which takes no None."""
        values = {**vars(self), "format": FORMAT}
        return {PREFIX + name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RoundSettings":
        """Read the settings from a message's plain values; raise ValueError if they are wrong."""
        values = {n.removeprefix(PREFIX): v for n, v in config.items() if n.startswith(PREFIX)}
        if values.pop("format", None) != FORMAT:
            instead = "install the same fedlocal on all machines"
            raise ValueError(f"the round's settings have another format than {FORMAT}: {instead}")
        known = {"round", "client", "seed", "weights", "local_steps", "local_epochs", "batch_size", "largest"}
        wrong = sorted(set(values) - known) or sorted({"round", "client", "seed", "weights"} - set(values))
        if wrong:
            raise ValueError(f"the round's settings have no proper {wrong[0]!r}")
        for name, value in values.items():
            fine = isinstance(value, str) if name == "weights" else type(value) is int and 0 <= value < 2**31
            if not fine:
                raise ValueError(f"{name} of the round's settings is {value!r}")
        return cls(**values)

    def plan(self, problem: AbstractProblem) -> Plan:
        """Return the site's part of the plan that all sites share; `problem` has this site's rows only."""
        sizes = problem.sizes()
        rows = max(self.largest or 0, 1 if sizes is None else int(sizes[0]))
        drawn = (self.local_epochs or 0) * rows + (self.local_steps or 0) * (self.batch_size or 0)
        if drawn > MOST_DRAWS:
            limit = f"at most {MOST_DRAWS} are drawn"
            raise ValueError(f"client_app: the round's settings draw {drawn} rows in a round; {limit}")
        weights: Any = self.weights  # `Plan.make` checks it
        sampling = Sampling(self.local_steps, self.local_epochs, self.batch_size, None, weights, self.seed)
        plan = Plan.make(problem, sampling, owner="client_app")
        plan = eqx.tree_at(lambda p: p.first, plan, self.client)
        return replace(plan, largest=max(plan.largest, self.largest or 0))
