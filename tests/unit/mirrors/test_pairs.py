"""Every pair of a mirror map and a regulariser: conjugate_grad(y, psi, t) minimises h(x) + t psi(x) - <y, x>."""

import cvxpy as cp
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal import regularizers
from fedlocal.core import MirrorMap, Regularizer
from fedlocal.mirrors import DiagonalQuadratic, PNorm, diagonal_quadratic, entropy, p_norm
from fedlocal.regularizers import L1, Blocks, ElasticNet, Lp, SquaredL2, Zero
from unit.mirrors.geometry import (
    FINITE,
    MIRRORS,
    PAIRS,
    PSIS,
    SIZE,
    TABLE,
    TERMS,
    WITH,
    D,
    conjugate,
    conjugates,
    cvxpy_h,
    divergence,
    draw,
    feasibles,
    h,
    label,
    psi_values,
)
from unit.one_program import for_each
from unit.regularizers import regularizer_cases

spread = st.floats(-5, 5, allow_subnormal=False)
points = st.one_of(
    hnp.arrays(np.float64, SIZE, elements=spread),
    hnp.arrays(np.float64, SIZE, elements=st.sampled_from([-2.0, 0.0, 0.5, 3.0])),  # ties and zeros
    hnp.arrays(np.float64, SIZE, elements=spread).map(lambda a: 0.02 * a),  # inside the constraints
)
steps = st.one_of(st.just(0.0), st.floats(1e-3, 5))
diagonals = hnp.arrays(np.float64, SIZE, elements=st.floats(0.1, 10))
few = settings(max_examples=12, deadline=None, derandomize=True)
over = pytest.mark.parametrize
every_pair = over(("name", "psi_name"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
# the optimum is flat: a gap of 1e-10 leaves its square root, 1e-5, in the point; the power cone of a p-norm stops earlier
GAP = {"entropy": 1e-10, "p_norm": 1e-9, "diagonal": 1e-10}


violations = for_each(lambda pair, x: pair[1].array_violation(x))


def assert_best(table: dict[str, tuple[MirrorMap, Regularizer]], y: np.ndarray, z: np.ndarray, t: float) -> None:
    """The point of every pair is feasible, and better than what is feasible near z by their divergence."""
    p = conjugates(table, y, t)
    others = feasibles(table, {name: np.abs(z) if "entropy" in name else z for name in table})
    outside, of_z, of_p = violations(table, p), psi_values(table, others), psi_values(table, p)
    for name, (mirror, _) in table.items():
        assert outside[name] <= 1e-12, name
        assert "entropy" not in name or (p[name] > 0).all(), name
        at_z, at_p = h(mirror, others[name]), h(mirror, p[name])
        scale = 1 + abs(at_p) + abs(at_z) + (np.abs(p[name]) + np.abs(others[name])) @ np.abs(y)
        gap = (at_z + t * of_z[name] - others[name] @ y) - (at_p + t * of_p[name] - p[name] @ y)
        assert gap >= divergence(mirror, others[name], p[name]) - 1e-11 * scale, name


@given(y=points, z=points, t=steps, p=st.sampled_from([1.1, 1.5, 2.0]), diagonal=diagonals)
@few
def test_the_point_is_feasible_and_better_than_any_other_by_their_divergence(
    y: np.ndarray, z: np.ndarray, t: float, p: float, diagonal: np.ndarray
):
    mirrors = MIRRORS | {"p_norm": PNorm(p), "diagonal": DiagonalQuadratic(diagonal)}
    table = {label(name, psi): (mirrors[name], PSIS[psi]) for name, psi in PAIRS}
    assert_best(table | {"p_norm-lp": TABLE["p_norm-lp"]}, y, z, t)


@over("p", [1.1, 2.0])
@given(y=points, z=points, t=steps)
@few
def test_the_point_of_the_norm_of_a_mirror_of_any_p(p: float, y: np.ndarray, z: np.ndarray, t: float):
    assert_best({"p_norm-lp": (PNorm(p), Lp(0.8, p))}, y, z, t)


@every_pair
def test_the_point_agrees_with_cvxpy(name: str, psi_name: str):
    mirror, t, x, y = MIRRORS[name], 0.8, cp.Variable(SIZE), cp.Parameter(SIZE)
    psi, constraints = TERMS[psi_name](x)
    problem = cp.Problem(cp.Minimize(cvxpy_h(mirror, x) + t * psi - y @ x), constraints)
    for seed in range(2):
        y.value = draw(seed)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=GAP[name], tol_gap_rel=GAP[name], tol_feas=GAP[name])
        found = conjugates(TABLE, y.value, t)[label(name, psi_name)]
        np.testing.assert_allclose(found, np.asarray(x.value), rtol=0, atol=1e-4)


def test_t_weighs_a_penalty_and_does_nothing_to_a_constraint():
    at_zero, at_three = (conjugates(TABLE, draw(2), t) for t in (0.0, 3.0))
    for name, psi_name in PAIRS:
        pair = label(name, psi_name)
        expected = at_zero[label(name, "zero")] if psi_name in FINITE else at_three[pair]
        np.testing.assert_allclose(at_zero[pair], expected, rtol=1e-13, atol=1e-15, err_msg=pair)


def scaled(psi: Regularizer, c: float) -> Regularizer:
    """The psi for which x(c y; c t psi) is c x(y; t psi): a constraint is c times as wide."""
    if isinstance(psi, ElasticNet):
        return ElasticNet(psi.l1 * c, psi.l2)
    return psi if isinstance(psi, SquaredL2) else jax.tree.map(lambda number: number * c, psi)


@over("bits", [32, 64])
@over("power", [-1, 1])
def test_points_of_any_size_scale(bits: int, power: int):
    """For h of degree two, which the entropy is not; c a power of two."""
    exponent = power * {32: 100, 64: 900}[bits]
    dtype, c = {32: np.float32, 64: np.float64}[bits], 2.0**exponent
    y = (2 * draw(3)).astype(dtype)
    squares = {name: pair for name, pair in TABLE.items() if "entropy" not in name}
    expected = conjugates(TABLE, y.astype(np.float64), 0.5)
    got = conjugates(
        TABLE | {name: (mirror, scaled(psi, c)) for name, (mirror, psi) in squares.items()},
        {name: y * dtype(c) if name in squares else y for name in TABLE},
        0.5,
    )
    atol = {32: 1e-5, 64: 1e-13}[bits]
    for name in squares:
        assert got[name].dtype == dtype, name
        np.testing.assert_allclose(got[name].astype(np.float64) / c, expected[name], rtol=0, atol=atol, err_msg=name)


def test_a_zero_dual_point_has_no_nan():
    assert [name for name, x in conjugates(TABLE, np.zeros(SIZE), 0.5).items() if not np.isfinite(x).all()] == []


def test_single_precision_stays_and_agrees_with_double():
    expected = conjugates(TABLE, draw(4), 0.5)
    with jax.enable_x64(False):
        single = conjugates(TABLE, draw(4).astype(np.float32), 0.5)
        grads = for_each(lambda pair, x: pair[0].grad(x))(TABLE, single)
    for name in TABLE:
        assert single[name].dtype == grads[name].dtype == np.float32, name
        np.testing.assert_allclose(single[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.thorough
@every_pair
def test_vmaps_over_points_steps_and_numbers(name: str, psi_name: str):
    factors = np.array([0.8, 1.0, 1.2])
    sweep = lambda tree: jax.tree.map(lambda number: np.multiply.outer(factors, number), tree)  # noqa: E731
    at = lambda tree, i: jax.tree.map(lambda number: number[i].tolist() if number.ndim == 1 else number[i], tree)  # noqa: E731
    mirrors, psis = sweep(MIRRORS[name]), sweep(PSIS[psi_name])
    ys, ts = np.stack([draw(i) for i in range(3)]), np.array([0.0, 0.5, 2.0])
    together = jax.jit(jax.vmap(lambda *point: point[0].conjugate_grad(point[2], point[1], point[3])))(
        mirrors, psis, ys, ts
    )
    alone = [conjugate(at(mirrors, i), at(psis, i), ys[i], float(ts[i])) for i in range(3)]
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-14)


def test_a_matrix_is_the_vector_of_its_entries():
    mirrors = MIRRORS | {"diagonal": DiagonalQuadratic(D.reshape(3, 2))}
    chains = {"total_variation", "monotone", "decreasing"}
    matrices = {label(name, psi): (mirrors[name], PSIS[psi]) for name, psi in PAIRS if psi not in chains}
    expected, got = conjugates(TABLE, draw(5), 0.5), conjugates(matrices, draw(5).reshape(3, 2), 0.5)
    for name in matrices:
        np.testing.assert_allclose(got[name].ravel(), expected[name], rtol=1e-14, err_msg=name)


FORMULAS = {"entropy": entropy.FORMULAS, "p_norm": p_norm.FORMULAS, "diagonal": diagonal_quadratic.FORMULAS}


@over("name", FORMULAS)
def test_every_formula_is_in_the_table_of_these_tests(name: str):
    assert {type(PSIS[psi_name]) for psi_name in WITH[name]} == set(FORMULAS[name])


OTHERS = {type(psi).__name__: psi for psi in (*regularizer_cases.PSIS.values(), *PSIS.values())}
del OTHERS["Blocks"]  # each part has the formula of its own


KNOWN = {name: {type(PSIS[psi_name]).__name__ for psi_name in WITH[name]} for name in WITH}


@over(("name", "psi_name"), [(name, other) for name in KNOWN for other in OTHERS if other not in KNOWN[name]])
def test_a_pair_without_a_formula_lists_those_that_have_one(name: str, psi_name: str):
    with pytest.raises(TypeError) as caught:
        MIRRORS[name].conjugate_grad(draw(0), OTHERS[psi_name], 1.0)
    start, listed = str(caught.value).split("; it has one with: ")
    assert start == f"{type(MIRRORS[name]).__name__} has no conjugate_grad with {psi_name}"
    assert set(listed.split(" (and")[0].split(", ")) == KNOWN[name]


NOT_SEEN_BY_THE_LINK: dict[str, Regularizer] = {
    **{name: PSIS[name] for name in PSIS if name not in WITH["p_norm"]},
    "l2_ball": regularizers.L2Ball(1.0),
    "l2_norm": regularizers.L2Norm(0.8),
    "lp_of_another_p": Lp(0.8, 1.25),
    "group_l1": regularizers.GroupL1(0.8),
    "nuclear": regularizers.Nuclear(0.8),
    "nuclear_ball": regularizers.NuclearBall(1.0),
}


def test_the_link_of_the_prox_is_not_the_point_for_those_left_out_of_the_p_norm():
    """Else the pair should have a formula: the recipe leaves the constraint, or a feasible point near it is better."""
    mirror, t, y = MIRRORS["p_norm"], 0.5, 2 * draw(11).reshape(3, 2)
    table = {name: (mirror, psi) for name, psi in NOT_SEEN_BY_THE_LINK.items()}
    recipes = for_each(lambda pair: mirror.conjugate_grad(pair[1].prox(jnp.asarray(y), t), Zero(), t))(table)
    noise = np.random.default_rng(0).standard_normal((100, 3, 2)) * np.logspace(-3, -1, 100)[:, None, None]

    def objective(psi: Regularizer, x: jax.Array) -> jax.Array:
        return mirror.value(x) + t * psi.array_value(x) - jnp.sum(x * y)

    def near(pair: tuple[MirrorMap, Regularizer], recipe: jax.Array) -> tuple[jax.Array, jax.Array]:
        best = jax.vmap(lambda z: objective(pair[1], pair[1].prox(z, 0.0)))(recipe + noise)
        return objective(pair[1], recipe), jnp.min(best)

    outside, found = violations(table, recipes), for_each(near)(table, recipes)
    for name, (of_recipe, best) in found.items():
        assert outside[name] > 1e-3 or best < of_recipe - 1e-5, name


def test_the_tables_know_every_regulariser():
    assert set(regularizers.__all__) == {"Blocks", *OTHERS}


@over("name", FORMULAS)
def test_a_subclass_does_not_get_the_formula_of_its_parent(name: str):
    class Doubled(L1):
        def array_value(self, x: jax.Array) -> jax.Array:
            return 2 * super().array_value(x)

    with pytest.raises(TypeError, match="has no conjugate_grad with Doubled; it has one with: Zero"):
        MIRRORS[name].conjugate_grad(draw(0), Doubled(1.0), 1.0)


def test_an_intercept_stays_euclidean_and_free():
    y = {"weights": draw(7), "intercept": np.array([-3.0, 4.0]), "bias": np.array([2.0, -5.0])}
    table = {name: pair for name, pair in TABLE.items() if name.split("-")[1] in ("l1", "monotone")}
    found = conjugates(table, dict.fromkeys(table, y), 0.5)
    grads, weights = for_each(lambda pair, x: pair[0].grad(x))(table, found), conjugates(TABLE, y["weights"], 0.5)
    for name in table:
        for part in ("intercept", "bias"):
            np.testing.assert_array_equal(found[name][part], y[part], err_msg=name)
            np.testing.assert_array_equal(grads[name][part], y[part], err_msg=name)
        np.testing.assert_allclose(found[name]["weights"], weights[name], rtol=1e-13, err_msg=name)


@over("name", MIRRORS)
def test_blocks_give_each_part_its_formula_and_a_named_intercept_the_euclidean_prox(name: str):
    mirror = MIRRORS[name]
    psi = Blocks({"a": L1(0.7), "b": PSIS["non_negative"], "intercept": PSIS["squared_l2"]})
    y = {"a": draw(8), "b": draw(9), "c": draw(10), "intercept": np.array(-3.0)}
    x = mirror.conjugate_grad(y, psi, 0.5)
    for part, alone in (("a", L1(0.7)), ("b", PSIS["non_negative"]), ("c", PSIS["zero"])):
        np.testing.assert_allclose(x[part], conjugate(mirror, alone, y[part], 0.5), rtol=1e-14)
    np.testing.assert_allclose(x["intercept"], -3 / (1 + 0.5 * 0.4), rtol=1e-15)
