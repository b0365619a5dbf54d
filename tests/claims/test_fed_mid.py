"""Every bound of FedMiD and FedMiD-OSP that applies holds, over a grid of K, R, eta_c, eta_s and psi.

Theorem thm:0 fails for FedMiD, except where psi is an affine set.

Four clients, F_m(x) = sum_j a_j sqrt(1 + (x_j - c_mj)^2) in three dimensions, whose gradients are bounded, with uniform noise:
all constants are exact. All methods run in one program per number of local steps.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.core import LocalMethod, Regularizer, Round
from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.composite import composite_small_step_bound
from fedlocal.theory.bounds.fed_mid import fed_mid_constraint_bound, fed_mid_osp_bound
from unit.one_program import for_each

CLIENTS, ROUNDS = 4, (4, 16, 64, 512)
SCALES = np.array([1.0, 0.5, 0.2])  # a; the largest is L
CENTERS = np.array([[0.9, -1.2, 0.3], [-0.4, -0.2, 1.6], [1.7, 0.1, -0.6], [-1.4, 0.9, -1.1]])
START = np.array([-0.3, 0.4, 0.2])
SMALL = 1e-5  # a client step size that is small enough for theorem small_lr
R = fl.regularizers
CONSTRAINTS: dict[str, Any] = {
    "box": R.Box(-0.35, 0.5),
    "ball": R.L2Ball(0.6),
    "l1 ball": R.L1Ball(0.95),
    "cone": R.NonNegative(),
}
FINITE: dict[str, Any] = {"l1": R.L1(0.1), "squared l2": R.SquaredL2(0.5), "l2 norm": R.L2Norm(0.2)}
MORE_CONSTRAINTS: dict[str, Any] = {"simplex": R.Simplex(0.3), "l_inf ball": R.LInfBall(0.4)}
MORE_FINITE: dict[str, Any] = {"elastic net": R.ElasticNet(0.1, 0.3), "l_inf": R.LInf(0.3)}


class AffineSet(Regularizer):
    """psi = 0 if A x = b, else inf, as a user may write it; the rows of A are orthonormal."""

    A: Any  # (rows, d)
    b: Any  # (rows,)

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.where(self.array_violation(x) <= 1e-9, 0.0, jnp.inf)

    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return x - self.A.T @ (self.A @ x - self.b)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.linalg.norm(self.A @ x - self.b)

    def is_constraint(self) -> bool:
        return True


class Wedge(AffineSet):
    """psi = 0 if A x <= b, else inf."""

    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return x - self.A.T @ jnp.maximum(self.A @ x - self.b, 0)

    def array_violation(self, x: jax.Array) -> jax.Array:
        return jnp.linalg.norm(jnp.maximum(self.A @ x - self.b, 0))


PLANE = np.array([[1.0, 1.0, 1.0]]) / np.sqrt(3), np.array([-0.1])
LINE = np.array([[2.0, -1.0, 2.0], [1.0, -2.0, -2.0]]) / 3, np.array([-0.3, -0.2])


class Problem(NamedTuple):
    """How much of CENTERS the clients have for themselves, and the largest noise of a coordinate."""

    spread: float
    noise: float

    @property
    def constants(self) -> Constants:
        d = len(SCALES)
        G = float(np.linalg.norm(SCALES)) + self.noise * np.sqrt(d)
        return Constants(1.0, self.noise * np.sqrt(d / 3), 1.0, gradient_bound=G, heterogeneity=None)

    @property
    def centers(self) -> np.ndarray:
        return CENTERS.mean(axis=0) + self.spread * (CENTERS - CENTERS.mean(axis=0)) + [0.5, 0.0, 0.0]


def loss(x: Any, centers: Any) -> Any:
    """F at one point or more."""
    return (SCALES * jnp.sqrt(1 + (x[..., None, :] - centers) ** 2)).sum(-1).mean(-1)


def gradient(x: Any, center: Any) -> Any:
    return SCALES * (x - center) / jnp.sqrt(1 + (x - center) ** 2)


class Cell(NamedTuple):
    client: float
    server: float


def cells(client_step_sizes: tuple[float, ...]) -> list[Cell]:
    """Some pairs of step sizes, and the products of theorem small_lr for K = 1, 4, 16 with a small client step size."""
    pairs = [Cell(c, s) for c in client_step_sizes for s in (0.3, 1.0, 5.0)]
    return pairs + [Cell(SMALL, 1 / (4 * K * SMALL)) for K in (1, 4, 16)]


class Found(NamedTuple):
    points: np.ndarray  # (cells, seeds, rounds + 1, d) of the server
    values: np.ndarray  # (4, cells, seeds) Phi at the mean of the first R points, for each of ROUNDS
    after: np.ndarray  # the same for the points after each round
    solution: np.ndarray  # (d,) the minimiser of Phi
    optimum: float


def walk(method: LocalMethod, psi: Any, problem: Any, local_steps: Any, seeds: Any) -> Any:
    """All cells and seeds; method's arrays have an axis of cells."""
    centers, noise = problem
    start = jnp.asarray(START) if not psi.is_constraint() else psi.prox(jnp.asarray(START), 1.0)

    def one_round(method: Any, server: Any, key: Any) -> Any:
        def client(center: Any, key: Any) -> Any:
            def step(k: Any, state: Any) -> Any:
                xi = jax.random.uniform(jax.random.fold_in(key, k), START.shape, minval=-noise, maxval=noise)
                return method.step(state, lambda x: gradient(x, center) + xi)

            state = jax.lax.fori_loop(0, local_steps, step, method.start(server, ()))
            return method.finish(server, state)[0]

        messages = jax.vmap(client)(centers, jax.random.split(key, CLIENTS))
        server = method.update(server, jax.tree.map(lambda a: a.mean(0), messages), Round())
        return server, method.solution(server)

    def run(method: Any, seed: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed), max(ROUNDS))
        points = jax.lax.scan(lambda server, key: one_round(method, server, key), method.init(start), keys)[1]
        return jnp.concatenate([start[None], points])

    points = jax.vmap(lambda method: jax.vmap(lambda seed: run(method, seed))(seeds))(method)

    def objective(x: Any) -> Any:
        return loss(x, centers) + (0 if psi.is_constraint() else psi.value(x))

    def means(points: Any) -> Any:
        return jnp.stack([jax.vmap(jax.vmap(objective))(points[:, :, :rounds].mean(2)) for rounds in ROUNDS])

    slope = jax.vmap(gradient, (None, 0))
    solution = jax.lax.fori_loop(0, 4000, lambda _, x: psi.prox(x - slope(x, centers).mean(0), 1.0), start)
    return points, means(points[:, :, :-1]), means(points[:, :, 1:]), solution, objective(solution)


