"""DeployOptions: the options of `fedlocal deploy`. None means that a default is chosen."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedlocal.core.types import WEIGHTS
from fedlocal.deploy.defaults import AGGREGATES
from fedlocal.util import checks

OWNER = "deploy"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


@dataclass(frozen=True)
class DeployOptions:
    """Options of `fedlocal deploy`, each checked when it is given."""

    sites: tuple[str, ...] | None = None
    target: str | None = None
    task: str | None = None
    method: str | None = None
    client_step_size: float | None = None
    server_step_size: float | None = None
    l1: float | None = None
    l2: float | None = None
    rounds: int | None = None
    local_steps: int | None = None
    local_epochs: int | None = None
    batch_size: int | None = None
    weights: str | None = None
    min_clients: int | None = None
    tol: float | None = None
    aggregate: str | None = None
    standardize: bool = True
    seed: int = 0
    address: str = "coordinator.example.org:8000"

    def __post_init__(self) -> None:
        for check, names in (
            (partial(checks.number, above=0), ("client_step_size", "server_step_size", "tol")),
            (partial(checks.number, at_least=0), ("l1", "l2")),
            (checks.whole, ("rounds", "local_steps", "local_epochs", "batch_size", "min_clients")),
            (partial(checks.choice, options=AGGREGATES), ("aggregate",)),
            (partial(checks.choice, options=WEIGHTS), ("weights",)),
        ):
            for name in names:
                if getattr(self, name) is not None:
                    check(OWNER, option(name), getattr(self, name))
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(f"{OWNER}: give --local-steps or --local-epochs, not both")
        if not re.fullmatch(r"[A-Za-z0-9.-]+:[0-9]{1,5}", self.address):
            raise ValueError(f"{OWNER}: --address must be HOST:PORT, got {self.address!r}")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        """Raise ValueError if one of these options is given, for it does not apply."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{OWNER}: {option(name)} {why}")

    def least_clients(self, asked: int) -> int:
        """Return how many of the sites that a round asks must answer: all but one, unless the user says otherwise."""
        return checks.whole(OWNER, "--min-clients", self.min_clients or max(1, asked - 1), at_most=asked)

    def usual_config(self, eval_every: int) -> dict[str, Any]:
        """Return the last values of every app's configuration."""
        return {"eval-every": eval_every, "seed": self.seed, "patience": 600.0, "timeout": 3600.0, "results": "results"}


def option(name: str) -> str:
    """Return the command-line option of a field."""
    return "--" + name.replace("_", "-")


def site_names(owner: str, text: str) -> tuple[str, ...]:
    """Return the names in a text like "cleveland,va". They become parts of file names and of commands, so they are checked."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not re.fullmatch(NAME, name):
            raise ValueError(f"{owner}: --sites must be names of letters, digits, . _ and -, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"{owner}: --sites must be different names, got {text!r}")
    return names
