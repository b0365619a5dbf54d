"""Small data sets, and what a fit on pooled data has to satisfy: objectives, gradients and KKT residuals in plain NumPy."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logsumexp, softmax

CLASSES = ["a", "b", "c"]  # as strings, sorted


class Data(NamedTuple):
    """One data set with a target of each kind."""

    X: Any  # (n, d) what the estimator gets: an array or CSR
    dense: np.ndarray  # (n, d)
    sizes: np.ndarray  # (d,) the sizes of the columns: x * sizes are comparable
    y: np.ndarray  # (n,) numbers
    signs: np.ndarray  # (n,) strings "no" and "yes"
    kinds: np.ndarray  # (n,) one of CLASSES
    sites: np.ndarray  # (n,) strings, unequal numbers of each
    unique: bool  # whether the columns are linearly independent, also of the constant


def make(name: str, seed: int = 0) -> Data:
    """ "dense", "sparse", "collinear", "unscaled" or "wide"."""
    rng = np.random.default_rng(seed)
    n, d = {"sparse": (90, 12), "wide": (24, 40)}.get(name, (80, 8))
    Z = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    if name == "sparse":
        Z = (Z + 1.5) * (rng.random((n, d)) < 0.4)  # with means, as counts and one-hot columns have
    if name == "collinear":
        Z[:, 3], Z[:, 5] = Z[:, 0], Z[:, 1] - 2 * Z[:, 2]
    sizes, means = np.ones(d), np.zeros(d)
    if name == "unscaled":
        sizes, means = rng.permutation(np.logspace(-3, 4, d)), rng.uniform(3, 6, d) * rng.choice([-1, 1], d)
    truth = np.where(np.arange(d) < 4, 1.0, 0.0) * rng.choice([-1, 1], d)
    scores = Z @ truth
    y = scores + 3.0 + 0.5 * rng.standard_normal(n)
    signs = np.where(scores + 0.4 + 2.0 * rng.logistic(size=n) > 0, "yes", "no")
    gumbel = rng.gumbel(size=(n, 3)) + np.stack([scores, -scores, Z[:, 1]], 1) / 2
    dense = (Z + means) * sizes
    return Data(
        X=sp.csr_array(dense) if name == "sparse" else dense,
        dense=dense,
        sizes=sizes,
        y=y,
        signs=signs,
        kinds=np.array(CLASSES)[gumbel.argmax(1)],
        sites=unequal_sites(n, rng),
        unique=name not in ("collinear", "wide"),
    )


def unequal_sites(n: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) labels of four sites in no order, about 1/2, 1/4, 1/6 and 1/12 of the examples."""
    names = np.repeat(["north", "east", "south", "west"], [n - n // 4 - n // 6 - n // 12, n // 4, n // 6, n // 12])
    return rng.permutation(names)


class Model(NamedTuple):
    """sum_i w_i loss_i + l1 ||x||_1 + l2 / 2 ||x||^2 on pooled data."""

    kind: str  # "squares", "logistic" or "softmax"
    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,) numbers; True where it is the second class; the index of the class
    w: np.ndarray  # (n,) sum to one
    l1: float = 0.0
    l2: float = 0.0

    def loss(self, x: np.ndarray, b: Any) -> float:
        """x is (d,), or (classes, d) for softmax; b is a number, or (classes,)."""
        s = self.X @ x.T + b
        if self.kind == "squares":
            losses = (s - self.y) ** 2 / 2
        elif self.kind == "logistic":
            losses = np.logaddexp(0, np.where(self.y, -s, s))
        else:
            losses = logsumexp(s, axis=1) - s[np.arange(len(s)), self.y]
        return float(self.w @ losses)

    def gradient(self, x: np.ndarray, b: Any) -> tuple[np.ndarray, Any]:
        """Of the loss, for the weights and for the intercept."""
        s = self.X @ x.T + b
        if self.kind == "squares":
            slopes = s - self.y
        elif self.kind == "logistic":
            slopes = expit(s) - self.y
        else:
            slopes = softmax(s, axis=1) - np.eye(s.shape[1])[self.y]
        slopes = (self.w * slopes.T).T
        return (self.X.T @ slopes).T, slopes.sum(0)

    def objective(self, x: np.ndarray, b: Any) -> float:
        return self.loss(x, b) + self.l1 * np.abs(x).sum() + self.l2 / 2 * (x**2).sum()

    def kkt_residual(self, x: np.ndarray, b: Any, intercept: bool = True) -> float:
        """||(x, b) - prox((x, b) - gradient)||, where the prox is of l1 and l2 together and leaves b alone."""
        g, g_b = self.gradient(x, b)
        moved = x - soft_threshold(x - g, self.l1) / (1 + self.l2)
        return float(np.sqrt((moved**2).sum() + (np.square(g_b).sum() if intercept else 0.0)))

    def stationarity(self, x: np.ndarray, b: Any, sizes: np.ndarray) -> float:
        """Largest distance of minus the gradient from the subgradients of the penalty, per size of the columns."""
        g, g_b = self.gradient(x, b)
        g = g + self.l2 * x
        distance = np.where(x != 0, np.abs(g + self.l1 * np.sign(x)), np.maximum(np.abs(g) - self.l1, 0))
        return max(float((distance / sizes).max()), float(np.abs(g_b).max()))

    def null_objective(self) -> float:
        """Of the model with no weights: the best constant."""
        classes = {"squares": 0, "logistic": 1, "softmax": 3}[self.kind]
        if classes == 0:
            return float(self.w @ (self.y - self.w @ self.y) ** 2 / 2)
        shares = np.bincount(self.y.astype(int), self.w)
        return float(-(shares * np.log(shares)).sum())


def soft_threshold(x: np.ndarray, t: float) -> np.ndarray:
    return np.sign(x) * np.maximum(np.abs(x) - t, 0)


def even(n: int) -> np.ndarray:
    """(n,) weights 1/n."""
    return np.full(n, 1 / n)


def strongest(X: np.ndarray, y: np.ndarray) -> float:
    """The smallest alpha at which all coefficients of a lasso with an intercept are zero."""
    return float(np.abs((X - X.mean(0)).T @ (y - y.mean())).max() / len(y))
