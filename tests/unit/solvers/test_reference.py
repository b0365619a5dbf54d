"""Reference solvers: the tolerance is really reached, and other libraries find the same."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso

import fedlocal as fl
from fedlocal.problems.smooth_part import smooth_part_of
from fedlocal.regularizers import (
    L1,
    Blocks,
    Box,
    GroupL1,
    L1Ball,
    L2Ball,
    L2Norm,
    LInf,
    Lp,
    NonNegative,
    Nuclear,
    Simplex,
    SquaredL2,
    TotalVariation,
    Zero,
)
from fedlocal.solvers import ConvergenceWarning, centralized, local, path, zero_strength
from fedlocal.solvers.coordinates import Coordinates, Objective
from fedlocal.solvers.gathered import Gram, gather

SIZES = (7, 30, 13)
D = 6

THOROUGH = pytest.mark.thorough


def table(features: tuple[int, ...] = (D,), labels: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sum(SIZES), *features)) + 0.3
    b = np.tensordot(X, rng.standard_normal(features), len(features)) + 1 + rng.standard_normal(len(X))
    return X, np.where(b > 1, 1.0, -1.0) if labels else b


def federation(X: Any, y: np.ndarray) -> fl.FederatedData:
    ends = np.cumsum(SIZES)
    return fl.FederatedData.from_clients([(X[e - s : e], y[e - s : e]) for s, e in zip(SIZES, ends, strict=True)])


def squares(**options: Any) -> fl.problems.LeastSquares:
    return fl.problems.LeastSquares(federation(*table()), **options)


def logistic(**options: Any) -> fl.problems.Logistic:
    return fl.problems.Logistic(federation(*table(labels=True)), **options)


def norm(x: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(a)) for a in jax.tree.leaves(x))))


def assert_solved(solution: fl.solvers.Solution, tolerance: float = 1e-10) -> None:
    assert solution.converged
    assert solution.certificate.kkt_residual <= tolerance * max(1, norm(solution.x))
    assert solution.objective == solution.certificate.objective
    assert all(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in jax.tree.leaves(solution.x))


def test_lasso_and_elastic_net_of_scikit_learn():
    solution: Any = centralized(squares(), L1(0.4), weights="examples")
    model = Lasso(alpha=0.2, tol=1e-15, max_iter=100_000).fit(*table())
    assert_solved(solution)
    assert solution.certificate.duality_gap < 1e-9
    np.testing.assert_allclose(solution.x["weights"], model.coef_, atol=1e-7)
    np.testing.assert_allclose(solution.x["intercept"], model.intercept_, atol=1e-7)
    solution = centralized(squares(l2=0.36), L1(0.24), weights="examples")
    model = ElasticNet(alpha=0.3, l1_ratio=0.4, tol=1e-15, max_iter=100_000).fit(*table())
    np.testing.assert_allclose(solution.x["weights"], model.coef_, atol=1e-7)


@pytest.mark.parametrize("psi", [Zero(), SquaredL2(0.3)])
def test_ridge_in_closed_form_with_uniform_weights(psi):
    solution = centralized(squares(l2=0.2), psi)
    assert_solved(solution)
    X, y = table()
    A, p = np.column_stack([np.ones(len(X)), X]), np.repeat(1 / (3 * np.array(SIZES)), SIZES)
    strength = 0.2 + (0 if isinstance(psi, Zero) else 0.3)
    found = np.linalg.solve(2 * A.T @ (p[:, None] * A) + strength * np.diag([0] + [1] * D), 2 * A.T @ (p * y))
    np.testing.assert_allclose(solution.x["intercept"], found[0], atol=1e-9)
    np.testing.assert_allclose(solution.x["weights"], found[1:], atol=1e-9)
    assert not np.allclose(centralized(squares(l2=0.2), psi, weights="examples").x["weights"], found[1:], atol=1e-3)


def test_least_squares_without_a_unique_solution():
    """More columns than their rank: any minimum will do, and its residuals are those of the projection."""
    X, y = table()
    X = np.column_stack([X, X[:, 0]])
    solution = centralized(fl.problems.LeastSquares(federation(X, y), intercept=False), weights="examples")
    assert_solved(solution)
    assert solution.objective == pytest.approx(np.sum((X @ np.linalg.pinv(X) @ y - y) ** 2) / len(y), rel=1e-12)


@pytest.mark.parametrize(("psi", "solver"), [(L1(0.02), "accelerated"), (Zero(), "L-BFGS")])
def test_logistic_against_cvxpy(psi, solver):
    X, b = table(labels=True)
    w, w0 = cp.Variable(D), cp.Variable()
    p = np.repeat(1 / (3 * np.array(SIZES)), SIZES)
    loss = p @ cp.logistic(-cp.multiply(b, X @ w + w0)) + 0.005 * cp.sum_squares(w)
    reference = cp.Problem(cp.Minimize(loss + (0.02 * cp.norm1(w) if isinstance(psi, L1) else 0))).solve()
    solution: Any = centralized(logistic(l2=0.01, intercept=True), psi)
    assert_solved(solution)
    assert solver in solution.solver
    assert solution.certificate.duality_gap < 1e-9
    assert solution.objective == pytest.approx(reference, rel=1e-6)


def in_cvxpy(shape: tuple[int, ...], penalty: Any) -> float:
    X, y = table(shape)
    w, w0 = cp.Variable(shape), cp.Variable()
    scores = X.reshape(len(X), -1) @ cp.reshape(w, (int(np.prod(shape)),), order="C") + w0
    psi = penalty(w)
    value, constraints = (0, psi) if isinstance(psi, list) else (psi, [])
    objective: Any = cp.sum_squares(scores - y) / len(y) + value
    found: Any = cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)
    return found


@pytest.mark.parametrize(
    ("psi", "penalty"),
    [
        pytest.param(  # beside it is another one in groups
            GroupL1(0.3, groups=[0, 0, 1, 1, 2, 2]),
            lambda w: 0.3 * sum(cp.norm2(w[i : i + 2]) for i in (0, 2, 4)),
            marks=THOROUGH,
        ),
        (L1Ball(1.0), lambda w: [cp.norm1(w) <= 1.0]),
        pytest.param(L2Ball(0.7), lambda w: [cp.norm2(w) <= 0.7], marks=THOROUGH),
        pytest.param(Simplex(1.5), lambda w: [w >= 0, cp.sum(w) == 1.5], marks=THOROUGH),
    ],
    ids=["group", "l1 ball", "l2 ball", "simplex"],
)
def test_least_squares_against_cvxpy(psi, penalty):
    solution: Any = centralized(squares(), psi, weights="examples")
    assert_solved(solution)
    assert solution.certificate.duality_gap < 1e-8
    assert solution.objective == pytest.approx(in_cvxpy((D,), penalty), rel=1e-6)


@pytest.mark.thorough
def test_nuclear_norm_against_cvxpy():
    problem = fl.problems.MatrixSensing(federation(*table((4, 3))))
    solution = centralized(problem, Nuclear(3.0), weights="examples")
    assert_solved(solution)
    assert np.linalg.matrix_rank(solution.x["weights"], tol=1e-8) < 3
    assert solution.objective == pytest.approx(in_cvxpy((4, 3), lambda w: 3.0 * cp.normNuc(w)), rel=1e-6)


@pytest.mark.thorough
def test_a9a():
    """From zero. `data/sets/test_adult.py` shows the same from the point that AGD reaches, and a study from zero."""
    X, y = fl.data.a9a()
    solution: Any = centralized(
        fl.problems.Logistic(fl.FederatedData.from_clients([(X, y)]), l2=1e-3), max_iterations=300
    )
    assert_solved(solution)
    assert solution.objective == pytest.approx(0.3333407520687, abs=1e-12)
    assert solution.certificate.duality_gap < 1e-12


def test_the_gram_matrix_is_the_problem():
    """Intercept, l2, matrices, unequal weights, several blocks: value and gradient of the data."""
    problem = fl.problems.MatrixSensing(federation(*table((4, 3))), l2=0.3)
    p = np.array([0.5, 0.2, 0.3])
    gram, rng = gather(problem, problem.loss_weights(p)), np.random.default_rng(1)
    x = {"weights": rng.standard_normal((4, 3)), "intercept": np.array(0.7)}
    value, g = gram.value_and_gradient(x)
    want_value, want = smooth_part_of(problem, p).value_and_gradient(x)
    assert float(value) == pytest.approx(float(want_value), rel=1e-12)
    np.testing.assert_allclose(g["weights"], want["weights"], rtol=1e-11)
    np.testing.assert_allclose(g["intercept"], want["intercept"], rtol=1e-11)


def test_blocks_of_the_gram_matrix_add_up(monkeypatch):
    problem = squares()
    weights = problem.loss_weights(np.full(3, 1 / 3))
    whole = gather(problem, weights)
    monkeypatch.setattr("fedlocal.solvers.gathered.BLOCK_NUMBERS", 11 * (D + 1))
    np.testing.assert_allclose(gather(problem, weights).matrix, whole.matrix, rtol=1e-13)
    np.testing.assert_allclose(gather(problem, weights).linear, whole.linear, rtol=1e-13)


@pytest.mark.thorough
def test_fewer_examples_than_parameters_goes_through_the_data(monkeypatch):
    problem = fl.problems.LeastSquares(federation(*table((60,))))
    monkeypatch.setattr(Gram, "value_and_gradient", None)  # would fail if it were asked
    solution: Any = centralized(problem, L1(0.5))
    assert_solved(solution)
    assert solution.certificate.duality_gap < 1e-8


def records(n: int = 300, constant: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Age, yes or no, income, a score: columns as they come."""
    rng = np.random.default_rng(0)
    columns = [rng.normal(50, 10, n), rng.integers(0, 2, n), rng.normal(5e4, 2e4, n), rng.standard_normal(n)]
    y = sum(c * a for c, a in zip([0.03, 0.7, 2e-5, -0.5], columns, strict=True)) + rng.standard_normal(n)
    return np.column_stack([*columns, np.full(n, 7.0)] if constant else columns), y


