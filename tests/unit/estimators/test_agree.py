"""A federated fit is the pooled fit: coefficients, objectives and certificates against scikit-learn and plain NumPy."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import fedlocal as fl
from unit.estimators.pooled_truths import CLASSES, Data, Model, even, make, strongest

E = fl.estimators
DATA = ("dense", "sparse", "collinear", "unscaled", "wide")
LINEAR = ("linear", "lasso", "elastic_net")
PENALTIES = ("l1", "l2", "elasticnet", None)
LOGISTIC = tuple(f"{kind}-{penalty}" for kind in ("logistic", "softmax") for penalty in PENALTIES)
L1_RATIO = 0.6
C = 0.3
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 100_000}


def alpha_of(name: str, D: Data) -> float:
    return strongest(D.dense, D.y) * (1e-4 if name == "unscaled" else 0.1)


def l1_share(penalty: str) -> float:
    return {"l1": 1.0, "l2": 0.0, "elasticnet": L1_RATIO}[penalty]


def federated(fit: str, alpha: float, **options: Any) -> Any:
    if fit == "linear":
        return E.FederatedLinearRegression(**options)
    if fit == "lasso":
        return E.FederatedLasso(alpha, **options)
    if fit == "elastic_net":
        return E.FederatedElasticNet(alpha, l1_ratio=L1_RATIO, **options)
    penalty: Any = fit.split("-")[1]
    return E.FederatedLogisticRegression(None if penalty == "None" else penalty, C=C, l1_ratio=L1_RATIO, **options)


def target(fit: str, D: Data) -> np.ndarray:
    return D.y if fit in LINEAR else D.signs if fit.startswith("logistic") else D.kinds


def model_of(fit: str, D: Data, alpha: float, sample_weight: np.ndarray | None = None) -> Model:
    """The objective in NumPy. Sample weights scale C but not alpha, as in scikit-learn."""
    total = len(D.y) if sample_weight is None else sample_weight.sum()
    w = even(len(D.y)) if sample_weight is None else sample_weight / total
    if fit in LINEAR:
        l1, l2 = {"linear": (0, 0), "lasso": (alpha, 0), "elastic_net": (alpha * L1_RATIO, alpha * (1 - L1_RATIO))}[fit]
        return Model("squares", D.dense, D.y, w, l1, l2)
    kind, penalty = fit.split("-")
    y = D.signs == "yes" if kind == "logistic" else np.searchsorted(CLASSES, D.kinds)
    if penalty == "None":
        return Model(kind, D.dense, y, w)
    strength = 1 / (C * total)
    return Model(kind, D.dense, y, w, strength * l1_share(penalty), strength * (1 - l1_share(penalty)))


def pooled(fit: str, D: Data, alpha: float, sample_weight: np.ndarray | None = None, **options: Any) -> Any:
    """(weights, intercept) of scikit-learn, fitted until rounding."""
    if fit in LINEAR:
        return pooled_linear(fit, D, alpha, sample_weight, **options)
    return pooled_logistic(fit.split("-")[1], D, target(fit, D), sample_weight, **options)


def pooled_linear(fit: str, D: Data, alpha: float, sample_weight: np.ndarray | None, **options: Any) -> Any:
    tight = {"tol": 1e-14, "max_iter": 1_000_000}
    if fit == "linear":  # scikit-learn's drops small columns; it may be fitted in any units
        Z = D.dense / D.sizes
        chosen = LinearRegression(**options).fit(Z, D.y, sample_weight)
        return chosen.coef_ / D.sizes, chosen.intercept_
    kind = (
        Lasso(alpha, **tight, **options) if fit == "lasso" else ElasticNet(alpha, l1_ratio=L1_RATIO, **tight, **options)
    )
    chosen = kind.fit(D.dense, D.y, sample_weight)
    return chosen.coef_, chosen.intercept_


def pooled_logistic(penalty: str, D: Data, y: np.ndarray, sample_weight: np.ndarray | None, **options: Any) -> Any:
    X, middle, units = D.dense, 0.0, 1.0
    if penalty == "None":  # may be fitted in units that suit lbfgs
        middle, units = X.mean(0), X.std(0)
        X, options = (X - middle) / units, {"C": np.inf, "solver": "lbfgs", "tol": 1e-8, "max_iter": 100_000} | options
    elif penalty == "l2":
        options = {"C": C, "solver": "newton-cholesky", **TIGHT, **options}
    else:
        options = {"C": C, "solver": "saga", "l1_ratio": l1_share(penalty), "random_state": 0, **TIGHT, **options}
    chosen = LogisticRegression(**options).fit(X, y, sample_weight)
    x = chosen.coef_ / units
    b = chosen.intercept_ - (x * middle).sum(1)
    return (x[0], b[0]) if len(b) == 1 else (x, b)


def found(chosen: Any) -> Any:
    """(weights, intercept) in the shapes of `Model`."""
    x, b = np.asarray(chosen.coef_), np.asarray(chosen.intercept_)
    if x.ndim == 2 and len(x) == 1:
        return x[0], float(b[0])
    return (x, float(b)) if x.ndim == 1 else (x, b)


def check_agrees(model: Model, D: Data, got: Any, wanted: Any, unique: bool) -> None:
    (x, b), (x_true, b_true) = got, wanted
    least = max(model.objective(x_true, b_true), 1e-3 * model.null_objective())  # below that a gap has few digits
    assert abs(model.objective(x, b) - model.objective(x_true, b_true)) <= 1e-8 * least
    middle = model.w @ D.dense  # intercepts are compared where the data are
    x, b, x_true, b_true = (np.asarray(a) for a in (x, b + x @ middle, x_true, b_true + x_true @ middle))
    if model.kind == "softmax":  # adding the same to every class changes nothing
        b, b_true = b - b.mean(), b_true - b_true.mean()
        if model.l1 == model.l2 == 0:
            x, x_true = x - x.mean(0), x_true - x_true.mean(0)
    centred = D.dense - middle
    spread = max(1.0, float(np.abs(x_true * D.sizes).max()))
    np.testing.assert_allclose(b, b_true, rtol=0, atol=1e-4 * spread)
    np.testing.assert_allclose(centred @ x.T, centred @ x_true.T, rtol=0, atol=1e-3 * spread)
    if unique:
        np.testing.assert_allclose(x * D.sizes, x_true * D.sizes, rtol=0, atol=1e-4 * spread)


def check_certificate(model: Model, chosen: Any, optimum: float, intercept: bool = True) -> None:
    """What the certificate says, computed again; and what `tol` promises."""
    x, b = found(chosen)
    said, tol = chosen.certificate_, chosen.tol
    assert said.objective == pytest.approx(model.objective(x, b), rel=1e-9, abs=1e-12 * model.null_objective())
    sizes = np.abs(model.X).max()
    by_hand = model.kkt_residual(x, b, intercept)
    assert said.kkt_residual == pytest.approx(by_hand, rel=1e-3, abs=1e-12 * (1 + sizes**2))
    assert said.violation == 0
    if said.duality_gap is not None:
        assert said.duality_gap >= model.objective(x, b) - optimum - 1e-12 * model.null_objective()
        assert said.duality_gap <= tol * model.null_objective() * (1 + 1e-9)
    else:
        # tol times the size of a gradient: its terms w_i |slope_i| |a_ij|, slopes of classes being at most one
        columns = np.abs(model.X - model.w @ model.X) if intercept else np.abs(model.X)
        slopes = np.abs(model.y - model.w @ model.y).max() if model.kind == "squares" else 1.0
        assert said.kkt_residual <= tol * np.linalg.norm(model.w @ columns) * slopes * np.sqrt(np.size(b))


def null_intercept(model: Model) -> Any:
    if model.kind == "squares":
        return model.w @ model.y
    shares = np.bincount(model.y.astype(int), model.w)
    return np.log(shares[1] / shares[0]) if model.kind == "logistic" else np.log(shares)


def unique_solution(fit: str, D: Data) -> bool:
    """Lassos have one solution on these data unless columns are copies of each other; l2 always makes it one."""
    if fit in ("elastic_net", "logistic-l2", "softmax-l2", "logistic-elasticnet", "softmax-elasticnet"):
        return True
    wide = D.dense.shape[0] < D.dense.shape[1]
    return D.unique or (wide and fit in ("lasso", "logistic-l1", "softmax-l1"))


def has_no_solution(fit: str, name: str) -> bool:
    return name == "wide" and fit.endswith("None")  # some scores separate the classes


def saga_is_too_slow(fit: str, name: str) -> bool:
    return name == "unscaled" and fit.split("-")[-1] in ("l1", "elasticnet")


AGREE = [
    pytest.param(
        fit,
        name,
        several,
        id=f"{fit}-{name}-{'sites' if several else 'one'}",
        marks=() if several or name == "dense" else pytest.mark.thorough,
    )
    for fit in (*LINEAR, *LOGISTIC)
    for name in DATA
    for several in (False, True)
    if not has_no_solution(fit, name) and not saga_is_too_slow(fit, name)
]


@pytest.mark.parametrize(("fit", "name", "several"), AGREE)
def test_a_federated_fit_is_the_pooled_fit(fit: str, name: str, several: bool):
    D = make(name)
    alpha = alpha_of(name, D)
    model, wanted = model_of(fit, D, alpha), pooled(fit, D, alpha)
    chosen = federated(fit, alpha).fit(D.X, target(fit, D), sites=D.sites if several else None)
    check_agrees(model, D, found(chosen), wanted, unique_solution(fit, D))
    check_certificate(model, chosen, model.objective(*wanted))


@pytest.mark.parametrize("fit", ["logistic-l1", "logistic-elasticnet", "softmax-l1", "softmax-elasticnet"])
def test_sparse_logistic_fits_of_unscaled_data_are_stationary(fit: str):
    """Where saga does not arrive: minus the gradient is a subgradient of the penalty, column by column in its own units."""
    D = make("unscaled")
    model = model_of(fit, D, 1.0)
    chosen = federated(fit, 1.0, tol=1e-12).fit(D.X, target(fit, D), sites=D.sites)
    x, b = found(chosen)
    assert 0 < np.count_nonzero(x) < x.size
    assert model.stationarity(x, b, D.sizes) <= 1e-6
    check_certificate(model, chosen, model.objective(x, b))


@pytest.mark.parametrize("name", DATA)
def test_l1_logistic_without_an_intercept_is_that_of_liblinear(name: str):
    D = make(name)
    truth = LogisticRegression(C=C, l1_ratio=1, solver="liblinear", fit_intercept=False, random_state=0, **TIGHT)
    x_true = truth.fit(D.dense, D.signs).coef_[0]
    model = model_of("logistic-l1", D, 1.0)
    chosen = federated("logistic-l1", 1.0, fit_intercept=False).fit(D.X, D.signs, sites=D.sites)
    x, b = found(chosen)
    assert b == 0
    assert abs(model.objective(x, 0.0) - model.objective(x_true, 0.0)) <= 1e-8 * np.log(2)
    if D.unique or name == "wide":
        np.testing.assert_allclose(x * D.sizes, x_true * D.sizes, rtol=0, atol=1e-4)
    assert chosen.certificate_.kkt_residual == pytest.approx(
        model.kkt_residual(x, 0.0, intercept=False), rel=1e-3, abs=1e-12 * (1 + np.abs(D.dense).max() ** 2)
    )


@pytest.mark.parametrize("fit", [*LINEAR, "logistic-l2", "softmax-l2"])
def test_without_an_intercept(fit: str):
    D = make("dense")
    alpha = alpha_of("dense", D)
    chosen = federated(fit, alpha, fit_intercept=False).fit(D.X, target(fit, D), sites=D.sites)
    wanted, _ = pooled(fit, D, alpha, fit_intercept=False)
    x, b = found(chosen)
    np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-4)
    assert np.all(np.asarray(b) == 0)
    model = model_of(fit, D, alpha)
    assert abs(model.objective(x, b) - model.objective(wanted, b)) <= 1e-8 * model.loss(np.zeros_like(x), b)
    assert chosen.certificate_.kkt_residual == pytest.approx(
        model.kkt_residual(x, b, intercept=False), rel=1e-3, abs=1e-11
    )


@pytest.mark.parametrize("fit", [*LINEAR, *LOGISTIC])
@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_sample_weights_are_those_of_scikit_learn(fit: str, name: str):
    D = make(name)
    alpha = alpha_of(name, D)
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(D.y))
    model, wanted = model_of(fit, D, alpha, weight), pooled(fit, D, alpha, weight)
    chosen = federated(fit, alpha).fit(D.X, target(fit, D), sites=D.sites, sample_weight=weight)
    check_agrees(model, D, found(chosen), wanted, unique_solution(fit, D))
    check_certificate(model, chosen, model.objective(*wanted))


@pytest.mark.parametrize("fit", ["lasso", "logistic-l2"])
def test_an_example_of_no_weight_is_not_there(fit: str):
    D = make("dense")
    weight = (np.arange(len(D.y)) % 4 > 0).astype(float)
    kept = weight > 0
    some = federated(fit, 0.1, tol=1e-12).fit(D.X, target(fit, D), sites=D.sites, sample_weight=weight)
    fewer = federated(fit, 0.1, tol=1e-12).fit(D.X[kept], target(fit, D)[kept], sites=D.sites[kept])
    np.testing.assert_allclose(some.coef_, fewer.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(some.intercept_, fewer.intercept_, rtol=0, atol=1e-6)


def site_weights(D: Data) -> np.ndarray:
    """Every site counts alike; they sum to n, so that C keeps its meaning."""
    _, site, counts = np.unique(D.sites, return_inverse=True, return_counts=True)
    return len(D.y) / (len(counts) * counts[site])


@pytest.mark.parametrize("fit", [*LINEAR, "logistic-l1", "logistic-l2", "softmax-elasticnet"])
def test_sites_that_count_alike(fit: str):
    D = make("dense")
    alpha, weight = alpha_of("dense", D), site_weights(D)
    model, wanted = model_of(fit, D, alpha, weight), pooled(fit, D, alpha, weight)
    chosen = federated(fit, alpha, weights="uniform", tol=1e-10).fit(D.X, target(fit, D), sites=D.sites)
    check_agrees(model, D, found(chosen), wanted, unique=True)
    check_certificate(model, chosen, model.objective(*wanted))
    assert np.abs(found(federated(fit, alpha).fit(D.X, target(fit, D), sites=D.sites))[0] - wanted[0]).max() > 1e-3


@pytest.mark.parametrize("fit", LINEAR)
@pytest.mark.parametrize("name", ["dense", "sparse", "unscaled"])
def test_positive_coefficients(fit: str, name: str):
    D = make(name)
    alpha = alpha_of(name, D) / 4
    x_true, b_true = pooled(fit, D, alpha, positive=True)
    assert np.any(x_true == 0)
    assert np.any(x_true > 0)
    model = model_of(fit, D, alpha)
    chosen = federated(fit, alpha, positive=True).fit(D.X, D.y, sites=D.sites)
    assert np.all(chosen.coef_ >= 0)
    check_agrees(model, D, found(chosen), (x_true, b_true), unique=True)
    g, g_b = model.gradient(*found(chosen))
    slope = g + model.l1 + model.l2 * chosen.coef_  # of the objective on the positive side
    distance = np.where(chosen.coef_ > 0, np.abs(slope), np.maximum(-slope, 0)) / D.sizes
    assert max(distance.max(), abs(g_b)) <= 1e-5


@pytest.mark.parametrize("fit", [*LINEAR, "logistic-l1", "logistic-l2", "softmax-l1"])
@pytest.mark.parametrize("name", ["dense", "sparse", "unscaled"])
def test_standardized_columns(fit: str, name: str):
    D = make(name)
    scaler = StandardScaler(with_mean=name != "sparse").fit(D.dense)
    Z = D._replace(dense=scaler.transform(D.dense), sizes=np.ones(D.dense.shape[1]))
    alpha = 0.1 * strongest(Z.dense, D.y)
    wanted = pooled(fit, Z, alpha)
    chosen = federated(fit, alpha, standardize=True).fit(D.X, target(fit, D), sites=D.sites)
    x, b = found(chosen)
    moved = b + x @ scaler.mean_ if name != "sparse" else b
    check_agrees(model_of(fit, Z, alpha), Z, (x * scaler.scale_, moved), wanted, unique=True)


@pytest.mark.parametrize("several", [False, True], ids=["one", "sites"])
@pytest.mark.parametrize("name", ["dense", "sparse", "unscaled"])
@pytest.mark.parametrize("fit", ["lasso", "logistic-l2", "softmax-l2"])
def test_standardized_columns_with_sample_weights(fit: str, name: str, several: bool):
    """As a pipeline of scikit-learn that hands the weights to the scaler and to the model."""
    D = make(name)
    weight = np.random.default_rng(5).uniform(0.1, 4.0, len(D.y))
    scaler = StandardScaler(with_mean=name != "sparse").fit(D.dense, sample_weight=weight)
    Z = D._replace(dense=scaler.transform(D.dense), sizes=np.ones(D.dense.shape[1]))
    wanted, model = pooled(fit, Z, 0.1, weight), model_of(fit, Z, 0.1, weight)
    chosen = federated(fit, 0.1, standardize=True)
    chosen.fit(D.X, target(fit, D), sites=D.sites if several else None, sample_weight=weight)
    x, b = found(chosen)
    moved = b + x @ scaler.mean_ if name != "sparse" else b
    check_agrees(model, Z, (x * scaler.scale_, moved), wanted, unique=True)
    assert chosen.certificate_.objective == pytest.approx(model.objective(*wanted), rel=1e-8)


def test_a_constant_column_does_not_disturb():
    D = make("dense")
    X = np.column_stack([np.full(len(D.y), 7.0), D.dense])
    for fit in ("lasso", "logistic-l1"):
        for options in ({}, {"standardize": True}):
            with_it = federated(fit, 0.1, **options).fit(X, target(fit, D), sites=D.sites)
            without = federated(fit, 0.1, **options).fit(D.dense, target(fit, D), sites=D.sites)
            x, x_without = found(with_it)[0], found(without)[0]
            assert x[0] == 0
            np.testing.assert_allclose(x[1:], x_without, rtol=0, atol=1e-4)


def test_sites_that_see_one_class_each():
    D = make("dense")
    for fit, y in (("logistic-l1", D.signs), ("softmax-l2", D.kinds)):
        chosen = federated(fit, 1.0).fit(D.X, y, sites=y)
        assert sorted(chosen.sites_) == sorted(set(y))
        check_agrees(model_of(fit, D, 1.0), D, found(chosen), pooled(fit, D, 1.0), unique=True)


def test_a_site_for_every_example():
    D = make("wide")
    alpha = alpha_of("wide", D)
    chosen = federated("lasso", alpha).fit(D.X, D.y, sites=np.arange(len(D.y)))
    check_agrees(model_of("lasso", D, alpha), D, found(chosen), pooled("lasso", D, alpha), unique=True)


@pytest.mark.parametrize("several", [False, True], ids=["one", "sites"])
@pytest.mark.parametrize("fit", ["logistic-l2", "softmax-l2"])
def test_balanced_classes_with_sample_weights(fit: str, several: bool):
    """Classes are counted by their weights: a weight of two is an example that is there twice."""
    D = make("dense")
    y, weight = target(fit, D), np.random.default_rng(4).integers(1, 6, 80)
    weight[y == y[0]] *= 3
    theirs: Any = LogisticRegression(C=0.3, class_weight="balanced", solver="newton-cholesky", tol=1e-12)
    theirs.fit(D.dense, y, sample_weight=weight)
    ours = E.FederatedLogisticRegression("l2", C=0.3, class_weight="balanced", tol=1e-13)
    coef = ours.fit(D.X, y, sites=D.sites if several else None, sample_weight=weight).coef_
    np.testing.assert_allclose(coef, theirs.coef_, rtol=0, atol=1e-6)
    every = (np.repeat(column, weight, axis=0) for column in (D.X, y, D.sites))
    X, y, sites = every
    np.testing.assert_allclose(ours.fit(X, y, sites=sites).coef_, coef, rtol=0, atol=1e-8)


def test_classes_without_weight_are_not_balanced():
    D = make("dense")
    weight = (D.kinds != "c").astype(float)
    ours = E.FederatedLogisticRegression("l2", class_weight="balanced").fit(D.X, D.kinds, sample_weight=weight)
    assert np.isfinite(ours.coef_).all()
    assert ours.predict_proba(D.X)[:, 2].max() < 1e-3


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 3.0, "yes": 0.5}], ids=["balanced", "dict"])
@pytest.mark.parametrize("fit", ["logistic-l1", "logistic-l2"])
def test_class_weights_are_those_of_scikit_learn(fit: str, class_weight: Any):
    D = make("dense")
    D = D._replace(signs=np.where(np.arange(len(D.y)) % 3 == 0, "yes", D.signs))  # less balanced
    x_true, b_true = pooled(fit, D, 1.0, class_weight=class_weight)
    chosen = federated(fit, 1.0, class_weight=class_weight).fit(D.X, D.signs, sites=D.sites)
    x, b = found(chosen)
    np.testing.assert_allclose(x, x_true, rtol=0, atol=1e-4)
    assert b == pytest.approx(b_true, abs=1e-4)


@pytest.mark.parametrize(("seed", "mean"), [(3, 1.0), (3, 2.0), (3, 4.0), (6, 4.0)])
def test_sparse_columns_with_means_and_three_classes(seed: int, mean: float):
    """Sparse columns are not centred, so that weights and intercepts are coupled."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((60, 30)) + mean, rng.integers(0, 3, 60)
    truth = LogisticRegression(solver="newton-cholesky", **TIGHT).fit(X, y)
    chosen = E.FederatedLogisticRegression("l2").fit(sp.csr_array(X), y)
    np.testing.assert_allclose(chosen.coef_, truth.coef_, rtol=0, atol=1e-4)
    proba = truth.predict_proba(X)
    np.testing.assert_allclose(chosen.predict_proba(sp.csr_array(X)), proba, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_every_sparse_format_is_the_dense_fit(kind: Any):
    D = make("sparse")
    sparse, dense = (E.FederatedLasso(0.05).fit(X, D.y, sites=D.sites) for X in (kind(D.dense), D.dense))
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(sparse.predict(kind(D.dense)), dense.predict(D.dense), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_other_units_of_the_target(size: float):
    """c y and c alpha give c times the coefficients; with columns of size c too they give the same ones."""
    D = make("dense")
    plain = E.FederatedLasso(0.2).fit(D.X, D.y, sites=D.sites)
    grown = E.FederatedLasso(0.2 * size).fit(D.X, D.y * size, sites=D.sites)
    np.testing.assert_allclose(grown.coef_ / size, plain.coef_, rtol=0, atol=1e-4)
    both = E.FederatedLasso(0.2 * size**2).fit(D.X * size, D.y * size, sites=D.sites)
    np.testing.assert_allclose(both.coef_, plain.coef_, rtol=0, atol=1e-4)


def test_means_far_from_zero():
    """Columns and target moved by many standard deviations: the same coefficients, and a gap that is one."""
    D = make("dense")
    plain = E.FederatedLasso(0.2).fit(D.X, D.y, sites=D.sites)
    for columns, targets in ((1e6, 0.0), (0.0, 1e4), (0.0, 1e6)):
        moved: Any = E.FederatedLasso(0.2).fit(D.X + columns, D.y + targets, sites=D.sites)
        np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=0, atol=1e-4)
        assert abs(moved.certificate_.duality_gap) <= 1e-8
    truth = federated("logistic-l1", 1.0).fit(D.X, D.signs, sites=D.sites)
    far = federated("logistic-l1", 1.0).fit(D.X + 1e4, D.signs, sites=D.sites)
    np.testing.assert_allclose(far.coef_, truth.coef_, rtol=0, atol=1e-4)


def test_no_strength_is_least_squares():
    D = make("dense")
    x_true, b_true = pooled("linear", D, 0.0)
    for chosen in (E.FederatedLasso(0.0), E.FederatedElasticNet(0.0)):
        chosen.fit(D.X, D.y, sites=D.sites)
        np.testing.assert_allclose(chosen.coef_, x_true, rtol=0, atol=1e-4)
        assert chosen.intercept_ == pytest.approx(b_true, abs=1e-4)


def test_the_ends_of_the_elastic_net():
    """l1_ratio = 1 is the lasso; l1_ratio = 0 is ridge regression, which has a closed form."""
    D = make("unscaled")
    alpha = 0.3
    X, y = D.dense - D.dense.mean(0), D.y - D.y.mean()
    ridge = np.linalg.solve(X.T @ X / 80 + alpha * np.eye(8), X.T @ y / 80)
    chosen = E.FederatedElasticNet(alpha, l1_ratio=0.0).fit(D.X, D.y, sites=D.sites)
    np.testing.assert_allclose(chosen.coef_ * D.sizes, ridge * D.sizes, rtol=0, atol=1e-4)
    sparse, lasso = E.FederatedElasticNet(alpha, l1_ratio=1.0), E.FederatedLasso(alpha)
    for kind in (sparse, lasso):
        kind.fit(D.X, D.y, sites=D.sites)
    np.testing.assert_allclose(sparse.coef_ * D.sizes, lasso.coef_ * D.sizes, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "X", [np.zeros((80, 3)), np.ones((80, 3)), sp.csr_array((80, 3))], ids=["zero", "one", "empty"]
)
def test_columns_that_say_nothing(X: Any):
    D = make("dense")
    for fit in ("lasso", "logistic-l1", "softmax-l2"):
        chosen = federated(fit, 0.1).fit(X, target(fit, D), sites=D.sites)
        np.testing.assert_allclose(chosen.coef_, 0, atol=1e-6)
    assert E.FederatedLasso().fit(X, D.y).intercept_ == pytest.approx(D.y.mean(), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_separable_classes_without_a_penalty_stay_finite():
    """There is no solution; what comes back is finite and separates."""
    D = make("wide")
    for y in (D.signs, D.kinds):
        chosen = E.FederatedLogisticRegression(None).fit(D.X, y, sites=D.sites)
        assert np.isfinite(chosen.coef_).all()
        assert chosen.score(D.X, y) == 1


def test_a_tighter_tol_is_kept():
    D = make("dense")
    for fit in ("lasso", "logistic-l1", "softmax-l2"):
        model = model_of(fit, D, 0.2)
        x, b = found(federated(fit, 0.2, tol=1e-13).fit(D.X, target(fit, D), sites=D.sites))
        x_true, _ = pooled(fit, D, 0.2)
        np.testing.assert_allclose(x, x_true, rtol=0, atol=1e-6)
        assert model.stationarity(x, b, D.sizes) <= 1e-6


UNFINISHED = [
    pytest.param(fit, name, id=f"{fit}-{name}", marks=() if f"{fit}-{name}" in plain else pytest.mark.thorough)
    for plain in [("lasso-unscaled", "elastic_net-dense", "logistic-l1-dense", "softmax-l1-dense")]
    for fit in ("lasso", "elastic_net", "logistic-l1", "logistic-l2", "softmax-l1")
    for name in ("dense", "unscaled")
    if not saga_is_too_slow(fit, name)
]


@pytest.mark.parametrize(("fit", "name"), UNFINISHED)
def test_the_certificate_of_an_unfinished_fit(fit: str, name: str):
    """Far from the optimum its numbers are not rounding: the gap bounds what is missing, the residual is the one by hand."""
    D = make(name)
    alpha = alpha_of(name, D)
    model = model_of(fit, D, alpha)
    optimum = model.objective(*pooled(fit, D, alpha))
    options = {"method": "fed_dual_avg", "local_rounds": 3, "local_steps": 2, "finish": False}
    with pytest.warns(ConvergenceWarning):
        chosen = federated(fit, alpha, **options).fit(D.X, target(fit, D), sites=D.sites)
    x, b = found(chosen)
    missing = model.objective(x, b) - optimum
    assert missing > 1e-6 * optimum
    said = chosen.certificate_
    assert said.objective == pytest.approx(model.objective(x, b), rel=1e-9)
    assert said.kkt_residual == pytest.approx(model.kkt_residual(x, b), rel=1e-6)
    assert said.duality_gap is None or said.duality_gap >= missing * (1 - 1e-9)
    assert fit.startswith("softmax") or said.duality_gap is not None
