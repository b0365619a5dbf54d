"""Which point a run returns: the last one by default, or one of the averages that the theorems are about.

Each average is a rule for a running mean over the clients' mean iterates of all local steps t = 0, 1, ...:
(sum, weight) <- keep * (sum, weight) + gain * (point, 1). It exists at any time, so it can be evaluated during a run.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, static
from fedlocal.util import checks


class Average(eqx.Module):
    """A weighted mean of the clients' mean iterates."""

    after_step: eqx.AbstractVar[bool]  # True: iterates after each local step (k = 1..K); False: before it (k = 0..K-1)
    between_rounds = False  # True: instead of them the server's solution, once after each round t

    @abstractmethod
    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        """Return the factors `keep` of the running sum and `gain` of the new point.

        Args:
            t: the local step, from 0; the round if the average is taken between rounds.
            total: all local steps K R of the run.
            key: the random key of the seed, the same at every t.
        """


class ThirdOrderAverage(Average):
    """Weights (1 + 1/(K R))^-(t+1).

    Args:
        after_step: True takes the iterates after each local step, False those before it.

    Reference: dissertation, theorem thm:fedavg:3o:ub. Differs from it: nothing.
    """

    after_step: bool = static(default=False)

    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        return 1.0, (1 + 1 / total) ** (-(t + 1.0))


class StronglyConvexAverage(Average):
    """Weights proportional to (1 - step_size strong_convexity / 2)^(K R - t - 1).

    Args:
        step_size: eta, that of the clients.
        strong_convexity: mu of the losses.
        after_step: True takes the iterates after each local step, False those before it.

    Reference: dissertation, theorem fedavg:a2:full. Differs from it: nothing.
    """

    step_size: Scalar
    strong_convexity: Scalar
    after_step: bool = static(default=False)

    def __check_init__(self) -> None:
        checks.number("StronglyConvexAverage", "step_size", self.step_size, above=0)
        checks.number("StronglyConvexAverage", "strong_convexity", self.strong_convexity, above=0)

    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        return 1 - self.step_size * self.strong_convexity / 2, 1.0


class UniformAverage(Average):
    """Equal weights on the primal points of the clients' mean states after every local step.

    Args:
        after_step: False takes the points before each local step instead.

    Reference: dissertation, eq. x_hat (FedDualAvg). Differs from it: nothing.
    """

    after_step: bool = static(default=True)

    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        return 1.0, 1.0


class RoundAverage(UniformAverage):
    """Equal weights on the server's solutions after the rounds r = 1..R.

    Args:
        after_step: not used.

    Reference: dissertation, theorem small_lr (FedDualAvg with a small client step size). Differs from it: unequal numbers
    of local steps allowed.
    """

    between_rounds = True


class RandomIterate(Average):
    """One of the clients' mean iterates, drawn uniformly at random from the seed.

    Args:
        after_step: True takes the iterates after each local step, False those before it.

    Reference: dissertation, theorems thm:fedavg:ncvx:2o and thm:fedavg:ncvx:3o. Differs from it: nothing.
    """

    after_step: bool = static(default=False)

    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        chosen = jnp.where(jax.random.uniform(jax.random.fold_in(key, t)) * (t + 1.0) < 1, 1.0, 0.0)
        return 1.0 - chosen, chosen


AverageName = Literal["third_order", "uniform", "rounds", "random"]
AVERAGES: dict[str, Callable[[], Average]] = {
    "third_order": ThirdOrderAverage,
    "uniform": UniformAverage,
    "rounds": RoundAverage,
    "random": RandomIterate,
}


def average_named(owner: str, average: AverageName | Average | None) -> Average | None:
    """Return the average of this name; objects and None pass through."""
    if average is None or isinstance(average, Average):
        return average
    return AVERAGES[checks.choice(owner, "average", average, AVERAGES)]()
