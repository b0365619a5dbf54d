"""A job: what the server asks of a site in a round, as plain values."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx

from fedlocal.core import AbstractProblem
from fedlocal.engines.plan import Plan

FORMAT = 1
PREFIX = "job."
MOST_DRAWS = 1 << 27  # rows that a site draws or shuffles in a round


@dataclass(frozen=True)
class Job:
    """Who does what in a round. A site knows no more of the others than its own number and the size of the largest."""

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
    def from_config(cls, config: dict[str, Any]) -> "Job":
        """The job in a message's plain values, or what is wrong with it."""
        values = {n.removeprefix(PREFIX): v for n, v in config.items() if n.startswith(PREFIX)}
        if values.pop("format", None) != FORMAT:
            raise ValueError(f"the job has another format than {FORMAT}: install the same fedlocal on all machines")
        known = {"round", "client", "seed", "weights", "local_steps", "local_epochs", "batch_size", "largest"}
        wrong = sorted(set(values) - known) or sorted({"round", "client", "seed", "weights"} - set(values))
        if wrong:
            raise ValueError(f"the job has no proper {wrong[0]!r}")
        for name, value in values.items():
            fine = isinstance(value, str) if name == "weights" else type(value) is int and 0 <= value < 2**31
            if not fine:
                raise ValueError(f"{name} of the job is {value!r}")
        return cls(**values)

    def plan(self, problem: AbstractProblem) -> Plan:
        """The site's part of the plan that all share; the problem is the site's alone."""
        sizes = problem.sizes()
        rows = max(self.largest or 0, 1 if sizes is None else int(sizes[0]))
        drawn = (self.local_epochs or 0) * rows + (self.local_steps or 0) * (self.batch_size or 0)
        if drawn > MOST_DRAWS:
            raise ValueError(f"client_app: the job draws {drawn} rows in a round; at most {MOST_DRAWS} are drawn")
        plan = Plan.make(
            problem,
            local_steps=self.local_steps,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            clients_per_round=None,
            weights=self.weights,
            seed=self.seed,
            owner="client_app",
        )
        plan = eqx.tree_at(lambda p: p.first, plan, self.client)
        largest = max(plan.largest, self.largest or 0)
        return replace(plan, largest=largest)
