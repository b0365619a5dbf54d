"""Columns of which float64 cannot hold products are refused by name, and no other ones."""

import warnings
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse

from fedlocal.data.federated_data import FederatedData
from fedlocal.data.moments import UnitError
from fedlocal.problems import LeastSquares, Logistic
from fedlocal.regularizers import L1
from fedlocal.solvers import centralized, path
from fedlocal.solvers.certificates import certificate

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=40)
WRONG = r"column 1 \(counted from 0\) has values so large that float64 cannot hold their squares; change its unit"
KINDS: dict[str, Any] = {"dense": np.asarray, "sparse": scipy.sparse.csr_array}
PROBLEMS: dict[str, Any] = {"squares": (LeastSquares, Y), "logistic": (Logistic, np.sign(Y))}


def problem_of(scale: float, kind: str = "dense", name: str = "squares") -> Any:
    features, (problem, targets) = X * [1.0, scale, 1.0], PROBLEMS[name]
    sites = [(KINDS[kind](features[some]), targets[some]) for some in (slice(0, 25), slice(25, 40))]
    return problem(FederatedData.from_clients(sites), intercept=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("scale", [1e160, 1e200, 1e307])
def test_certificates_that_overflow_name_the_column(scale: float, name: str, kind: str):
    with jax.enable_x64(True):
        problem = problem_of(scale, kind, name)
        x = jax.tree.map(np.ones_like, problem.init(jax.random.key(0)))
        with pytest.raises(UnitError, match=f"^certificate: {WRONG}"):
            certificate(problem, L1(0.1), x)
        with pytest.raises(UnitError, match=f"^centralized: {WRONG}"):
            centralized(problem, L1(0.1), progress=False)
        with pytest.raises(UnitError, match=f"^path: {WRONG}"):
            path(problem, [0.1], progress=False)


def test_points_that_are_not_finite_are_no_matter_of_units():
    with jax.enable_x64(True), warnings.catch_warnings():
        problem = problem_of(1.0)
        found = certificate(problem, L1(0.1), {"weights": np.full(3, 1e300), "intercept": np.zeros(())})
    assert not np.isfinite(found.objective)


def test_large_columns_that_float64_can_hold_are_solved():
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the residual that is asked for is beyond the digits of such a gradient
        found = centralized(problem_of(1e30), progress=False).x["weights"] * [1.0, 1e30, 1.0]
        truth = centralized(problem_of(1.0), progress=False).x["weights"]
    np.testing.assert_allclose(found, truth, rtol=1e-6)
