"""Lp: the p-norm for any p >= 1, between the sparsity of L1 and the evenness of LInf."""

import math

import jax
import jax.numpy as jnp

from fedlocal.core import Scalar, gauges, static
from fedlocal.regularizers.l1 import L1
from fedlocal.regularizers.norms import L2Norm, LInf, ScaledNorm
from fedlocal.util import checks

BISECTIONS = 100  # more than the digits of float64: Newton's method stops after about 8


class Lp(ScaledNorm):
    r"""psi(x) = strength * ||x||_p.

    prox: with 1/p + 1/q = 1 and a = |x|, zero if ||a||_q <= r = t strength. Otherwise sign(x) N s, where s >= 0 solves
        N s_i + r s_i^(p-1) = a_i for each i,   and N, the p-norm of the prox, is such that ||s||_p = 1.
    1/||s||_p increases in N, so that N is found by Newton's method within an interval. p = 1, 2 and inf have closed forms.
    psi^*(y) = 0 if ||y||_q <= strength, else inf.

    Args:
        strength: at least 0.
        p: at least 1, or inf.

    Reference: Parikh and Boyd, Proximal algorithms (2014), section 6.5.2 (norms by Moreau). Differs from it: the optimality
    condition is solved in the primal, which needs no projection onto the dual ball.

    >>> Lp(1.0, p=2).prox(jnp.array([0.0, -4.0]), 1.0).tolist()
    [0.0, -3.0]
    >>> x = Lp(1.0, p=3).prox(jnp.array([0.0, -4.0]), 1.0)
    >>> [round(float(v), 5) for v in x]
    [0.0, -3.0]
    """

    p: float = static()

    def __init__(self, strength: Scalar, p: float):
        super().__init__(strength)
        if checks.is_traced(p):
            raise TypeError("Lp: p must be known before the program is compiled, got a traced value; vary the strength")
        self.p = math.inf if p == math.inf else float(checks.number("Lp", "p", p, at_least=1))

    @property
    def q(self) -> float:
        """The exponent of the dual norm."""
        return {1.0: math.inf, math.inf: 1.0}[self.p] if self.p in (1.0, math.inf) else self.p / (self.p - 1)

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.strength * norm(x, self.p)

    def array_prox(self, x: jax.Array, t: Scalar) -> jax.Array:
        closed_form = {1.0: L1, 2.0: L2Norm, math.inf: LInf}.get(self.p)
        if closed_form is not None:
            return closed_form(self.strength).array_prox(x, t)
        threshold = jnp.asarray(t * self.strength, x.dtype)
        largest = jnp.max(jnp.abs(x))
        unit = jnp.where(largest > 0, largest, 1)  # the largest coordinate becomes 1, whatever the scale of x
        a, r = jnp.abs(x) / unit, threshold / unit
        shrunk = jnp.sign(x) * unit * _shrink(a, r, self.p)
        # in this order a nan stays a nan
        return jnp.where(threshold > 0, jnp.where(norm(a, self.q) <= r, 0, shrunk), x)

    def array_subgradient(self, x: jax.Array) -> jax.Array:
        closed_form = {1.0: L1, math.inf: LInf}.get(self.p)
        if closed_form is not None:
            return closed_form(self.strength).array_subgradient(x)
        length = norm(x, self.p)
        return self.strength * jnp.sign(x) * (jnp.abs(x) / jnp.where(length > 0, length, 1)) ** (self.p - 1)

    def array_gauge(self, y: jax.Array) -> jax.Array:
        return gauges.ratio(norm(y, self.q), self.strength)


def norm(x: jax.Array, p: float) -> jax.Array:
    """||x||_p of all coordinates; no power of a coordinate overflows or vanishes when the norm does not."""
    largest = jnp.max(jnp.abs(x))
    if p == math.inf:
        return largest
    return largest * jnp.sum((jnp.abs(x) / jnp.where(largest > 0, largest, 1)) ** p) ** (1 / p)


def _shrink(a: jax.Array, r: jax.Array, p: float) -> jax.Array:
    """z = N s >= 0 with N s + r s^(p-1) = a and ||s||_p = 1, for 0 <= a <= 1, r > 0, p not 1, 2 or inf, ||a||_q > r."""
    rounding = 4 * jnp.finfo(a.dtype).eps

    # a state: N to be tried, one where ||s||_p >= 1, one where ||s||_p <= 1, the last change of N, and how many were tried
    def go_on(state: tuple[jax.Array, ...]) -> jax.Array:
        length, _, _, moved, tried = state
        return (moved > rounding * length) & (tried < BISECTIONS)

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        length, lower, upper, _, tried = state
        s, power = _solve(a, r, length, p)  # power = s^(p-1)
        size = norm(s, p)
        too_short = size >= 1  # the prox is longer than this
        lower, upper = jnp.where(too_short, length, lower), jnp.where(too_short, upper, length)
        # Newton for 1/||s||_p = 1, which is linear in N for p = 2 and for r = 0; ds/dN = -s^2 / (N s + (p-1) r s^(p-1))
        bend = length * s + (p - 1) * r * power
        slope = jnp.sum(power * s**2 / jnp.where(bend > 0, bend, 1)) / size ** (p + 1)
        newton = length + (1 - 1 / size) / slope
        inside, met = (newton > lower) & (newton < upper), jnp.abs(size - 1) <= rounding
        new = jnp.where(inside, newton, jnp.where(met, length, (lower + upper) / 2))
        return new, lower, upper, jnp.abs(new - length), tried + 1

    most = norm(a, p)
    start = most, jnp.zeros_like(most), most, jnp.full_like(most, jnp.inf), jnp.zeros((), jnp.int32)
    length = jax.lax.while_loop(go_on, step, start)[0]
    return length * _solve(a, r, length, p)[0]


def _solve(a: jax.Array, r: jax.Array, length: jax.Array, p: float) -> tuple[jax.Array, jax.Array]:
    """s and s^(p-1) with N s + r s^(p-1) = a: in v = s or v = s^(p-1), whichever makes it N' v + r' v^k = a with k >= 1."""
    k, linear, curved = (p - 1, length, r) if p > 2 else (1 / (p - 1), r, length)
    positive = a > 0
    safe = jnp.where(positive, a, 1)
    # both terms are at most a, and from above Newton's method for a convex function never overshoots
    v = jnp.minimum(safe / linear, (safe / curved) ** (1 / k))

    def newton(_: int, v: jax.Array) -> jax.Array:
        power = curved * v**k
        return (safe + (k - 1) * power) / (linear + k * power / v)

    v = jax.lax.fori_loop(0, 6 + math.ceil(math.log(k)), newton, v)
    v = jnp.where(positive, v, 0)
    return (v, v ** (p - 1)) if p > 2 else (v ** (1 / (p - 1)), v)
