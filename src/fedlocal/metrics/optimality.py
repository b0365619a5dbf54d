"""How far a point is from optimal or feasible."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedlocal.core import Params, Regularizer, Zero
from fedlocal.metrics.base import Evaluation, Metric
from fedlocal.metrics.loss import stacked_points
from fedlocal.problems.smooth_part import SmoothPart, smooth_part_of
from fedlocal.util import checks


class GradientNorm(Metric):
    """||grad F||_2 over all parameters, for the smooth loss F = sum_m p_m F_m of all clients.

    It is zero where F is smallest. The regulariser psi of the method does not enter: at the minimum of F + psi the norm is not
    zero in general; `result.certificate().kkt_residual` is. It takes up to twice as long as the loss.
    """

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        return self.measure_many([evaluation])[0]

    def measure_many(self, evaluations: Sequence[Evaluation]) -> list[dict[str, float]]:
        with jax.enable_x64(True):
            smooth = smooth_part_of(evaluations[0].problem, evaluations[0].client_weights)
            points = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), stacked_points(evaluations))
            return [{"gradient_norm": float(norm)} for norm in _gradient_norms(smooth, points)]


class ConstraintViolation(Metric):
    """How far the parameters are outside a constraint.

    Args:
        regularizer: the constraint; None takes the regulariser of the method.
    """

    def __init__(self, regularizer: Regularizer | None = None):
        self.regularizer = regularizer

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        psi = self.regularizer or evaluation.method.regularizer
        if isinstance(psi, Zero):
            raise TypeError(f"ConstraintViolation: {type(evaluation.method).__name__} has no regularizer; give one")
        with jax.enable_x64(True):
            return {"constraint_violation": float(psi.violation(evaluation.x))}


class Potentials(Metric):
    """What the analyses of FedAc decrease, at the end of a round, where all clients hold the server's (x, x_ag).

    Psi = F(x_ag) - F* + mu/2 ||x - x*||^2 for FedAc-I, Phi = F(x_ag) - F* + mu/6 ||x - x*||^2 for FedAc-II.

    Args:
        optimum, solution: F* and x*.
        strong_convexity: mu, above 0.

    Reference: dissertation, eq. fedaci:potential and centralied:potential. Differs from it: not measured inside a round.
    """

    def __init__(self, optimum: float, solution: Params, strong_convexity: float):
        self.optimum, self.solution = checks.number("Potentials", "optimum", optimum), solution
        self.strong_convexity = checks.number("Potentials", "strong_convexity", strong_convexity, above=0)

    def measure(self, evaluation: Evaluation) -> dict[str, float]:
        if not {"x", "ag"} <= set(getattr(evaluation.server, "_fields", ())):
            name = type(evaluation.method).__name__
            raise TypeError(f"Potentials: needs a method with (x, x_ag) such as FedAc, got {name}")
        squares = jax.tree.map(lambda a, b: float(np.sum((np.asarray(a) - b) ** 2)), evaluation.server.x, self.solution)
        distance, gap = sum(jax.tree.leaves(squares)), evaluation.loss - self.optimum
        mu = self.strong_convexity
        return {"psi": gap + mu / 2 * distance, "phi": gap + mu / 6 * distance}


@jax.jit
def _gradient_norms(smooth: SmoothPart, points: Params) -> jax.Array:
    return jax.vmap(lambda x: optax.tree.norm(smooth.value_and_gradient(x)[1]))(points)
