"""What a search chooses by its scores, and what all its fits together send."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import ElasticNetCV, LassoCV
from sklearn.model_selection import LeaveOneGroupOut, ShuffleSplit

import fedlocal as fl
from fedlocal.estimators.cross_validation import chosen_place
from unit.estimators.pooled_truths import make

E = fl.estimators
D = make("dense", seed=1)
FOLDS = list(LeaveOneGroupOut().split(D.dense, D.y, D.sites))
ALPHAS = np.geomspace(1.0, 1e-3, 12)
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 1_000_000, "cv": FOLDS}
WEIGHTS = np.random.default_rng(1).uniform(0.2, 3.0, len(D.y))


def place_within_one_error(errors: np.ndarray) -> int:
    """Of errors (alphas, folds) from the largest alpha on, in a loop: glmnet's lambda.1se."""
    count = errors.shape[1]
    means = [sum(row) / count for row in errors]
    best = means.index(min(means))
    variance = sum((error - means[best]) ** 2 for error in errors[best]) / (count - 1)
    return next(i for i, mean in enumerate(means) if mean <= means[best] + (variance / count) ** 0.5)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["even", "weighted"])
def test_one_standard_error_is_that_of_scikit_learns_path(weights: Any):
    truth = LassoCV(**{"alphas": ALPHAS, **TIGHT}).fit(D.dense, D.y, sample_weight=weights)
    place = place_within_one_error(truth.mse_path_)
    ours, best = (
        E.FederatedLassoCV(alphas=ALPHAS, choose=choose, tol=1e-12).fit(D.X, D.y, sites=D.sites, sample_weight=weights)
        for choose in ("1se", "best")
    )
    assert ours.alpha_ == pytest.approx(truth.alphas_[place])
    assert ours.alpha_ > best.alpha_ == pytest.approx(truth.alpha_)
    plain = E.FederatedLasso(ours.alpha_, tol=1e-12).fit(D.X, D.y, sites=D.sites, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, plain.coef_, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(ours.mse_path_, best.mse_path_)


def test_one_standard_error_stays_with_the_share_of_the_best():
    shares = [0.1, 0.9]
    options: dict[str, Any] = {"l1_ratio": shares, "alphas": ALPHAS}
    truth: Any = ElasticNetCV(**options, **TIGHT).fit(D.dense, D.y)
    ours = E.FederatedElasticNetCV(choose="1se", tol=1e-12, **options).fit(D.X, D.y, sites=D.sites)
    place = place_within_one_error(truth.mse_path_[shares.index(truth.l1_ratio_)])
    assert (ours.alpha_, ours.l1_ratio_) == pytest.approx((truth.alphas_[place], truth.l1_ratio_))


@pytest.mark.parametrize("y", [D.signs, D.kinds], ids=["two", "three"])
def test_one_standard_error_of_classes(y: np.ndarray):
    ours, best = (
        E.FederatedLogisticRegressionCV("l1", Cs=6, eps=0.1, choose=choose, scoring="neg_log_loss", cv=3).fit(D.X, y)
        for choose in ("1se", "best")
    )
    np.testing.assert_equal(ours.C_, ours.Cs_[place_within_one_error(-ours.scores_)])
    assert ours.C_ < best.C_
    assert np.count_nonzero(ours.coef_) < np.count_nonzero(best.coef_)


def test_ties_go_to_the_stronger_penalty():
    scores = np.array([[[1.0, 3.0], [2.0, 2.0], [0.0, 0.0]]])
    assert chosen_place("model", scores, "best") == chosen_place("model", scores, "1se") == (0, 0)


def test_a_standard_error_needs_two_folds():
    one = ShuffleSplit(1, random_state=0)
    with pytest.raises(
        ValueError, match=r"^FederatedLassoCV: choose='1se' needs .* at least two folds, got 1; try another cv$"
    ):
        E.FederatedLassoCV(alphas=3, choose="1se", cv=one).fit(D.X, D.y)
    with pytest.raises(ValueError, match="FederatedLassoCV: choose must be one of 'best', '1se', got 'least'"):
        E.FederatedLassoCV(alphas=3, choose="least").fit(D.X, D.y)  # pyright: ignore[reportArgumentType]


def test_communication_counts_every_fit():
    """The first fit of a fold is that of the plain estimator; then the model goes down, and an error and its weight up."""
    search = E.FederatedElasticNetCV(l1_ratio=[0.3, 1.0], alphas=3, standardize=True).fit(D.X, D.y, sites=D.sites)
    table, numbers = search.communication_by_fit_, ["rounds", "numbers_down", "numbers_up"]
    assert len(table) == 2 * 3 * 4 + 1
    for fold, (train, _) in zip(table["fold"].unique()[:-1], FOLDS, strict=True):
        first = table[table["fold"] == fold].iloc[0]
        plain = E.FederatedElasticNet(first["alpha"], l1_ratio=first["l1_ratio"], standardize=True)
        plain.fit(D.X[train], D.y[train], sites=D.sites[train])
        sent = plain.communication_
        assert first[numbers].tolist() == [sent.rounds + 1, sent.numbers_down + 9, sent.numbers_up + 2]
    last = table.iloc[-1]
    assert (last["fold"], last["alpha"], last["l1_ratio"]) == ("all rows", search.alpha_, search.l1_ratio_)
    assert last["numbers_down"] + last["numbers_up"] == search.history_["sent"].iloc[-1]
    total, columns = search.communication_, table[numbers].to_numpy()
    assert [total.rounds, total.numbers_down, total.numbers_up] == columns.sum(axis=0).tolist()
    assert columns.min() > 0
    np.testing.assert_array_equal(table["bytes_up"], 8 * table["numbers_up"].to_numpy())


def test_communication_of_a_search_for_classes():
    search = E.FederatedLogisticRegressionCV("l1", Cs=3, cv=2).fit(D.X, D.kinds, sites=D.sites)
    table = search.communication_by_fit_
    assert table["C"].tolist() == [*search.Cs_, *search.Cs_, search.C_]
    up = table["numbers_up"].to_numpy()
    assert up.sum() == search.communication_.numbers_up > up[-1]
