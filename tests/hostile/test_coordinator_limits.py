"""What a hostile coordinator can learn from a usual site all the same, and where that ends.

Least squares: second moments of the columns and the target, however much is asked. Logistic regression: with about twice
as many chosen states as there are rows, the columns of every row; the usual policy answers half as many.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import qr
from scipy.optimize import least_squares
from scipy.special import expit

import fedlocal as fl
from fedlocal.data.moments import Moments
from fedlocal.flower.messages import records
from hostile.hostile_coordinator import (
    COLUMNS,
    TARGET,
    Coordinator,
    answered,
    numbers_of,
    patients,
    refusal,
    with_policy,
    write_hospital,
)

NUMERIC = ["age", "pressure", "weight"]


# --- least squares: second moments, and no more


def rotated(table: np.ndarray, seed: int) -> np.ndarray:
    """Other rows with the same second moments: rotated among themselves around the axis of ones."""
    n = len(table)
    rng = np.random.default_rng(seed)
    basis: Any = qr(np.c_[np.ones(n), rng.normal(size=(n, n - 1))])[0]
    turn = np.eye(n)
    turn[1:, 1:] = qr(rng.normal(size=(n - 1, n - 1)))[0]
    return basis @ turn @ basis.T @ table


def answers_of(coordinator: Coordinator, states: np.ndarray) -> list[float]:
    """Whatever the site says at these states."""
    found: list[float] = []
    for r, state in enumerate(states):
        found += coordinator.gradient(state, 2 * r).tolist()
        asked = coordinator.evaluate(state, 2 * r + 1)
        arrays = records.only_arrays(answered(asked).content)
        found += [*arrays["weights"].tolist(), *arrays["intercept"].ravel().tolist()]
        found += [value for _, value in sorted(numbers_of(asked).items())]
    return found


def test_least_squares_tells_second_moments_and_nothing_else(tmp_path: Path):
    """Two hospitals without a patient in common, but with the same second moments, answer alike."""
    table = patients().assign(sick=lambda t: t["age"] / 10 + t["weight"] / 20 + np.arange(60) % 7)[[*COLUMNS, TARGET]]
    states = np.random.default_rng(3).normal(size=(8, 5)) * 0.5 + [0, 0, 0, 0, 9.0]
    found = []
    for name, rows in (("first", table.to_numpy()), ("second", rotated(table.to_numpy(), 2))):
        (tmp_path / name).mkdir()
        hospital = write_hospital(tmp_path / name, pd.DataFrame(rows, columns=table.columns), task="least-squares")
        coordinator = Coordinator(*hospital)
        coordinator.claim(coordinator.own_moments())
        curvature = numbers_of(coordinator.query(curvature=True))["curvature"]
        found.append([curvature, *answers_of(coordinator, states)])
    assert np.abs(rotated(table.to_numpy(), 2) - table.to_numpy()).min(axis=1).max() > 0.1
    np.testing.assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-7)


# --- labels: one sum


def test_of_the_labels_logistic_regression_tells_the_sum_of_the_sick_and_nothing_else(tmp_path: Path):
    """Two hospitals with the same rows, in which other patients are sick, answer alike where the sums of the sick are equal.

    Sums over the patients with one label, such as that of the positive slopes, would differ; their differences over states
    would be second moments of these patients, and a patient who alone has a value among them would be a row.
    """
    away = np.random.default_rng(7).normal(size=(30, 4)) * [9.0, 15.0, 0.0, 10.0] + [0.0, 0.0, 0.5, 0.0]
    middle = np.array([50.0, 130.0, 0.5, 75.0])
    pairs = np.vstack([middle + away, middle - away])  # all with the same sum; one of a pair smokes
    found = []
    for name, sick in (("first", np.arange(30) % 2), ("second", np.arange(30) % 2 == 0)):
        (tmp_path / name).mkdir()
        table = pd.DataFrame(pairs, columns=COLUMNS).assign(**{TARGET: np.tile(sick, 2).astype(int)})
        coordinator = Coordinator(*write_hospital(tmp_path / name, table))
        coordinator.claim(coordinator.own_moments())
        found.append(answers_of(coordinator, np.random.default_rng(3).normal(size=(8, 5)) * 0.5))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


# --- logistic regression: every row


def chosen_states(number: int, columns: int) -> np.ndarray:
    """States in all directions, as far out as a model of nothing may be."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(number, columns + 1))
    return z / np.linalg.norm(z, axis=1, keepdims=True) * rng.uniform(0.4, 1.7, (number, 1))


