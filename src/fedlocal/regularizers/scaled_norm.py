"""ScaledNorm: what the norms times a strength have in common."""

import jax

from fedlocal.core import Regularizer, Scalar, gauges
from fedlocal.util import checks


class ScaledNorm(Regularizer):
    r"""psi(x) = strength * norm(x), where the norm may be a seminorm. psi^*(y) = 0 where the gauge is at most 1, else inf.

    A concrete one has `array_value`, `array_prox`, `array_subgradient`, and `array_gauge`: the dual norm over the strength.
    """

    strength: Scalar

    def __init__(self, strength: Scalar):
        self.strength = checks.number(type(self).__name__, "strength", strength, at_least=0)

    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return gauges.unit_ball(self.array_gauge(y))

    def strengths(self) -> tuple[Scalar, ...]:
        return (self.strength,)