def test_lasso_on_columns_as_they_come():
    X, y = records()
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients([(X, y)]))
    solution: Any = centralized(problem, L1(0.1), max_iterations=1000)
    model = Lasso(alpha=0.05, tol=1e-15, max_iter=1_000_000).fit(X, y)
    reference = np.mean((X @ model.coef_ + model.intercept_ - y) ** 2) + 0.1 * np.abs(model.coef_).sum()
    assert solution.converged
    assert solution.certificate.duality_gap < 1e-9
    assert solution.objective == pytest.approx(reference, rel=1e-10)


@pytest.mark.parametrize(
    "psi",
    [Zero(), L1(0.1), *(pytest.param(p, marks=THOROUGH) for p in (SquaredL2(0.1), NonNegative())), Box(-0.2, 0.2)],
)
@pytest.mark.parametrize("largest", [pytest.param(1.0, marks=THOROUGH), 1e3])
def test_columns_in_other_units_and_constant_ones(psi, largest):
    """Income in other units, a column that repeats the intercept: against bounded least squares or coordinate descent."""
    X, y = records(constant=True)
    X = X * [1, 1, largest, 1, 1]
    solution = centralized(fl.problems.LeastSquares(fl.FederatedData.from_clients([(X, y)])), psi, max_iterations=1000)
    assert solution.converged
    assert solution.certificate.violation == 0
    assert solution.certificate.kkt_residual < 1e-8 * largest
    unit = np.array([10.0, 1.0, 2e4 * largest, 1.0, 1.0])  # of the reference's coordinates, so that it can see them
    scaled, centered = (X - X.mean(0)) / unit, y - y.mean()
    w = cp.Variable(5)
    loss = cp.sum_squares(scaled @ w - centered) / len(y)
    strength = {L1: lambda: 0.1 * cp.norm1(w / unit), SquaredL2: lambda: 0.05 * cp.sum_squares(w / unit)}
    constraints: dict[Any, list[Any]] = {NonNegative: [w >= 0], Box: [cp.abs(w / unit) <= 0.2]}
    goal = cp.Minimize(loss + strength.get(type(psi), lambda: 0)())
    reference = cp.Problem(goal, constraints.get(type(psi), [])).solve(solver=cp.CLARABEL)
    assert solution.objective == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"intercept": True},
        *(pytest.param(o, marks=THOROUGH) for o in ({"intercept": False}, {"intercept": True, "l2": 0.01})),
    ],
)
def test_logistic_on_columns_as_they_come(options):
    """An l1 norm whose strength is small against income; the gap proves the solution."""
    X, y = records()
    data = fl.FederatedData.from_clients([(X, np.sign(y - np.median(y)))])
    solution: Any = centralized(fl.problems.Logistic(data, **options), L1(0.01), max_iterations=2000)
    assert solution.converged
    assert solution.certificate.duality_gap < 1e-9
    assert np.count_nonzero(solution.x["weights"]) >= 2


