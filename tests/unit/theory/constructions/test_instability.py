"""The instability theorem: the construction has the curvatures it claims, and distances grow as the closed form says."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fedlocal.methods import FedAc
from fedlocal.methods.fed_ac import AcState, accelerated_step, middle_point
from fedlocal.theory.constructions.instability import (
    agd_trajectory,
    difference_matrix,
    distances,
    gradient_descent_distances,
    growth,
    growth_factor,
    unstable_objective,
    worst_distances,
)

BLOCKS = 5


def agd(kappa: float) -> FedAc:
    return FedAc.vanilla(step_size=1 / kappa, strong_convexity=1.0)


@pytest.mark.parametrize("curvature", [1.0, 3.7, 30.0])
def test_the_matrix_is_one_step_of_agd_on_a_quadratic_as_in_the_text(curvature: float):
    kappa, root = 30.0, 30.0**0.5
    method = agd(kappa)
    columns = []
    for ag, x in ((1.0, 0.0), (0.0, 1.0)):
        state = AcState(x, ag)
        md = middle_point(state, root + 1)
        after = accelerated_step(state, md, curvature * md, root, 1 / kappa, 1 / root)  # with L = kappa, mu = 1
        columns.append([float(after.ag), float(after.x)])
    matrix = difference_matrix(method, curvature)
    np.testing.assert_allclose(matrix, np.array(columns).T, rtol=1e-12, atol=1e-12)
    near, far = 1 - curvature / kappa, 1 - curvature  # 1 - H/L, 1 - H/mu
    lemma = np.array([[root * near, near], [far, root * near]]) / (root + 1)
    np.testing.assert_allclose(matrix, lemma, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kappa", "stiff"), [(25.0, 1), (30.0, 1), (400.0, 0), (400.0, 1)])
def test_every_query_has_the_curvature_of_the_lemma_in_its_neighbourhood(kappa: float, stiff: int):
    objective = unstable_objective(kappa, BLOCKS, stiff)
    delta = objective.neighbourhood
    assert delta > 0
    queries = [step.md for step in agd_trajectory(objective)][: 3 * BLOCKS]
    for t, md in enumerate(queries):
        wanted = kappa if t % 3 == stiff else 1.0
        assert {objective.curvature(md + part * delta / 10) for part in range(-10, 11)} == {wanted}
    assert min(abs(a - b) for a, b in itertools.combinations(queries, 2)) >= 2 * delta


def test_the_gradient_is_the_integral_of_the_curvature():
    objective = unstable_objective(25.0, 4)
    for center, radius in objective.bumps:
        for w in (center - 2 * radius, center, center + radius / 2):
            step = radius / 100
            slope = (objective.gradient(w + step) - objective.gradient(w - step)) / (2 * step)
            assert abs(slope - objective.curvature(w)) < 1e-12
    inside = sum(2 * radius for _, radius in objective.bumps)
    assert abs(objective.gradient(2) - (2 + 24 * inside)) < 1e-30
    assert objective.gradient(0) == 0


def test_exact_fractions_see_the_same_curvatures():
    """sqrt(25) is rational: the same objective and start in exact arithmetic, so that no rounding can have helped."""
    objective = unstable_objective(25.0, BLOCKS)

    def exact(number: object) -> Fraction:
        sign, mantissa, exponent, _ = number._mpf_  # pyright: ignore[reportAttributeAccessIssue]
        return (-1) ** sign * int(mantissa) * Fraction(2) ** exponent

    ends = [(exact(c) - exact(r), exact(c) + exact(r)) for c, r in objective.bumps]
    ag, w = (exact(value) for value in objective.start)
    for t in range(3 * BLOCKS):
        md = (w + 5 * ag) / 6
        assert any(low <= md <= high for low, high in ends) == (t % 3 == 1)
        g = md + 24 * sum(min(max(md, low), high) - min(max(Fraction(0), low), high) for low, high in ends)
        ag, w = md - g / 25, Fraction(4, 5) * w + md / 5 - g / 5


@pytest.mark.parametrize("kappa", [25.0, 30.0, 400.0])
def test_distances_are_the_closed_form_of_the_proof(kappa: float):
    objective = unstable_objective(kappa, BLOCKS)
    root, powers = kappa**0.5, (2 * (1 - kappa**-0.5) ** 3) ** np.arange(1, BLOCKS + 1)
    seen = growth(objective, objective.largest_epsilon)
    assert seen.shape == (BLOCKS + 1, 2)
    np.testing.assert_allclose(seen[0], 1, rtol=1e-12)
    np.testing.assert_allclose(seen[1:, 0], (1 + 1 / root) / 2 * powers, rtol=1e-12)
    np.testing.assert_allclose(seen[1:, 1], (1 + root) / 2 * powers, rtol=1e-12)


def test_the_proof_has_the_halves_in_their_places_and_the_statement_holds_with_the_other_stiff_step():
    blocks, level = np.arange(1, BLOCKS + 1), 1.02 ** np.arange(1, BLOCKS + 1)
    seen = growth(unstable_objective(25.0, BLOCKS), unstable_objective(25.0, BLOCKS).largest_epsilon)[1:]
    assert (seen[:, 0] >= level / 2).all()
    assert (seen[:, 1] >= level).all()
    assert (seen[:, 0] < level).all()  # the statement's inequality for w_ag fails on this objective
    other = unstable_objective(25.0, BLOCKS, stiff_step=0)
    seen = growth(other, other.largest_epsilon)[1:]
    np.testing.assert_allclose(seen[:, 0], growth_factor(25.0) ** blocks, rtol=1e-12)
    np.testing.assert_allclose(seen[:, 1], 5 / 2 * growth_factor(25.0) ** blocks, rtol=1e-12)
    assert (seen[:, 0] >= level).all()


def test_runs_that_start_too_far_apart_see_other_curvatures():
    objective = unstable_objective(25.0, BLOCKS)
    far = growth(objective, objective.largest_epsilon * 1e6)
    assert abs(far[-1, 0] / growth(objective, objective.largest_epsilon)[-1, 0] - 1) > 0.01


def test_both_runs_converge_later_and_gradient_descent_never_parts():
    objective = unstable_objective(100.0, BLOCKS)
    apart = distances(objective, objective.largest_epsilon, steps=3 * BLOCKS + 150)
    assert apart[: 3 * BLOCKS + 1, 1].max() > 10
    assert apart[-1].max() < 1e-3
    plain = gradient_descent_distances(objective, objective.largest_epsilon, steps=3 * BLOCKS)
    assert (np.diff(plain) <= 0).all()


@pytest.mark.parametrize("method", [agd(25.0), FedAc.one(step_size=1 / 25, strong_convexity=1.0, local_steps=8)])
def test_the_worst_case_is_that_of_all_sequences(method: FedAc):
    steps = 8
    matrices = [difference_matrix(method, h) for h in (1.0, 25.0)]
    corners = np.array([[1.0, 1.0], [1.0, -1.0]]).T
    largest = np.zeros(2)
    for chosen in itertools.product(matrices, repeat=steps):
        product = np.eye(2)
        for matrix in chosen:
            product = matrix @ product
        largest = np.maximum(largest, np.abs(product @ corners).max(axis=1))
    np.testing.assert_allclose(worst_distances(method, 25.0, 1.0, steps)[-1], largest, rtol=1e-9)


def test_curvatures_between_are_not_worse():
    method, random = agd(25.0), np.random.default_rng(0)
    worst = worst_distances(method, 25.0, 1.0, 12)
    for _ in range(300):
        difference = random.choice([-1.0, 1.0], size=2)
        for k, curvature in enumerate(random.uniform(1, 25, size=12)):
            difference = difference_matrix(method, curvature) @ difference
            assert (np.abs(difference) <= worst[k + 1] * (1 + 1e-12)).all()


@pytest.mark.parametrize("kappa", [25.0, 100.0])
def test_agd_grows_fastest_with_a_period_of_five(kappa: float):
    """mu four times and L once multiply by 4 (1 - 1/sqrt(kappa))^5; nothing is faster, and the text's three are slower."""
    worst = worst_distances(agd(kappa), kappa, 1.0, 60)[:, 1]
    np.testing.assert_allclose(worst[60] / worst[55], 4 * (1 - kappa**-0.5) ** 5, rtol=1e-6)
    assert (worst[60] / worst[55]) ** (1 / 5) > growth_factor(kappa) ** (1 / 3)


