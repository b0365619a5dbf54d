"""Data that JAX rounded to 32 bits, because x64 was off, are told when x64 is on; nothing else changes."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import fedlocal as fl
from fedlocal.util.hashing import fingerprint
from fedlocal.util.placement import PrecisionWarning

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 3)), RNG.standard_normal(12)
GROUPS = np.arange(12) // 4
X0 = {"weights": np.zeros(3), "intercept": np.zeros(())}
WORK: dict[str, Any] = {"rounds": 1, "local_steps": 1, "progress": False}


def made(features: Any = X, targets: Any = Y, x64: bool = False) -> fl.FederatedData:
    with jax.enable_x64(x64):
        return fl.FederatedData.from_groups((features, targets), GROUPS)


def told(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if w.category is PrecisionWarning]


METHOD = fl.methods.FedAvg(0.1)
CALLS: dict[str, Callable[[Any], Any]] = {
    "simulate": lambda problem: fl.simulate(problem, METHOD, **WORK),
    "loop": lambda problem: fl.loop(problem, METHOD, **WORK),
    "sweep": lambda problem: fl.sweep(problem, METHOD, {"client_step_size": [0.1, 0.2], "seed": [0, 1]}, **WORK),
    "centralized": lambda problem: fl.solvers.centralized(problem, progress=False),
    "local": lambda problem: fl.solvers.local(problem, 0, progress=False),
    "path": lambda problem: fl.solvers.path(problem, [0.1], progress=False),
    "zero_strength": lambda problem: fl.solvers.zero_strength(problem),
    "certificate": lambda problem: fl.certificate(problem, None, X0),
    "estimate": lambda problem: fl.theory.estimate(problem),
}


@pytest.mark.parametrize("name", CALLS)
def test_rounded_data_are_told_once_where_numbers_are_computed(name: str):
    problem = fl.problems.LeastSquares(made())
    with jax.enable_x64(False):
        assert (
            told(lambda: CALLS[name](problem)) == []
        )  # float32 is what the user asked for, though we compute in float64
    (said,) = told(lambda: CALLS[name](problem))
    what = (
        "JAX rounded the data (array 0, 1) to 32 bits, since jax_enable_x64 was off when they were made; it is on now"
    )
    assert said == f'{name}: {what}; call jax.config.update("jax_enable_x64", True) before the data are made'
    assert told(lambda: CALLS[name](problem)) == []


def test_the_certificate_of_a_result_and_a_comparison_tell_it():
    problem = fl.problems.LeastSquares(made())
    with jax.enable_x64(False):
        result = fl.simulate(problem, METHOD, **WORK)
    (said,) = told(lambda: result.certificate())
    assert said.startswith("certificate: JAX rounded the data")
    assert len(told(lambda: fl.compare(fl.problems.LeastSquares(made()), [METHOD], seeds=range(2), **WORK))) == 1


def test_the_warning_shows_the_line_of_the_call():
    problem = lambda: fl.problems.LeastSquares(made())  # noqa: E731
    for call in (
        lambda: fl.simulate(problem(), METHOD, **WORK),
        lambda: fl.solvers.centralized(problem(), progress=False),
        lambda: fl.certificate(problem(), None, X0),
        lambda: fl.theory.estimate(problem()),
    ):
        with pytest.warns(PrecisionWarning) as caught:
            call()
        assert [w.filename for w in caught] == [__file__]


LABELS = np.where(Y > 0, 1, -1)
EXACT: dict[str, Callable[[], fl.FederatedData]] = {
    "made in 64 bits": lambda: made(x64=True),
    "float32 from the start": lambda: made(X.astype(np.float32), Y.astype(np.float32)),
    "small whole numbers": lambda: made(np.round(X), LABELS),
    "sparse ones": lambda: made(scipy.sparse.csr_array((X > 0).astype(float)), np.round(Y)),
    "an array of JAX": lambda: made(jnp.asarray(X, jnp.float32), LABELS),
}


@pytest.mark.parametrize("what", EXACT)
def test_numbers_that_lost_nothing_are_not_told(what: str):
    problem = fl.problems.LeastSquares(EXACT[what]())
    assert told(lambda: fl.simulate(problem, METHOD, **WORK)) == []


def labels(data: fl.FederatedData) -> Any:
    return fl.problems.Logistic(data).data


VIEWS: dict[str, Callable[[fl.FederatedData], fl.FederatedData]] = {
    "itself": lambda data: data,
    "one client": lambda data: data.only(1),
    "pooled": lambda data: data.pooled(),
    "tree_map": lambda data: jax.tree.map(lambda a: a, data),
    "flattened": lambda data: jax.tree.unflatten(*reversed(jax.tree.flatten(data))),
    "on a device": jax.device_put,
    "problem with labels": lambda data: labels(made(X, LABELS)),
    "another loss": lambda data: fl.problems.LeastSquares(made()).with_data(data).data,
    "sparse": lambda data: made(scipy.sparse.coo_array(X)),
    "a sparse one, pooled": lambda data: made(scipy.sparse.csr_array(X)).pooled(),
    "of pandas": lambda data: fl.FederatedData([pd.DataFrame(X), pd.Series(Y)], [0], [12]),
    "jitted": lambda data: jax.jit(lambda d: jax.tree.map(lambda a: a + 0, d))(data),
}


@pytest.mark.parametrize("what", VIEWS)
def test_views_of_rounded_data_are_rounded(what: str):
    jax.clear_caches()  # a program that returns data gives those of its first call
    with jax.enable_x64(False):
        data = VIEWS[what](made())
    assert data.rounding.arrays
    assert len(told(lambda: fl.simulate(fl.problems.LeastSquares(data, intercept=False), METHOD, **WORK))) == 1


def test_an_augmented_problem_tells_it():
    problem = fl.problems.augmented(fl.problems.LeastSquares(made()), 0.1, X0)
    assert len(told(lambda: fl.simulate(problem, METHOD, **WORK))) == 1


def test_quadratics_tell_it():
    with jax.enable_x64(False):
        rounded, exact = (fl.problems.quadratics([[[a]]], [[1.0]], noise_std=0.1) for a in (0.1, 0.5))
    x0 = np.zeros(1)
    (said,) = told(lambda: fl.simulate(rounded, METHOD, x0=x0, **WORK))
    assert "JAX rounded the data (array 0) to 32 bits" in said
    assert told(lambda: fl.solvers.centralized(exact, x0=x0, progress=False)) == []
    assert jax.tree.structure(rounded) == jax.tree.structure(exact)


def test_rounded_and_exact_data_share_programs_and_fingerprints():
    """A checkpoint of the one continues with the other if the numbers are the same; nothing is compiled again."""
    rounded, exact = made(), made(X.astype(np.float32), Y.astype(np.float32))
    assert rounded.rounding.arrays
    assert not exact.rounding.arrays
    assert fingerprint(rounded) == fingerprint(exact)
    assert jax.tree.structure(rounded) == jax.tree.structure(exact)
    traces = []

    @jax.jit
    def total(data: fl.FederatedData) -> jax.Array:
        traces.append(1)
        return jnp.sum(data.arrays[0])

    assert total(rounded) == total(exact)
    stacked = jax.tree.map(lambda *a: jnp.stack(a), rounded, exact)
    np.testing.assert_array_equal(jax.vmap(lambda d: jnp.sum(d.arrays[0]))(stacked), [total(exact)] * 2)
    assert len(traces) == 1


def test_a_checkpoint_of_32_bits_continues(tmp_path: Path):
    file = tmp_path / "run.npz"
    x0 = {name: np.asarray(a, np.float32) for name, a in X0.items()}
    with jax.enable_x64(False):
        first = made()
        fl.simulate(fl.problems.LeastSquares(first), METHOD, x0=x0, checkpoint=file, **WORK)
    again = fl.problems.LeastSquares(made(X.astype(np.float32), Y.astype(np.float32)))
    with jax.enable_x64(False):
        history = fl.simulate(again, METHOD, x0=x0, checkpoint=file, **{**WORK, "rounds": 2}).history
        assert history["round"].tolist()[-1] == 2
