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
from fedlocal.regularizers import L1, Blocks, ElasticNet, Lp, Zero
from unit.mirrors.geometry import (
    FINITE,
    MIRRORS,
    PAIRS,
    PSIS,
    SIZE,
    TERMS,
    WITH,
    D,
    conjugate,
    cvxpy_h,
    divergence,
    draw,
    h,
)

spread = st.floats(-5, 5, allow_subnormal=False)
points = st.one_of(
    hnp.arrays(np.float64, SIZE, elements=spread),
    hnp.arrays(np.float64, SIZE, elements=st.sampled_from([-2.0, 0.0, 0.5, 3.0])),  # ties and zeros
    hnp.arrays(np.float64, SIZE, elements=spread).map(lambda a: 0.02 * a),  # inside the constraints
)
steps = st.one_of(st.just(0.0), st.floats(1e-3, 5))
numbers_of_mirrors = {
    "entropy": st.just(MIRRORS["entropy"]),
    "p_norm": st.sampled_from([1.1, 1.5, 2.0]).map(PNorm),
    "diagonal": hnp.arrays(np.float64, SIZE, elements=st.floats(0.1, 10)).map(DiagonalQuadratic),
}
few = settings(max_examples=8, deadline=None, derandomize=True)
over = pytest.mark.parametrize
every_pair = over(("name", "psi_name"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
# the optimum is flat: a gap of 1e-10 leaves its square root, 1e-5, in the point; the power cone of a p-norm stops earlier
GAP = {"entropy": 1e-10, "p_norm": 1e-9, "diagonal": 1e-10}


def psi_for(mirror: MirrorMap, psi_name: str) -> Regularizer:
    return Lp(0.8, mirror.p) if psi_name == "lp" and isinstance(mirror, PNorm) else PSIS[psi_name]


@jax.jit
def psi_value(psi: Regularizer, x: jax.Array) -> jax.Array:
    return psi.array_value(x)


@jax.jit
def feasible(psi: Regularizer, z: jax.Array) -> jax.Array:
    return psi.prox(z, 0.0)


@jax.jit
def violation(psi: Regularizer, x: jax.Array) -> jax.Array:
    return psi.array_violation(x)


@every_pair
@given(data=st.data(), y=points, z=points, t=steps)
@few
def test_the_point_is_feasible_and_better_than_any_other_by_their_divergence(
    name: str, psi_name: str, data: st.DataObject, y: np.ndarray, z: np.ndarray, t: float
):
    mirror = data.draw(numbers_of_mirrors[name])
    psi = psi_for(mirror, psi_name)
    if name == "entropy":
        z = np.abs(z)
    p, z = np.asarray(conjugate(mirror, psi, y, t)), np.asarray(feasible(psi, z))
    assert violation(psi, p) <= 1e-12
    assert name != "entropy" or (p > 0).all()
    of_z, of_p = (t * float(psi_value(psi, x)) for x in (z, p))
    scale = 1 + abs(h(mirror, p)) + abs(h(mirror, z)) + (np.abs(p) + np.abs(z)) @ np.abs(y)
    gap = (h(mirror, z) + of_z - z @ y) - (h(mirror, p) + of_p - p @ y)
    assert gap >= divergence(mirror, z, p) - 1e-11 * scale


@every_pair
def test_the_point_agrees_with_cvxpy(name: str, psi_name: str):
    mirror, t, x, y = MIRRORS[name], 0.8, cp.Variable(SIZE), cp.Parameter(SIZE)
    psi, constraints = TERMS[psi_name](x)
    problem = cp.Problem(cp.Minimize(cvxpy_h(mirror, x) + t * psi - y @ x), constraints)
    for seed in range(2):
        y.value = draw(seed)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=GAP[name], tol_gap_rel=GAP[name], tol_feas=GAP[name])
        np.testing.assert_allclose(
            conjugate(mirror, PSIS[psi_name], y.value, t), np.asarray(x.value), rtol=0, atol=1e-4
        )


@every_pair
def test_t_weighs_a_penalty_and_does_nothing_to_a_constraint(name: str, psi_name: str):
    mirror, psi, y = MIRRORS[name], PSIS[psi_name], draw(2)
    at_zero = conjugate(mirror, psi, y, 0.0)
    expected = conjugate(mirror, PSIS["zero"], y, 0.0) if psi_name in FINITE else conjugate(mirror, psi, y, 3.0)
    np.testing.assert_allclose(at_zero, expected, rtol=1e-13, atol=1e-15)


@over(("name", "psi_name"), [pair for pair in PAIRS if pair[0] != "entropy"])  # which is not homogeneous
@over("bits", [32, 64])
@over("power", [-1, 1])
def test_points_of_any_size_scale(name: str, psi_name: str, bits: int, power: int):
    """For h of degree two: x(c y; c t psi) = c x(y; t psi), with a constraint c times as wide; c a power of two."""
    exponent = power * {32: 100, 64: 900}[bits]
    dtype, c = {32: np.float32, 64: np.float64}[bits], 2.0**exponent
    mirror, psi, t = MIRRORS[name], PSIS[psi_name], 0.5
    if isinstance(psi, ElasticNet):
        psi = ElasticNet(psi.l1 * c, psi.l2)
    elif psi_name != "squared_l2":
        psi = jax.tree.map(lambda number: number * c, psi)
    y = (2 * draw(3)).astype(dtype)
    expected = conjugate(mirror, PSIS[psi_name], y.astype(np.float64), t)
    got = conjugate(mirror, psi, y * dtype(c), t)
    assert got.dtype == dtype
    np.testing.assert_allclose(np.asarray(got, np.float64) / c, expected, rtol=0, atol={32: 1e-5, 64: 1e-13}[bits])


@every_pair
def test_a_zero_dual_point_has_no_nan(name: str, psi_name: str):
    mirror, psi = MIRRORS[name], PSIS[psi_name]
    assert np.isfinite(conjugate(mirror, psi, np.zeros(SIZE), 0.5)).all()


@every_pair
def test_single_precision_stays_and_agrees_with_double(name: str, psi_name: str):
    mirror, psi, y = MIRRORS[name], PSIS[psi_name], draw(4)
    expected = conjugate(mirror, psi, y, 0.5)
    with jax.enable_x64(False):
        single = conjugate(mirror, psi, jnp.asarray(y, jnp.float32), 0.5)
        assert mirror.grad(single).dtype == np.float32
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-5)


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


