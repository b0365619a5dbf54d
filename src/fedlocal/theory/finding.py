"""What is asked about the constants of a problem, and the shape of the answers."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedlocal.core import AbstractProblem, Params


class Found(NamedTuple):
    """A constant, and where it comes from."""

    value: float | None
    how: str
    certified: bool  # proven, everywhere or in the region


class Region(NamedTuple):
    """Where a bound holds that does not hold everywhere: the part of a ball around x* that psi allows."""

    solution: Params  # x*
    radius: float  # ||x - x*|| <= radius
    largest_norm: float  # ||weights|| <= largest_norm, by the constraint in psi; inf where there is none

    def __str__(self) -> str:
        return f"over ||x - x*|| <= {self.radius:.4g}"


HOMOGENEOUS = Found(0.0, "exact: all clients have the same examples", True)
SAME = Found(0.0, "exact: all clients are the same", True)
FULL = Found(0.0, "exact: full gradients", True)


@dataclass(frozen=True)
class Search:
    """A problem whose constants are looked for."""

    problem: AbstractProblem
    p: np.ndarray  # (M,) the weights of the clients in F
    region: Region
    path: list[Params]  # from x0 to x*
    batch_size: int | None
    rng: np.random.Generator


@dataclass
class Findings:
    """The constants of a kind of problem: bounds, values along the path, and assumptions that fail."""

    found: dict[str, Found] = field(default_factory=dict)
    local: dict[str, float | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warn_of_ball(self, sentence: str, region: Region) -> None:
        ball = f"bounds are those over ||x - x*|| <= {region.radius:.4g}"
        hint = "; x0 is x*, so give `radius`" if region.radius == 0 else ""
        self.warnings.append(f"{sentence}; {ball}{hint}")