def program(rows: dict[str, tuple[Any, Any]], problem: Problem, local_steps: int, seeds: int) -> dict[str, Found]:
    """All rows (method with cells, psi) of the table as one program, the same for every problem and number of local steps."""
    found = PROGRAM(rows, (problem.centers, problem.noise), local_steps, jnp.arange(seeds))
    return {name: Found(*each) for name, each in found.items()}


PROGRAM = for_each(lambda row, problem, local_steps, seeds: walk(row[0], row[1], problem, local_steps, seeds))


def table(constraints: dict[str, Any], finite: dict[str, Any], chosen: list[Cell]) -> dict[str, tuple[Any, Any]]:
    def method(psi: Any, **given: Any) -> Any:
        made = [fl.methods.FedMiD(cell.client, cell.server, psi, **given) for cell in chosen]
        return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(a, float) for a in leaves]), *made), psi

    rows = {f"FedMiD, {name}": method(psi) for name, psi in (constraints | finite).items()}
    return rows | {f"FedMiD-OSP, {name}": method(psi, prox_on_clients=False) for name, psi in finite.items()}


class Checked(NamedTuple):
    settings: int  # in which the bound applies
    largest: float  # measured mean over bound
    breaks: bool  # whether the bound without its deterministic term, or without its drift, is broken by four standard errors
    text_breaks: int  # cells with small client steps in which thm:0 is broken by four standard errors
    text_largest: float  # measured mean over what thm:0 promises, in such a cell
    text_settings: int  # such cells that thm:0 is about