@over(("name", "psi_name"), [pair for pair in PAIRS if pair[1] not in {"total_variation", "monotone", "decreasing"}])
def test_a_matrix_is_the_vector_of_its_entries(name: str, psi_name: str):
    mirror, psi = MIRRORS[name], PSIS[psi_name]
    matrix = DiagonalQuadratic(D.reshape(3, 2)) if name == "diagonal" else mirror
    expected = conjugate(mirror, psi, draw(5), 0.5)
    np.testing.assert_allclose(conjugate(matrix, psi, draw(5).reshape(3, 2), 0.5).ravel(), expected, rtol=1e-14)


FORMULAS = {"entropy": entropy.FORMULAS, "p_norm": p_norm.FORMULAS, "diagonal": diagonal_quadratic.FORMULAS}


@over("name", FORMULAS)
def test_every_formula_is_in_the_table_of_these_tests(name: str):
    assert {type(PSIS[psi_name]) for psi_name in WITH[name]} == set(FORMULAS[name])


OTHERS: dict[str, Regularizer] = {
    "L2Ball": regularizers.L2Ball(1.0),
    "L2Norm": regularizers.L2Norm(1.0),
    "Nuclear": regularizers.Nuclear(1.0),
    "NuclearBall": regularizers.NuclearBall(1.0),
    "GroupL1": regularizers.GroupL1(1.0),
    **{type(psi).__name__: psi for psi in PSIS.values()},
}


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


@over("psi_name", NOT_SEEN_BY_THE_LINK)
def test_the_link_of_the_prox_is_not_the_point_for_those_left_out_of_the_p_norm(psi_name: str):
    """Else the pair should have a formula: the recipe leaves the constraint, or a feasible point near it is better."""
    mirror, psi, t, y = MIRRORS["p_norm"], NOT_SEEN_BY_THE_LINK[psi_name], 0.5, 2 * draw(11).reshape(3, 2)
    recipe = np.asarray(mirror.conjugate_grad(psi.prox(y, t), Zero(), t))
    if violation(psi, recipe) > 1e-3:
        return
    noise = np.random.default_rng(0).standard_normal((100, 3, 2)) * np.logspace(-3, -1, 100)[:, None, None]
    near = jax.jit(jax.vmap(lambda z: psi.prox(z, 0.0)))(recipe + noise)
    objective = jax.jit(jax.vmap(lambda x: mirror.value(x) + t * psi.array_value(x) - jnp.sum(x * y)))
    assert np.min(objective(near)) < objective(recipe[None])[0] - 1e-5


def test_the_tables_know_every_regulariser():
    assert set(regularizers.__all__) == {"Blocks", *OTHERS}


@over("name", FORMULAS)
def test_a_subclass_does_not_get_the_formula_of_its_parent(name: str):
    class Doubled(L1):
        def array_value(self, x: jax.Array) -> jax.Array:
            return 2 * super().array_value(x)

    with pytest.raises(TypeError, match="has no conjugate_grad with Doubled; it has one with: Zero"):
        MIRRORS[name].conjugate_grad(draw(0), Doubled(1.0), 1.0)


@over("part", ["intercept", "bias"])
@over("psi_name", ["l1", "monotone"])
@over("name", MIRRORS)
def test_an_intercept_stays_euclidean_and_free(name: str, psi_name: str, part: str):
    mirror, free = MIRRORS[name], np.array([-3.0, 4.0])
    x = conjugate(mirror, PSIS[psi_name], {"weights": draw(7), part: free}, 0.5)
    np.testing.assert_array_equal(x[part], free)
    np.testing.assert_array_equal(mirror.grad({"weights": x["weights"], part: free})[part], free)
    np.testing.assert_allclose(x["weights"], conjugate(mirror, PSIS[psi_name], draw(7), 0.5), rtol=1e-13)


@over("name", MIRRORS)
def test_blocks_give_each_part_its_formula_and_a_named_intercept_the_euclidean_prox(name: str):
    mirror = MIRRORS[name]
    psi = Blocks({"a": L1(0.7), "b": PSIS["non_negative"], "intercept": PSIS["squared_l2"]})
    y = {"a": draw(8), "b": draw(9), "c": draw(10), "intercept": np.array(-3.0)}
    x = mirror.conjugate_grad(y, psi, 0.5)
    for part, alone in (("a", L1(0.7)), ("b", PSIS["non_negative"]), ("c", PSIS["zero"])):
        np.testing.assert_allclose(x[part], conjugate(mirror, alone, y[part], 0.5), rtol=1e-14)
    np.testing.assert_allclose(x["intercept"], -3 / (1 + 0.5 * 0.4), rtol=1e-15)
