"""What a site adds to a certificate besides its loss: its gradient at the model, and the strength of its l2 penalty.

The coordinator makes KKT residual and duality gap from them (`coordinator/certificate.py`). Sums of slopes or of conjugates would
make the gap a little smaller, but differences of them over states are second moments of the rows with one label.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Params
from fedlocal.problems.linear import LeastSquares, LinearProblem, Logistic

KINDS = {Logistic: "logistic", LeastSquares: "squares"}


def gradient_at(problem: AbstractProblem, x: Params) -> Params:
    """Return grad F_m(x), in float64."""
    with jax.enable_x64(True):
        return jax.device_get(_gradient(problem, jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), x)))


def l2_of(problem: AbstractProblem) -> dict[str, Any]:
    """Return the strength of the l2 penalty of a linear model with a duality gap; nothing for other problems."""
    if type(problem) not in KINDS:
        return {}
    assert isinstance(problem, LinearProblem)
    return {"l2": 0.0 if problem.l2 is None else float(problem.l2)}


@jax.jit
def _gradient(problem: AbstractProblem, x: Params) -> Params:
    return problem.full_gradient(x, jnp.zeros((), jnp.int32))
