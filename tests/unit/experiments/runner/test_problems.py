"""Problem, regulariser and starting point of an experiment by its name."""

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from fedlocal import experiments
from fedlocal.experiments.studies.recovery import problem as recovery


def test_a_recovery_problem_has_the_data_of_the_seed():
    problem = experiments.problem_of("lasso-1", seed=3)
    wanted = fl.data.synthetic_lasso("I", seed=3)
    assert isinstance(problem, fl.problems.LeastSquares)
    assert problem.num_clients == wanted.num_clients == 64
    for own, other in zip(problem.data.arrays, wanted.arrays, strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_speedup_problem_has_the_clients_that_are_asked_for_and_the_texts_start():
    problem = experiments.problem_of("a9a-1e-2", clients=4)
    assert isinstance(problem, fl.problems.Logistic)
    assert (problem.num_clients, problem.l2) == (4, 1e-2)
    start = experiments.start_of("a9a-1e-2")
    assert start is not None
    np.testing.assert_array_equal(start["weights"], np.random.RandomState(1).standard_normal(123))
    assert experiments.start_of("lasso-1") is None


def test_regularizers_have_the_strength_of_the_experiment(monkeypatch: pytest.MonkeyPatch):
    assert isinstance(experiments.regularizer_of("a9a-1e-2"), fl.regularizers.Zero)
    assert isinstance(experiments.regularizer_of("femnist-l2"), fl.regularizers.L2Ball)
    monkeypatch.setattr(recovery, "choose_strength", lambda *_: pd.DataFrame({"chosen": [0.25]}))
    psi = experiments.regularizer_of("nuclear-1")
    assert isinstance(psi, fl.regularizers.Nuclear)
    assert psi.strength == 0.25


@pytest.mark.parametrize(
    ("name", "clients", "message"),
    [
        ("a9a-1e-2", None, "a9a-1e-2 has runs with many numbers of clients; say which with clients="),
        ("lasso-1", 3, "lasso-1 has 64 clients, got 3"),
        ("curse", None, "curse has no single problem; these experiments have one: a9a-1e-2, .*lasso-1"),
        ("lasso-9", None, "there is no experiment 'lasso-9'"),
    ],
)
def test_what_there_is_no_problem_of_is_refused(name: str, clients: int | None, message: str):
    with pytest.raises(ValueError, match=message):
        experiments.problem_of(name, clients=clients)