def rows_from_gradients(states: np.ndarray, gradients: np.ndarray, rows: int, seed: int) -> tuple[float, np.ndarray]:
    """Standardised rows A that fit mean_i (expit(z'a_i) - label_i) a_i best, and how well they do.

    The labels are only in mean_i label_i a_i, which the gradient at zero gives: it is g(0) = mean_i (1/2 - label_i) a_i, and
    the mean of all a_i is (0, 1).
    """
    width = states.shape[1]
    wanted = gradients[1:] - gradients[0] + np.eye(width)[-1] / 2
    states = states[1:]

    def table(free: np.ndarray) -> np.ndarray:
        return np.c_[free.reshape(rows, width - 1), np.ones(rows)]

    def misfit(free: np.ndarray) -> np.ndarray:
        A = table(free)
        return (expit(states @ A.T) @ A - rows * wanted).ravel()

    def jacobian(free: np.ndarray) -> np.ndarray:
        A = table(free)
        p = expit(states @ A.T)
        J = (p * (1 - p))[:, None, :, None] * states[:, None, None, :-1] * A.T[None, :, :, None]
        for k in range(width - 1):
            J[:, k, :, k] += p
        return J.reshape(-1, free.size)

    start = np.random.default_rng(seed).normal(size=rows * (width - 1))
    fit = least_squares(misfit, start, jacobian, method="lm", max_nfev=400, xtol=1e-15, ftol=1e-15, gtol=1e-15)  # pyright: ignore[reportArgumentType]
    return fit.cost, fit.x.reshape(rows, width - 1)


def test_chosen_states_give_every_row_of_logistic_regression(tmp_path: Path):
    """70 questions, and every column of all 30 patients is known: this is why the usual policy answers 15."""
    table: Any = patients(30)[[*NUMERIC, TARGET]]
    app, node = write_hospital(tmp_path, table)
    coordinator = Coordinator(with_policy(app, most_states_per_row=3), node)
    moments = coordinator.own_moments()
    coordinator.claim(moments)
    states = np.r_[np.zeros((1, 4)), chosen_states(69, 3)]
    gradients = np.stack([coordinator.gradient(z, r) for r, z in enumerate(states)])
    fits = (rows_from_gradients(states, gradients, 30, seed) for seed in range(10))
    rows = next(rows for cost, rows in fits if cost < 1e-18)
    scaling = moments.scaling()
    found = {tuple(row) for row in np.rint(rows * scaling.scale + scaling.mean).astype(int).tolist()}
    assert found == {tuple(row) for row in table[NUMERIC].to_numpy().tolist()}


def test_the_usual_policy_answers_half_as_many_states_as_there_are_rows(tmp_path: Path):
    coordinator = Coordinator(*write_hospital(tmp_path, patients(30).filter([*NUMERIC, TARGET])))
    coordinator.claim(coordinator.own_moments())
    states = chosen_states(17, 3)
    for r, z in enumerate(states[:10]):
        coordinator.gradient(z, r)
    for r, z in enumerate(states[10:15], start=10):  # losses and gradients of evaluations are counted with them
        assert numbers_of(coordinator.evaluate(z, r))
    assert refusal(coordinator.evaluate(states[15], 15)) == "most_states_per_row"
    assert refusal(coordinator.evaluate(states[16], 0)) == "round"
    coordinator.gradient(states[3], 3)  # asked before: the same answer costs nothing