@pytest.mark.parametrize(("x", "relative"), [(1e-3, 8 * 2**-52 * (10 + 2)), (1e20, 1e-9 * 2)])
def test_what_rounding_excuses_is_limited(x, relative):
    """It grows with x, but a point that ran away is not solved."""
    ones = {"weights": np.ones(1)}
    objective = Objective(None, Zero(), Coordinates(ones), {"weights": np.array([1e4])}, 2.0)  # pyright: ignore[reportArgumentType]
    assert float(objective.allowed({"weights": np.array([x])}, 0.0)) == pytest.approx(1e4 * relative, rel=1e-12)


def test_groups_and_a_penalised_intercept_keep_their_coordinates():
    """Nothing may be scaled within a group, and an intercept with a penalty is not the mean."""
    groups = GroupL1(0.3, groups=[0, 0, 1, 1, 2, 2])
    psi = Blocks({"weights": groups, "intercept": L1(0.5)})
    X, y = table()
    problem = fl.problems.LeastSquares(federation(X * [1, 2, 5, 1, 3, 1], y))
    solution = centralized(problem, psi, weights="examples")
    assert_solved(solution)
    w, w0 = cp.Variable(D), cp.Variable()
    loss = cp.sum_squares(X * [1, 2, 5, 1, 3, 1] @ w + w0 - y) / len(y)
    penalty = 0.3 * sum(cp.norm2(w[i : i + 2]) for i in (0, 2, 4)) + 0.5 * cp.abs(w0)
    assert solution.objective == pytest.approx(
        cp.Problem(cp.Minimize(loss + penalty)).solve(solver=cp.CLARABEL), rel=1e-6
    )