@pytest.mark.parametrize("local_steps", [1, 4, 16, 64, 256])
def test_fed_ac_one_stays_within_the_norm_of_the_text(local_steps: int):
    """||X^-1 (x_ag, x)|| grows by at most 1 + 2 gamma^2 mu / eta a step, X^-1 = [[g, 0], [-g, 1]], g = gamma / eta."""
    kappa = 100.0
    method = FedAc.one(step_size=1 / kappa, strong_convexity=1.0, local_steps=local_steps)
    ratio = method.gamma * kappa
    inverse = np.array([[ratio, 0.0], [-ratio, 1.0]])
    factor = 1 + 2 * method.gamma * ratio if ratio > 1 + 1e-12 else 1.0
    for curvature in (1.0, 10.0, 100.0):
        inner = inverse @ difference_matrix(method, curvature) @ np.linalg.inv(inverse)
        assert np.linalg.norm(inner, 2) <= factor * (1 + 1e-12)
    worst = worst_distances(method, kappa, 1.0, local_steps)
    bound = np.hypot(ratio, 1 + ratio) * factor ** np.arange(local_steps + 1)
    assert (worst[:, 0] <= bound / ratio).all()
    assert worst[:, 0].max() <= 5**0.5 * np.e**2


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="unstable_objective: kappa must be > 1, got 1"):
        unstable_objective(1.0, 2)
    with pytest.raises(ValueError, match="unstable_objective: stiff_step must be a whole number >= 0 and <= 2, got 3"):
        unstable_objective(25.0, 2, stiff_step=3)