@pytest.mark.parametrize("patient", [7, 8])
def test_a_false_mean_does_not_mark_the_one_patient_with_a_missing_value(patient: int, tmp_path: Path):
    """A missing value is the mean of all. One that is far from all values of this site would give the patient's label."""
    table = patients().astype({"age": float})
    table.loc[patient, "age"] = np.nan
    coordinator = Coordinator(*write_hospital(tmp_path, table), fl.methods.AcceleratedProximalGradient(1e-9))
    own = coordinator.own_moments()
    assert own.present.tolist() == [59.0, 60.0, 60.0, 60.0]
    others = own.present * 1e5
    far = Moments(others, own.mean, own.squares * 1e5)._replace(mean=own.mean + np.array([1e6, 0, 0, 0]))
    coordinator.claim(Moments.merged([own, far]))
    g = coordinator.gradient(np.zeros(5))
    assert g[0] == 0  # the column is left out
    assert (g[1:] != 0).all()


# --- few rows


@pytest.mark.parametrize("task", ["logistic", "least-squares"])
@pytest.mark.parametrize("sick", [1, 2])
def test_a_site_with_a_few_sick_patients_answers_nothing(sick: int, task: str, tmp_path: Path):
    """The gradient at the zero model, which every run asks for, is the sum of their columns: of one patient, the row."""
    table = patients().assign(sick=(np.arange(60) < sick).astype(int))
    coordinator = Coordinator(*write_hospital(tmp_path, table, task=task))
    for reply in (coordinator.query(), coordinator.query(moments=True), coordinator.train(np.zeros(5))):
        assert refusal(reply) == "smallest_cell"


@pytest.mark.parametrize("sick", [0, 3, 57, 60])
def test_a_site_with_three_sick_patients_or_none_takes_part(sick: int, tmp_path: Path):
    table = patients().assign(sick=(np.arange(60) < sick).astype(int))
    coordinator = Coordinator(*write_hospital(tmp_path, table))
    coordinator.claim(coordinator.own_moments())
    assert coordinator.gradient(np.zeros(5))[-1] == pytest.approx(0.5 - sick / 60)


# --- data that change


def _changed(table: pd.DataFrame, change: str) -> pd.DataFrame:
    if change == "one more":
        return pd.concat([table, patients(61, seed=2).iloc[60:]])
    if change == "nine less":
        return table.iloc[9:]
    return table.assign(sick=np.where(np.arange(60) == 5, 1 - table[TARGET], table[TARGET]))  # one corrected


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change", ["one more", "nine less", "one corrected"])
def test_data_that_changed_in_a_few_rows_are_not_answered_about(change: str, restart: bool, tmp_path: Path):
    """Moments or gradients before and after would give the patient who was added, taken away or corrected, exactly."""
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(with_policy(app), node)
    coordinator.claim(coordinator.own_moments())
    coordinator.gradient(np.zeros(5))
    if restart:
        coordinator.end()
        coordinator = Coordinator(with_policy(app), node)
    _changed(patients(), change).to_csv(node["data"], index=False)
    coordinator.run = 2
    for reply in (coordinator.query(), coordinator.query(moments=True), coordinator.query(curvature=True)):
        assert refusal(reply) == "data"
    assert refusal(coordinator.train(np.zeros(5))) == "data"
    assert refusal(coordinator.evaluate(np.zeros(5))) == "data"
    patients().to_csv(node["data"], index=False)
    coordinator.run = 3
    answered(coordinator.query(moments=True))


def test_ten_more_patients_may_take_part(tmp_path: Path):
    app, node = write_hospital(tmp_path, patients())
    coordinator = Coordinator(app, node)
    answered(coordinator.query(moments=True))
    pd.concat([patients(), patients(70, seed=2).iloc[60:]]).to_csv(node["data"], index=False)
    coordinator.run = 2
    assert coordinator.own_moments().present[0] == 70
    patients().iloc[:51].to_csv(node["data"], index=False)  # nine less than at first
    coordinator.run = 3
    assert refusal(coordinator.query(moments=True)) == "data"