@pytest.mark.thorough
def test_softmax_and_matrices_on_columns_as_they_come():
    X, y = records()
    data = fl.FederatedData.from_clients([(X, np.digitize(y, np.quantile(y, [0.3, 0.6])))])
    assert centralized(fl.problems.Softmax(data), L1(0.01), max_iterations=5000).converged
    pairs = fl.FederatedData.from_clients([(X.reshape(-1, 2, 2), y)])
    matrix = centralized(fl.problems.MatrixSensing(pairs), L1(0.1), max_iterations=1000)
    vector = centralized(fl.problems.LeastSquares(fl.FederatedData.from_clients([(X, y)])), L1(0.1))
    np.testing.assert_allclose(matrix.x["weights"].ravel(), vector.x["weights"], rtol=1e-6)


@pytest.mark.parametrize(
    ("problem", "psi", "solver"),
    [
        (squares(), Zero(), "Newton steps on the Gram matrix"),
        (squares(), L1(0.1), "accelerated proximal gradient"),
        (logistic(l2=0.1), Zero(), "L-BFGS"),
    ],
)
def test_the_solver_that_ran_is_named(problem, psi, solver):
    assert centralized(problem, psi).solver.removesuffix(" and Newton steps") == solver


NORMS = {
    "l1": L1,
    "elastic net": lambda s: fl.regularizers.ElasticNet(s, 1.0),
    "twice": lambda s: L1(2 * s),
    "group": lambda s: GroupL1(s, groups=[0, 0, 1, 1, 2, 2]),
    "l2": L2Norm,
    "linf": LInf,
    "lp": lambda s: Lp(s, p=3.0),
    "blocks": lambda s: Blocks({"weights": L1(s)}),
    "held intercept": lambda s: Blocks({"weights": L1(s), "intercept": SquaredL2(0.5)}),
}


