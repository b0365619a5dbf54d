"""Constants of linear models: bounds from the features alone, and what is measured at given points. On the host, in float64."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import expit, softmax

from fedlocal.core import Params
from fedlocal.federated_data import SparseMatrix
from fedlocal.problems.linear import LinearProblem, Logistic, Softmax

DENSE = 512  # parameters up to which eigenvalues are those of a dense matrix, else of a Krylov space
SMALL = 1 << 24  # numbers of dense features that are kept in float64
BLOCK = 1 << 22  # numbers of larger ones that are looked at at once
ROUNDING = 1e-12  # relative; smaller differences of matrices are none, and smaller eigenvalues are zero
LARGEST_THIRD = 1 / (6 * math.sqrt(3))  # of p (1 - p) (1 - 2 p), the third derivative of log(1 + e^s)


class Found(NamedTuple):
    """A constant, and where it comes from."""

    value: float | None
    how: str
    certified: bool  # proven, everywhere or in the region


class Region(NamedTuple):
    """Where a bound holds that does not hold everywhere: the part of a ball around x* that psi allows."""

    solution: Params  # x*
    radius: float  # ||x - x*|| <= radius
    largest_norm: float  # ||weights|| <= largest_norm, by the constraint in psi; inf where there is none

    def __str__(self) -> str:
        return f"over ||x - x*|| <= {self.radius:.4g}"


class Group(NamedTuple):
    """The clients that own the same examples."""

    client: int  # the first of them
    weight: float  # of all of them together in F
    rows: slice


def groups_of(starts: np.ndarray, sizes: np.ndarray, p: np.ndarray) -> list[Group]:
    """Clients with the same rows, together."""
    intervals, first, index = np.unique(
        np.stack([starts, sizes], axis=1), axis=0, return_index=True, return_inverse=True
    )
    totals = np.bincount(index.ravel(), weights=p)
    return [
        Group(int(m), float(t), slice(int(a), int(a + n)))
        for (a, n), m, t in zip(intervals, first, totals, strict=True)
    ]


@dataclass(frozen=True)
class Scores:
    """A loss l of scores s with targets b. Slopes are (n,) or (n, C), of curvature and third order there is one per example."""

    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]  # l'(s)
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray]  # l''(s); for softmax the probabilities it is made of
    third: Callable[[np.ndarray, np.ndarray], np.ndarray]  # at least |l'''(s)|
    slope_bound: float | None  # the largest |l'|
    curvature_bound: float  # the largest l''
    third_bound: float  # the largest |l'''|
    name: str


SQUARES = Scores(
    slope=lambda s, b: 2 * (s - b),
    curvature=lambda s, b: np.full_like(s, 2.0),
    third=lambda s, b: np.zeros_like(s),
    slope_bound=None,
    curvature_bound=2.0,
    third_bound=0.0,
    name="squares",
)
LOGISTIC = Scores(
    slope=lambda s, b: -b * expit(-b * s),
    curvature=lambda s, b: expit(s) * expit(-s),
    third=lambda s, b: np.abs(expit(s) * expit(-s) * (expit(-s) - expit(s))),
    slope_bound=1.0,
    curvature_bound=1 / 4,
    third_bound=LARGEST_THIRD,
    name="logistic",
)


def _softmax_slope(s: np.ndarray, b: np.ndarray) -> np.ndarray:
    slopes = softmax(s, axis=1)
    slopes[np.arange(len(b)), b] -= 1
    return slopes


def _softmax_third(s: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E|u - Eu|^3 <= range(u) Var(u) <= sqrt(2) lambda_max(diag p - pp') for ||u|| = 1, and the bound of all p."""
    p = softmax(s, axis=1)
    return np.minimum(math.sqrt(2) * np.max(2 * p * (1 - p), axis=1), SOFTMAX.third_bound)