# --- combinations of columns that single out a patient


def _with_outlier(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(zz=np.where(np.arange(60) == 33, 9999, table["age"] + table["weight"]))


def _with_categories(table: pd.DataFrame) -> pd.DataFrame:
    """A group of four categories: the last, which one patient has, is left out, and is one less the sum of the others."""
    kind = np.where(np.arange(60) == 33, 3, np.arange(60) % 3)
    return table.assign(**{f"zz{k}": (kind == k).astype(int) for k in range(4)})


def _with_twins(table: pd.DataFrame) -> pd.DataFrame:
    """Two columns that differ in one patient."""
    first = np.arange(60) % 5 == 0
    return table.assign(zz0=first.astype(int), zz1=(first | (np.arange(60) == 33)).astype(int))


@pytest.mark.parametrize("change", [_with_outlier, _with_categories, _with_twins])
def test_no_combination_of_columns_singles_out_a_patient(change: Any, tmp_path: Path):
    """Differences of nearby gradients are second moments: with a column that marks one patient they are the patient's row."""
    table = change(patients())
    columns = table[sorted(set(table.columns) - {TARGET})].to_numpy(float)
    width = columns.shape[1] + 1
    coordinator = Coordinator(*write_hospital(tmp_path, table), fl.methods.AcceleratedProximalGradient(1e-9))
    own = coordinator.own_moments()
    coordinator.claim(own)
    given = own.present > 0
    assert 0 < (~given).sum() <= 2
    kept = np.c_[columns[:, given], np.ones(60)]
    assert np.linalg.norm(np.linalg.svd(kept, full_matrices=False)[0], axis=1).max() ** 2 < 0.95
    gradient = coordinator.gradient(np.linspace(-0.2, 0.2, width))
    assert (gradient[:-1][~given] == 0).all()
    assert (gradient[:-1][given] != 0).all()


@pytest.mark.parametrize("restart", [False, True])
def test_two_means_do_not_mark_the_one_patient_with_a_missing_value(restart: bool, tmp_path: Path):
    """Both are near: gradients with two means differ by a sum over all patients but one, which gives that one's label."""
    table = patients().astype({"age": float})
    table.loc[7, "age"] = np.nan
    app, node = write_hospital(tmp_path, table)
    method = fl.methods.AcceleratedProximalGradient(1e-9)
    coordinator = Coordinator(with_policy(app), node, method)
    own = coordinator.own_moments()

    def asked(run: int, shift: float) -> np.ndarray:
        away = np.array([shift, 0, 0, 0]) * np.sqrt(own.squares / own.present)
        coordinator.run = run
        coordinator.claim(Moments.merged([own, Moments(10 * own.present, own.mean + away, 10 * own.squares)]))
        return coordinator.gradient(np.zeros(5))

    first = asked(11, 0.0)
    assert first[0] != 0
    if restart:
        coordinator.end()
        coordinator = Coordinator(with_policy(app), node, method)
    assert asked(12, 3.0)[0] == 0  # the column is left out
    coordinator.run, coordinator.moments = 13, {}
    assert coordinator.gradient(np.zeros(5))[0] == 0  # with the site's own mean, too
    np.testing.assert_array_equal(asked(14, 0.0), first)


def test_a_left_out_column_does_not_keep_a_site_out_of_a_large_run(tmp_path: Path):
    """One site that claims two million rows would send home all sites with such a column."""
    table = patients().assign(zz_pacemaker=(np.arange(60) == 3).astype(int))
    coordinator = Coordinator(*write_hospital(tmp_path, table))
    own = coordinator.own_moments()
    assert own.present[-1] == 0
    others = Moments(np.full(5, 2e6), own.mean, np.full(5, 2e6))
    coordinator.claim(Moments.merged([own, others]))
    assert coordinator.gradient(np.zeros(6))[4] == 0