@pytest.mark.parametrize("name", [n if n in ("group", "linf") else pytest.param(n, marks=THOROUGH) for n in NORMS])
def test_zero_strength_is_where_weights_appear(name):
    limit = zero_strength(squares(), NORMS[name])
    assert limit > 0
    above, below = (centralized(squares(), NORMS[name](c * limit)).x["weights"] for c in (1.001, 0.999))
    assert not above.any()
    assert np.abs(below).max() > 1e-5


def test_zero_strength_of_matrices_and_in_closed_form():
    problem = fl.problems.MatrixSensing(federation(*table((4, 3))))
    limit = zero_strength(problem, Nuclear)
    above, below = (centralized(problem, Nuclear(c * limit)).x["weights"] for c in (1.001, 0.999))
    assert np.abs(above).max() < 1e-9 < 1e-5 < np.abs(below).max()
    X, y = table()
    p = np.repeat(1 / (3 * np.array(SIZES)), SIZES)
    want = np.abs(2 * X.T @ (p * (y - p @ y))).max()  # at zero weights the intercept is the mean
    assert zero_strength(squares()) == pytest.approx(want, rel=1e-9)
    assert zero_strength(squares(), NORMS["elastic net"]) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (SquaredL2, "zero_strength: SquaredL2 does not make weights zero"),
        (TotalVariation, "zero_strength: TotalVariation does not make weights zero"),
        (L1Ball, "zero_strength: L1Ball does not make weights zero"),
        (lambda s: Box(-s, s), "zero_strength: Box does not make weights zero"),
        (lambda s: fl.regularizers.ElasticNet(0.1, s), "zero_strength: ElasticNet does not make weights zero"),
        (lambda s: Blocks({"weights": SquaredL2(s)}), "zero_strength: SquaredL2 does not make weights zero"),
        (lambda s: NonNegative(), "zero_strength: NonNegative does not depend on the strength"),
        (lambda s: s, "zero_strength: the result of make_regularizer must be a Regularizer, got 1.0"),
    ],
)
def test_zero_strength_of_what_has_none(make, message):
    with pytest.raises(TypeError, match=message):
        zero_strength(squares(), make)


@pytest.mark.parametrize("kind", ["LeastSquares", "Logistic", "Softmax"])
def test_no_features_at_all(kind):
    data = fl.FederatedData.from_clients([(np.zeros((3, 0)), np.array([0, 1, 1]))])
    with pytest.raises(ValueError, match=f"{kind}: examples must have at least one feature, got features of shape"):
        getattr(fl.problems, kind)(data)


def test_a_path_equals_single_solves():
    strengths = [0.05, 1.0, 0.3]
    solutions = path(squares(), strengths, weights="examples")
    for strength, solution in zip([1.0, 0.3, 0.05], solutions, strict=True):
        assert_solved(solution)
        alone = centralized(squares(), L1(strength), weights="examples")
        np.testing.assert_allclose(solution.x["weights"], alone.x["weights"], atol=1e-8)
    groups = [0, 0, 1, 1, 2, 2]
    (one,) = path(squares(), [0.3], lambda strength: GroupL1(strength, groups=groups))
    assert one.objective == pytest.approx(centralized(squares(), GroupL1(0.3, groups=groups)).objective, rel=1e-12)


def test_a_warm_start_is_used():
    cold = centralized(squares(), L1(0.4))
    warm = centralized(squares(), L1(0.4), x0=cold.x)
    assert warm.iterations <= 10 < cold.iterations


@pytest.mark.parametrize("client", [pytest.param(0, marks=THOROUGH), 1])
def test_local_is_the_solve_on_the_clients_data(client):
    X, y = table()
    rows = slice(sum(SIZES[:client]), sum(SIZES[: client + 1]))
    alone = centralized(fl.problems.LeastSquares(fl.FederatedData.from_clients([(X[rows], y[rows])])), L1(0.4))
    solution = local(squares(), client, L1(0.4))
    assert_solved(solution)
    assert solution.objective == pytest.approx(alone.objective, rel=1e-12)
    assert abs(solution.objective - centralized(squares(), L1(0.4)).objective) > 1e-2