def check(found: Found, name: str, psi: Any, problem: Problem, local_steps: int, chosen: list[Cell]) -> Checked:
    """Raises where a bound that applies is broken."""
    start = found.points[0, 0, 0]
    constants = replace(problem.constants, distance=float(np.linalg.norm(start - found.solution)))
    osp = name.startswith("FedMiD-OSP")
    bound_fn, values = (fed_mid_osp_bound, found.after) if osp else (fed_mid_constraint_bound, found.values)
    settings, largest, breaks, text_breaks, text_ratios = 0, 0.0, set(), 0, []
    for i, rounds in enumerate(ROUNDS):
        setting = Setting(CLIENTS, rounds, local_steps)
        for j, cell in enumerate(chosen):
            bound = bound_fn(constants, setting, cell.client, regularizer=psi, server_step_size=cell.server)
            mean, error = mean_and_error(values[i, j] - found.optimum)
            if bound.applies:
                assert mean + 4 * error <= bound.value * (1 + 1e-9), (name, problem, setting, cell, mean, bound)
                settings, largest = settings + 1, max(largest, mean / bound.value)
                breaks |= {term for term, value in bound.terms.items() if mean - 4 * error > bound.value - value}
            text = composite_small_step_bound(constants, setting, cell.client * cell.server)
            mean, error = mean_and_error(found.after[i, j] - found.optimum)
            if cell.client == SMALL and text.applies:
                text_breaks += mean - 4 * error > text.value
                text_ratios.append((mean + 4 * error) / text.value)
    needed = "deterministic" in breaks and (osp or "drift" in breaks)
    return Checked(settings, largest, needed, text_breaks, max(text_ratios), len(text_ratios))


def mean_and_error(gaps: np.ndarray) -> tuple[float, float]:
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def checked(problem: Problem, local_steps: int, thorough: bool = False) -> dict[str, Checked]:
    constraints, finite = (CONSTRAINTS | MORE_CONSTRAINTS, FINITE | MORE_FINITE) if thorough else (CONSTRAINTS, FINITE)
    chosen = cells((0.002, 0.01, 0.05, 0.2, 0.5, 1.0) if thorough else (0.01, 0.1, 0.5))
    rows = table(constraints, finite, chosen)
    found = program(rows, problem, local_steps, 16 if thorough else 8)
    return {name: check(found[name], name, row[1], problem, local_steps, chosen) for name, row in rows.items()}


APART, QUIET, ALIKE = Problem(1.0, 0.3), Problem(1.0, 0.0), Problem(0.0, 0.3)


@pytest.mark.parametrize(("problem", "local_steps"), [(APART, 1), (APART, 4), (QUIET, 4), (APART, 16)])
def test_every_bound_that_applies_holds(problem: Problem, local_steps: int):
    found = checked(problem, local_steps)
    osp = {name: one for name, one in found.items() if "OSP" in name}
    constrained = {name: one for name, one in found.items() if name.split(", ")[1] in CONSTRAINTS}
    assert all(one.settings >= 12 and one.largest > 0.1 for one in (osp | constrained).values())
    assert all(one.settings == 0 for name, one in found.items() if name not in osp | constrained)
    for some in (osp, constrained):  # the terms are needed: without one of them the bound is broken somewhere
        assert any(one.breaks for one in some.values())


def test_for_fed_mid_the_texts_bound_fails_and_for_the_only_server_proximal_variant_it_holds():
    """With small client step sizes and at the products of step sizes that thm:0 allows."""
    found = checked(QUIET, 1) | {f"{name}, noise": one for name, one in checked(ALIKE, 4).items()}
    broken = {name for name, one in found.items() if one.text_breaks}
    assert {"FedMiD, l1", "FedMiD, squared l2", "FedMiD, l2 norm", "FedMiD, box", "FedMiD, l2 norm, noise"} <= broken
    assert not any("OSP" in name for name in broken)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_the_texts_bound_holds_for_fed_mid_on_affine_sets(local_steps: int):
    """Clients that differ and noise: thm:0 holds on a plane and on a line, and fails on the wedge that ends at the line."""
    problem, chosen = Problem(2.0, 0.1), cells(())
    sets: dict[str, Any] = {"plane": AffineSet(*PLANE), "line": AffineSet(*LINE), "wedge": Wedge(*LINE)}
    rows = table(sets, {}, chosen)
    found = program(rows, problem, local_steps, 16)
    plane, line, wedge = (check(found[name], name, row[1], problem, local_steps, chosen) for name, row in rows.items())
    for on_set in (plane, line):
        assert on_set.text_settings >= 2 * len(ROUNDS)
        assert 0.3 < on_set.text_largest <= 1
    np.testing.assert_allclose(found["FedMiD, wedge"].solution, found["FedMiD, line"].solution, atol=1e-9)
    assert wedge.text_breaks > 0


@pytest.mark.thorough
@pytest.mark.parametrize("problem", [APART, QUIET, ALIKE, Problem(2.0, 1.0)])
@pytest.mark.parametrize("local_steps", [1, 2, 4, 16])
def test_every_bound_that_applies_holds_on_a_larger_grid(problem: Problem, local_steps: int):
    found = checked(problem, local_steps, thorough=True)
    assert all(one.settings > 0 for name, one in found.items() if "OSP" in name)
    assert not any(one.text_breaks for name, one in found.items() if "OSP" in name)
