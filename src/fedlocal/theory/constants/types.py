"""The types of the estimation of constants: its input, its result, and the region where a bound holds."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedlocal.core import AbstractProblem, Params


class ConstantValue(NamedTuple):
    """A constant and how it was obtained."""

    value: float | None  # None if it is not known
    how: str
    certified: bool  # proven, everywhere or in the region


class Region(NamedTuple):
    """The region in which a bound holds that does not hold everywhere: the feasible part of a ball around x*."""

    solution: Params  # x*
    radius: float  # ||x - x*|| <= radius
    largest_norm: float  # ||weights|| <= largest_norm, by the constraint in psi; inf without one

    def __str__(self) -> str:
        return f"over ||x - x*|| <= {self.radius:.4g}"


HOMOGENEOUS = ConstantValue(0.0, "exact: all clients have the same examples", True)
SAME = ConstantValue(0.0, "exact: all clients are the same", True)
FULL = ConstantValue(0.0, "exact: full gradients", True)


@dataclass(frozen=True)
class EstimationTask:
    """A problem and the region, path and random generator with which its constants are estimated."""

    problem: AbstractProblem
    p: np.ndarray  # (M,) the weights of the clients in F
    region: Region
    path: list[Params]  # from x0 to x*
    batch_size: int | None
    rng: np.random.Generator


@dataclass
class ProblemConstants:
    """The constants of a problem: bounds, values measured along the path, and warnings about failing assumptions."""

    found: dict[str, ConstantValue] = field(default_factory=dict)
    local: dict[str, float | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warn_of_ball(self, sentence: str, region: Region) -> None:
        ball = f"bounds are those over ||x - x*|| <= {region.radius:.4g}"
        hint = "; x0 is x*, so give `radius`" if region.radius == 0 else ""
        self.warnings.append(f"{sentence}; {ball}{hint}")