def test_problems_without_data_and_without_convexity():
    problem = fl.problems.quadratics(np.eye(2)[None] * np.arange(1, 4)[:, None, None], np.ones((3, 2)))
    solution = centralized(problem, L1(0.5))
    np.testing.assert_allclose(solution.x, 0.75, atol=1e-9)  # 2 (x - 1) + 0.5 = 0
    wavy = fl.problems.Oracle(lambda x, m: jax.numpy.sum(jax.numpy.cos(x) + 0.05 * x**2))
    for psi in (None, L1(0.1)):
        solution = centralized(wavy, psi, x0=np.array([0.4, -3.0, 10.0]))
        assert_solved(solution)
        assert (np.abs(np.sin(solution.x)) > 0.05).all()  # minima, not the maximum at zero


def test_float32_data_and_no_global_float64():
    X, y = (a.astype(np.float32) for a in table())
    problem = fl.problems.LeastSquares(federation(X, y))
    with jax.enable_x64(False):
        for psi in (L1(0.4), Zero()):
            assert_solved(centralized(problem, psi))


@pytest.mark.parametrize("psi", [L1(0.01), Zero()])
def test_too_few_iterations_are_said_aloud(psi):
    with pytest.warns(ConvergenceWarning, match=r"centralized: KKT residual .* after 3 iterations") as said:
        solution = centralized(logistic(l2=1e-4), psi, max_iterations=3)
    assert not solution.converged
    assert f", {1e-10 * norm(solution.x):.3g} asked for" in str(said[0].message)
    assert "not converged after 3 iterations" in repr(solution)
    assert solution.certificate.kkt_residual > 1e-10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: centralized(3), "centralized: problem must be a AbstractProblem, got 3"),  # pyright: ignore[reportArgumentType]
        (lambda: centralized(squares(), 0.3), "centralized: regularizer must be a Regularizer, got 0.3"),  # pyright: ignore[reportArgumentType]
        (lambda: centralized(squares(), tolerance=0), "centralized: tolerance must be > 0, got 0"),
        (
            lambda: centralized(squares(), max_iterations=0),
            "centralized: max_iterations must be a whole number >= 1, got 0",
        ),
        (
            lambda: centralized(squares(), weights="all"),  # pyright: ignore[reportArgumentType]
            "centralized: weights must be one of 'uniform', 'examples', got 'all'",
        ),
        (lambda: centralized(squares(), x0=np.ones(2)), "centralized: x0 does not fit the problem LeastSquares"),
        (lambda: local(squares(), 3), "client must be a whole number >= 0 and <= 2, got 3"),
        (lambda: path(squares(), []), r"path: strengths must be a list of at least one number, got \[\]"),
        (lambda: path(squares(), [1.0, -1.0]), "path: strengths must be >= 0, got -1.0"),
        (lambda: path(squares(), 0.3), "path: strengths must be a list of at least one number, got 0.3"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("seed", range(12))
def test_weights_of_a_mixture_are_found_though_extrapolated_points_leave_the_domain(seed: int):
    """min -mean log(p_i'w) over the simplex; beyond it the logarithm is not a number. The optimum has p_i'w in its denominator:
    mean_i p_ik / (p_i'w) is 1 where w_k > 0, and at most 1 elsewhere."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(5, size=300, p=[0.9, 0.05, 0.03, 0.01, 0.01])
    densities = np.eye(5)[kinds] + (1e-9 if seed % 2 else 1e-2) * rng.random((300, 5))
    data = fl.FederatedData.from_clients([(densities[:125],), (densities[125:],)])
    problem = fl.Problem(lambda w, p: -jnp.log(p @ w), data)
    solution = centralized(problem, fl.regularizers.Simplex(), weights="examples", x0=np.full(5, 0.2), progress=False)
    assert solution.converged
    w = solution.x
    ratios = np.mean(densities / (densities @ w)[:, None], axis=0)
    assert ratios.max() < 1 + 1e-8
    np.testing.assert_allclose(ratios[w > 1e-6], 1, atol=1e-8)
