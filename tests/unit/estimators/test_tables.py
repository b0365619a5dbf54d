"""Tables of pandas: labels of sites go by the index, columns with the same name are refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from unit.estimators.pooled_truths import make

E = fl.estimators
D = make("dense")
NAMES = [f"column {k}" for k in range(8)]
INDEX = np.random.default_rng(0).permutation(1000)[:80]
TABLE = pd.DataFrame(D.dense, INDEX, NAMES)
SITES = pd.Series(D.sites, INDEX)
WEIGHTS = pd.Series(np.random.default_rng(1).uniform(0.2, 3.0, 80), INDEX)
KINDS: dict[str, tuple[Any, np.ndarray]] = {
    "regression": (E.FederatedLasso(0.1, weights="uniform"), D.y),
    "search": (E.FederatedElasticNetCV(alphas=3), D.y),
    "classes": (E.FederatedLogisticRegression("l1", weights="uniform"), D.signs),
    "search of classes": (E.FederatedLogisticRegressionCV("l1", Cs=3), D.signs),
    "matrices": (E.FederatedMatrixRegression(0.1, weights="uniform"), D.y),
}


@pytest.mark.parametrize("name", KINDS)
def test_series_belong_to_the_rows_with_their_index(name: str):
    model, y = KINDS[name]
    truth = model.fit(D.dense, y, sites=D.sites, sample_weight=WEIGHTS.to_numpy()).coef_
    order = np.random.default_rng(2).permutation(80)
    each: dict[str, Any] = {"sites": SITES.iloc[order], "sample_weight": WEIGHTS.iloc[order]}
    by_position = model.fit(D.dense, y, **each).coef_
    assert np.abs(by_position - truth).max() > 1e-3
    for X, target in ((TABLE, y), (TABLE, pd.Series(y)), (D.dense, pd.Series(y, INDEX))):
        np.testing.assert_allclose(model.fit(X, target, **each).coef_, truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["sites", "sample_weight"])
def test_other_labels_are_refused(name: str):
    model = E.FederatedLasso(0.1)
    given: dict[str, Any] = {"sites": SITES, "sample_weight": WEIGHTS}
    wanted = f"FederatedLasso: {name} must have the same index as X, in any order, got the label 0, which X has not; "
    with pytest.raises(ValueError, match=f"^{wanted}where its order is that of the rows, use {name}.to_numpy\\(\\)$"):
        model.fit(TABLE.set_axis(np.arange(1, 81)), D.y, **{name: given[name].set_axis(np.arange(80))})
    twice = np.repeat(np.arange(40), 2)
    with pytest.raises(ValueError, match="got another order of labels that occur twice"):
        model.fit(TABLE.set_axis(twice), D.y, **{name: given[name].set_axis(twice[::-1])})
    same = model.fit(TABLE.set_axis(twice), D.y, **{name: given[name].set_axis(twice)}).coef_
    by_position = model.fit(D.dense, D.y, **{name: given[name].to_numpy()}).coef_
    np.testing.assert_allclose(same, by_position, rtol=0, atol=1e-12)


def test_a_series_that_is_too_short_is_told_its_length():
    with pytest.raises(ValueError, match="got 79 labels for 80 examples"):
        E.FederatedLasso(0.1).fit(TABLE, D.y, sites=SITES.iloc[1:])


@pytest.mark.parametrize("name", KINDS)
def test_columns_with_the_same_name_are_refused(name: str):
    model, y = KINDS[name]
    twice = TABLE.set_axis(["age", *NAMES[1:7], "age"], axis=1)
    wanted = f"^{type(model).__name__}: X must have every column name once, got 'age' 2 times; rename the columns"
    with pytest.raises(ValueError, match=wanted):
        model.fit(twice, y)
    fitted = model.fit(TABLE, y)
    with pytest.raises(ValueError, match=wanted):
        fitted.predict(twice)