# diag p - pp' has Gershgorin discs up to 2 p_j (1 - p_j) <= 1/2. The third derivative along u is the third central moment of u
# under p, whose range is at most sqrt(2) ||u||; of all variables in an interval, two-point ones have the largest.
SOFTMAX = Scores(
    slope=_softmax_slope,
    curvature=lambda s, b: softmax(s, axis=1),
    third=_softmax_third,
    slope_bound=math.sqrt(2),
    curvature_bound=1 / 2,
    third_bound=math.sqrt(2) ** 3 * LARGEST_THIRD,
    name="softmax",
)


class LinearModel:
    """F_m(x) = mean_i l(a_i'x, b_i) + l2/2 ||weights||^2, where a_i begins with a 1 for the intercept, if there is one."""

    def __init__(self, problem: LinearProblem, p: np.ndarray):
        data, features = problem.data, problem.data.arrays[0]
        self.loss = LOGISTIC if isinstance(problem, Logistic) else SOFTMAX if isinstance(problem, Softmax) else SQUARES
        self.l2 = 0.0 if problem.l2 is None else float(problem.l2)
        self.first = int(problem.intercept)  # where the weights begin
        self.count, self.size = data.num_examples, self.first + math.prod(features.shape[1:])
        self.targets = np.asarray(data.arrays[1])
        self.outputs = problem.output_shape()
        self.groups = groups_of(np.asarray(data.client_starts), np.asarray(data.client_sizes), p)
        self.example_weights = data.example_weights(p)
        self._wide = True  # whether the matrix has its column of ones and is in float64
        if isinstance(features, SparseMatrix):
            parts = [np.asarray(a) for a in (features.values, features.columns, features.row_starts)]
            matrix = scipy.sparse.csr_array((parts[0].astype(np.float64), *parts[1:]), shape=features.shape)
            ones = scipy.sparse.csr_array(np.ones((self.count, self.first)))
            self._matrix: Any = scipy.sparse.csr_array(scipy.sparse.hstack([ones, matrix])) if self.first else matrix
        else:
            self._matrix, self._wide = np.asarray(features).reshape(self.count, -1), False
            if self.count * self.size <= SMALL:
                self._matrix, self._wide = self._widened(self._matrix), True
        everything = slice(0, self.count)
        squares = [_row_sums(block) for _, block in self.blocks(everything)]
        self.norms = np.sqrt(np.concatenate(squares))  # (n,) ||a_i||

    def _widened(self, block: np.ndarray) -> np.ndarray:
        wide = np.ones((len(block), self.size))
        wide[:, self.first :] = block
        return wide

    def blocks(self, rows: slice) -> Iterator[tuple[slice, Any]]:
        """Some rows after the other, in float64: their places, and a."""
        step = max(1, BLOCK // self.size)
        for start in range(rows.start, rows.stop, step):
            here = slice(start, min(start + step, rows.stop))
            block = self._matrix[here]
            yield here, block if self._wide else self._widened(block)

    def coefficients(self, x: Params) -> np.ndarray:
        """(D,) or (D, C): x with the intercept first."""
        weights = np.asarray(x["weights"], np.float64).reshape(-1, *self.outputs)
        return np.concatenate([np.asarray(x["intercept"], np.float64)[None], weights]) if self.first else weights

    def times(self, rows: slice, v: np.ndarray) -> np.ndarray:
        """A v."""
        return np.concatenate([block @ v for _, block in self.blocks(rows)])

    def transposed_times(self, rows: slice, u: np.ndarray) -> np.ndarray:
        """A'u."""
        return sum(block.T @ u[_within(here, rows)] for here, block in self.blocks(rows))  # pyright: ignore

    def gram(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> np.ndarray:
        """A' diag(weights) A + ridge on the weights of x, a dense matrix."""
        total = np.diag(ridge * self.penalized)
        for here, block in self.blocks(rows):
            w = weights[_within(here, rows), None]
            product = block.T @ (block.multiply(w).tocsr() if scipy.sparse.issparse(block) else block * w)
            total += product.toarray() if scipy.sparse.issparse(product) else product
        return total

    @property
    def penalized(self) -> np.ndarray:
        """(D,) zero for the intercept, one for the weights."""
        return (np.arange(self.size) >= self.first).astype(np.float64)

    def top_eigenvalue(self, rows: slice, weights: np.ndarray, ridge: float = 0.0) -> float:
        """The largest eigenvalue of `gram`, by the smallest way."""
        n = rows.stop - rows.start
        if n < min(self.size, DENSE) and (ridge == 0 or not self.first):
            block = np.sqrt(weights)[:, None] * np.concatenate([_dense(block) for _, block in self.blocks(rows)])
            return float(np.linalg.eigvalsh(block @ block.T)[-1]) + ridge
        if self.size <= DENSE:
            return float(np.linalg.eigvalsh(self.gram(rows, weights, ridge))[-1])

        def product(v: np.ndarray) -> np.ndarray:
            return self.transposed_times(rows, weights * self.times(rows, v)) + ridge * self.penalized * v

        return krylov_top(product, self.size)


def krylov_top(product: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """The largest eigenvalue of a symmetric matrix, known by its products with vectors."""
    start = np.random.default_rng(0).standard_normal(size)
    if size == 1 or not product(start).any():
        return float((product(start) / start)[0])
    operator = LinearOperator((size, size), matvec=lambda v: product(v.ravel()), dtype=np.float64)  # pyright: ignore
    found: Any = eigsh(operator, k=1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)  # pyright: ignore
    return float(found[0])


def of_batch(variance: float, fourth: float, batch_size: int | None) -> tuple[float, float]:
    r"""(sigma of E||.||^2 <= sigma^2, sigma of E||.||^4 <= sigma^4) for the mean of B independent draws n_i of mean zero.

    E||sum n_i||^4 = B E||n||^4 + B (B - 1) ((E||n||^2)^2 + 2 tr(C^2)), since all terms with a lone n_i vanish; C is the
    covariance of n, and tr(C^2) <= (tr C)^2 = (E||n||^2)^2. Hence E||mean||^4 <= (E||n||^4 + 3 (B - 1) (E||n||^2)^2) / B^3.
    `batch_size` None is a full gradient.

    >>> of_batch(4.0, 16.0, 1)
    (2.0, 2.0)
    """
    if batch_size is None:
        return 0.0, 0.0
    b = batch_size
    return math.sqrt(variance / b), ((fourth + 3 * (b - 1) * variance**2) / b**3) ** 0.25


def fourth_moment(reach: np.ndarray, variance: float) -> float:
    r"""A bound of E||g - Eg||^4 for g uniform over vectors with ||g_i|| <= reach_i and E||g - Eg||^2 <= variance.

    The smallest of three, with q_k = mean reach^k, R = max reach and m = ||Eg||:
        (R + q_1)^2 variance;
        27/16 R^4, because ||g - Eg||^2 <= R^2 + m^2 - 2 <g, Eg> has mean R^2 - m^2, and (R + m)^2 (R^2 - m^2) is largest at R/2;
        q_4 + 4 q_1 q_3 + 6 q_1^2 q_2 - 3 q_1^4, from the expansion, which grows in m <= q_1.

    >>> fourth_moment(np.ones(3), 1.0)
    1.6875
    """
    q1, q2, q3, q4 = (float(np.mean(reach**k)) for k in (1, 2, 3, 4))
    top = float(np.max(reach))
    return min((top + q1) ** 2 * variance, 27 / 16 * top**4, q4 + 4 * q1 * q3 + 6 * q1**2 * q2 - 3 * q1**4)


def certified(model: LinearModel, region: Region, batch_size: int | None) -> dict[str, Found]:
    """Constants that hold everywhere, or in the region where `how` says so."""
    spectra = [model.top_eigenvalue(g.rows, _means(g)) for g in model.groups]  # of mean aa'
    found = {"smoothness": _smoothness(model, spectra), "third_order": _third_order(model)}
    if model.loss.slope_bound is None:
        return found | _of_squares(model, region, batch_size, spectra)
    return found | _of_bounded_slopes(model, region, batch_size, spectra, model.loss.slope_bound)


def _smoothness(model: LinearModel, spectra: Sequence[float]) -> Found:
    bound, l2 = model.loss.curvature_bound, model.l2
    if model.first and l2 > 0:
        values = [model.top_eigenvalue(g.rows, bound * _means(g), l2) for g in model.groups]
    else:
        values = [bound * top + l2 for top in spectra]
    value, client = _largest(model.groups, values)
    if model.loss is SQUARES:
        return Found(
            value, f"exact: largest eigenvalue of the clients' Hessians 2 mean aa' + l2, client {client}", True
        )
    how = f"certified upper bound: largest eigenvalue of {bound:g} mean aa' + l2, which bounds the Hessians, client {client}"
    return Found(value, how, True)


def _third_order(model: LinearModel) -> Found:
    bound = model.loss.third_bound
    if bound == 0:
        return Found(0.0, "exact: the Hessians are constant", True)
    tops = [model.top_eigenvalue(g.rows, model.norms[g.rows] * _means(g)) for g in model.groups]
    value, client = _largest(model.groups, [bound * top for top in tops])
    how = f"certified upper bound: {bound:.4g} times the largest eigenvalue of mean ||a|| aa', client {client}"
    return Found(value, how, True)


def _of_bounded_slopes(
    model: LinearModel, region: Region, batch_size: int | None, spectra: Sequence[float], slope: float
) -> dict[str, Found]:
    variances = [_bounded_variance(model, g, slope) for g in model.groups]
    fourths = [fourth_moment(slope * model.norms[g.rows], v) for g, v in zip(model.groups, variances, strict=True)]
    # a client's mean gradient without the penalty: at most the mean norm, and A'u/n at most ||A|| ||u|| / n
    reach = [
        slope * min(float(np.mean(model.norms[g.rows])), math.sqrt(top))
        for g, top in zip(model.groups, spectra, strict=True)
    ]
    slopes = f"slopes of the {model.loss.name} loss are at most {slope:.4g}"
    pull = _pull(model, region)
    norms = max(reach) if batch_size is None else slope * float(np.max(model.norms))
    mu, why = model.l2, "certified lower bound: l2"
    if model.first or not model.l2:
        mu, why = (
            0.0,
            "certified: 0 is all that holds everywhere, " + ("the intercept has no l2" if model.l2 else "l2 = 0"),
        )
    return {
        "strong_convexity": Found(mu, why, True),
        **_noise(model, variances, fourths, batch_size, f"certified upper bound: {slopes}"),
        "heterogeneity": _bounded_heterogeneity(model, reach, slopes),
        "gradient_bound": Found(norms + pull, f"certified upper bound: {slopes}{_where(model, region)}", True),
    }


def _bounded_variance(model: LinearModel, group: Group, slope: float) -> float:
    """sup of E||g - Eg||^2 <= E||g - c||^2 for g_i = w_i v_i with any w_i in [0, 1]; for logistic v = -b a, c = alpha mean v."""
    squares = model.norms[group.rows] ** 2
    if model.loss is not LOGISTIC:
        return slope**2 * float(np.mean(squares))
    signs = -model.targets[group.rows].astype(np.float64)
    center = model.transposed_times(group.rows, signs * _means(group))
    products, size = signs * model.times(group.rows, center), float(center @ center)

    def bound(alpha: float) -> float:  # mean_i max(||c||^2, ||v_i - c||^2)
        return alpha**2 * size + float(np.mean(np.maximum(squares - 2 * alpha * products, 0)))

    best = minimize_scalar(bound, bounds=(0, 2), method="bounded")
    return min(bound(0.0), float(best.fun))


def _bounded_heterogeneity(model: LinearModel, reach: Sequence[float], slopes: str) -> Found:
    if len(model.groups) == 1:
        return HOMOGENEOUS
    total = sum(g.weight * r for g, r in zip(model.groups, reach, strict=True))
    values = [(1 - g.weight) * r + total - g.weight * r for g, r in zip(model.groups, reach, strict=True)]
    value, client = _largest(model.groups, values)
    how = f"certified upper bound: (1 - p_m) ||g_m|| + sum_k p_k ||g_k|| over the others, {slopes}, client {client}"
    return Found(value, how, True)


def _of_squares(
    model: LinearModel, region: Region, batch_size: int | None, spectra: Sequence[float]
) -> dict[str, Found]:
    x, r = model.coefficients(region.solution), region.radius
    slopes = model.loss.slope(model.times(slice(0, model.count), x), model.targets)
    reach = (np.abs(slopes) + 2 * r * model.norms) * model.norms  # of 2 (a'x - b) a in the ball
    variances = [_variance_in_ball(model, g, slopes[g.rows], r) for g in model.groups]
    fourths = [fourth_moment(reach[g.rows], v) for g, v in zip(model.groups, variances, strict=True)]
    norms = float(np.max(reach))
    if batch_size is None:
        gradients = [model.transposed_times(g.rows, slopes[g.rows] * _means(g)) for g in model.groups]
        norms = max(float(np.linalg.norm(g)) + 2 * r * top for g, top in zip(gradients, spectra, strict=True))
    how = f"certified upper bound {region}: residuals there are at most those at x* plus radius times ||a||"
    return {
        "strong_convexity": _least_curvature(model),
        **_noise(
            model, variances, fourths, batch_size, f"certified upper bound {region}: the variance is quadratic in x"
        ),
        "heterogeneity": _heterogeneity_in_ball(model, slopes, region, spectra),
        "gradient_bound": Found(norms + _pull(model, region), how, True),
    }


def _variance_in_ball(model: LinearModel, group: Group, slopes: np.ndarray, radius: float) -> float:
    """c0 + 2 radius ||c1|| + radius^2 lambda_max(C2), where E||g - Eg||^2 = c0 + 2 c1'd + d'C2 d at x* + d."""
    rows, w, squares = group.rows, _means(group), model.norms[group.rows] ** 2
    mean = model.transposed_times(rows, w * slopes)
    c0 = float(np.sum(w * squares * slopes**2) - mean @ mean)

    def second(v: np.ndarray) -> np.ndarray:  # 4 (mean ||a||^2 aa' - (mean aa')^2) v
        s = model.times(rows, v)
        inner = model.times(rows, model.transposed_times(rows, w * s))
        return 4 * model.transposed_times(rows, w * (squares * s - inner))

    inner = model.times(rows, mean)
    c1 = 2 * model.transposed_times(rows, w * (squares * slopes - inner))
    if model.size <= DENSE:
        gram = model.gram(rows, w)
        top = float(np.linalg.eigvalsh(4 * (model.gram(rows, w * squares) - gram @ gram))[-1])
    else:
        top = krylov_top(second, model.size)
    return max(c0, 0.0) + 2 * radius * float(np.linalg.norm(c1)) + radius**2 * max(top, 0.0)


def _least_curvature(model: LinearModel) -> Found:
    """mu of F for squares."""
    if model.size > 4 * DENSE:
        return Found(0.0 if model.first else model.l2, "certified lower bound: l2, for so many parameters", True)
    value = least_eigenvalue(model.gram(slice(0, model.count), 2 * model.example_weights, model.l2))
    return Found(value, "exact: smallest eigenvalue of the Hessian of F", True)


def least_eigenvalue(matrix: np.ndarray) -> float:
    """The smallest eigenvalue of a positive semidefinite matrix; zero where it is only rounding."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]) if values[0] > ROUNDING * values[-1] else 0.0


def _heterogeneity_in_ball(model: LinearModel, slopes: np.ndarray, region: Region, spectra: Sequence[float]) -> Found:
    if len(model.groups) == 1:
        return HOMOGENEOUS
    mean = model.transposed_times(slice(0, model.count), model.example_weights * slopes)
    shifts = [model.transposed_times(g.rows, slopes[g.rows] * _means(g)) - mean for g in model.groups]
    if model.size <= DENSE:
        gram = model.gram(slice(0, model.count), model.example_weights)
        bends = [2 * float(np.linalg.norm(model.gram(g.rows, _means(g)) - gram, 2)) for g in model.groups]
    else:  # H_m and H are positive semidefinite, so H_m - H is no larger than both
        total = sum(g.weight * top for g, top in zip(model.groups, spectra, strict=True))
        bends = [2 * max(top, total) for top in spectra]
    return affine_heterogeneity([g.client for g in model.groups], shifts, bends, 2 * max(spectra), region)


def affine_heterogeneity(
    clients: Sequence[int], shifts: Sequence[np.ndarray], bends: Sequence[float], smoothness: float, region: Region
) -> Found:
    """||shift_m + (H_m - H) d|| for ||d|| <= radius, ||H_m - H|| = bend_m."""
    sizes = [float(np.linalg.norm(shift)) for shift in shifts]
    if max(bends) <= ROUNDING * smoothness:
        best = int(np.argmax(sizes))
        return Found(sizes[best], f"exact everywhere: the Hessians are equal, client {clients[best]}", True)
    values = [size + region.radius * bend for size, bend in zip(sizes, bends, strict=True)]
    best = int(np.argmax(values))
    how = f"certified upper bound {region}: its value at x* plus radius ||H_m - H||, client {clients[best]}"
    return Found(values[best], how, True)


def measured(
    model: LinearModel, points: Sequence[Params], hessians: Sequence[Group], batch_size: int | None
) -> dict[str, float]:
    """The largest values at these points (smallest for mu): of all clients, and of some clients' Hessians."""
    rows: list[dict[str, float]] = []
    for x in map(model.coefficients, points):
        scores = model.times(slice(0, model.count), x)
        row = _gradients_at(model, x, model.loss.slope(scores, model.targets), batch_size)
        curvature, third = (fn(scores, model.targets) for fn in (model.loss.curvature, model.loss.third))
        row["smoothness"] = max(_top_curvature(model, g, curvature[g.rows]) for g in hessians)
        cubes = third * model.norms
        row["third_order"] = max(model.top_eigenvalue(g.rows, cubes[g.rows] * _means(g)) for g in hessians)
        row["strong_convexity"] = 0.0 if model.first else model.l2
        if model.loss is not SOFTMAX and model.size <= DENSE:  # equal shifts of all classes never bend softmax
            weights = model.example_weights * curvature
            row["strong_convexity"] = least_eigenvalue(model.gram(slice(0, model.count), weights, model.l2))
        rows.append(row)
    return {name: (min if name == "strong_convexity" else max)(row[name] for row in rows) for name in rows[0]}


def _gradients_at(model: LinearModel, x: np.ndarray, slopes: np.ndarray, batch_size: int | None) -> dict[str, float]:
    everything = slice(0, model.count)
    mean = model.transposed_times(everything, (model.example_weights * slopes.T).T)
    pull = model.l2 * (model.penalized * x.T).T
    noise, fourth, apart, norm = 0.0, 0.0, 0.0, 0.0
    for g in model.groups:
        u, own = slopes[g.rows], model.transposed_times(g.rows, slopes[g.rows] / (g.rows.stop - g.rows.start))
        squares = model.norms[g.rows] ** 2 * (u * u if u.ndim == 1 else np.sum(u * u, axis=1))  # ||g_i||^2
        spread = _plus(model, g.rows, u, squares, -own)
        sigma, sigma4 = of_batch(float(np.mean(spread)), float(np.mean(spread**2)), batch_size)
        noise, fourth = max(noise, sigma), max(fourth, sigma4)
        apart = max(apart, float(np.linalg.norm(own - mean)))
        size = (
            np.linalg.norm(own + pull)
            if batch_size is None
            else math.sqrt(np.max(_plus(model, g.rows, u, squares, pull)))
        )
        norm = max(norm, float(size))
    apart = 0.0 if len(model.groups) == 1 else apart
    return {"noise": noise, "fourth_moment": fourth, "heterogeneity": apart, "gradient_bound": norm}


def optimum_heterogeneity(model: LinearModel, x: Params) -> float:
    """sqrt(sum_m p_m ||grad F_m(x) - grad F(x)||^2)."""
    if len(model.groups) == 1:
        return 0.0
    slopes = model.loss.slope(model.times(slice(0, model.count), model.coefficients(x)), model.targets)
    mean = model.transposed_times(slice(0, model.count), (model.example_weights * slopes.T).T)
    apart = [model.transposed_times(g.rows, slopes[g.rows] / (g.rows.stop - g.rows.start)) - mean for g in model.groups]
    return math.sqrt(sum(g.weight * float(np.sum(a * a)) for g, a in zip(model.groups, apart, strict=True)))


def separates(model: LinearModel, x: Params) -> bool:
    """Whether x classifies every example rightly, so that its multiples have losses as small as one likes."""
    scores = model.times(slice(0, model.count), model.coefficients(x))
    if model.loss is LOGISTIC:
        return bool(np.all(model.targets * scores > 0))
    right = np.take_along_axis(scores, model.targets[:, None], axis=1)
    return bool(np.all(np.sum(scores >= right, axis=1) == 1))


def _plus(model: LinearModel, rows: slice, u: np.ndarray, squares: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """(n,) ||a_i u_i' + shift||^2."""
    products = u * model.times(rows, shift)
    products = products if u.ndim == 1 else np.sum(products, axis=1)
    return np.maximum(squares + 2 * products + np.sum(shift * shift), 0)


def _top_curvature(model: LinearModel, group: Group, curvature: np.ndarray) -> float:
    if model.loss is not SOFTMAX:
        return model.top_eigenvalue(group.rows, curvature * _means(group), model.l2)
    p, shape = curvature, (model.size, *model.outputs)

    def product(v: np.ndarray) -> np.ndarray:  # p are the probabilities: the Hessian of a score is diag p - pp'
        v = v.reshape(shape)
        s = p * model.times(group.rows, v)
        s = (s - p * np.sum(s, axis=1, keepdims=True)) / len(p)
        return np.ravel(model.transposed_times(group.rows, s) + model.l2 * model.penalized[:, None] * v)

    return krylov_top(product, math.prod(shape))


def _noise(
    model: LinearModel, variances: Sequence[float], fourths: Sequence[float], batch_size: int | None, how: str
) -> dict[str, Found]:
    if batch_size is None:
        return {"noise": FULL, "fourth_moment": FULL}
    pairs = [of_batch(v, f, batch_size) for v, f in zip(variances, fourths, strict=True)]
    (noise, client), (fourth, other) = (_largest(model.groups, each) for each in zip(*pairs, strict=True))
    return {
        "noise": Found(noise, f"{how}, client {client}", True),
        "fourth_moment": Found(fourth, f"{how}, client {other}", True),
    }


HOMOGENEOUS = Found(0.0, "exact: all clients have the same examples", True)
FULL = Found(0.0, "exact: full gradients", True)


def _pull(model: LinearModel, region: Region) -> float:
    """The largest gradient of the penalty in the region."""
    weights = model.coefficients(region.solution)[model.first :]
    return model.l2 * min(float(np.linalg.norm(weights)) + region.radius, region.largest_norm) if model.l2 else 0.0


def _where(model: LinearModel, region: Region) -> str:
    return f"; the penalty's gradient {region}" if model.l2 else ""


def _largest(groups: Sequence[Group], values: Sequence[float]) -> tuple[float, int]:
    best = int(np.argmax(values))
    return float(values[best]), groups[best].client


def _means(group: Group) -> np.ndarray:
    """(n,) the weights of a mean."""
    n = group.rows.stop - group.rows.start
    return np.full(n, 1 / n)


def _within(here: slice, rows: slice) -> slice:
    return slice(here.start - rows.start, here.stop - rows.start)


def _row_sums(block: Any) -> np.ndarray:
    squares = block.multiply(block) if scipy.sparse.issparse(block) else block * block
    return np.asarray(squares.sum(axis=1)).ravel()


def _dense(block: Any) -> np.ndarray:
    return block.toarray() if scipy.sparse.issparse(block) else block
