"""The boxed algorithms of the dissertation, and others from their papers, transcribed line by line in plain NumPy.

Written from the texts alone, for comparison with the library. Line numbers are those of `dissertation.tex`.
`rounds[r]` lists the clients of round r, each a pair (weight, grads): its weight in the server's mean (weights sum to 1
within a round, 1/|S| in the text) and one gradient function per local step, at least one. A federated method returns
the server's primal solution after each round. Where clients remember something, grads also say whose they are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
Gradient = Callable[[Vector], Vector]
Client = tuple[float, Sequence[Gradient]]
Rounds = Sequence[Sequence[Client]]


class Grads(list[Gradient]):
    """The gradient functions of client m of M in a round."""

    def __init__(self, grads: Sequence[Gradient], m: int, M: int):
        super().__init__(grads)
        self.m, self.M = m, M


class Psi(NamedTuple):
    """The composite term: prox(v, t) = argmin_z 1/2 ||z - v||^2 + t psi(z), and one element of its subdifferential.

    An indicator projects for every t, also t = 0; its subgradient is 0, an element of the normal cone of the set.
    """

    prox: Callable[[Vector, float], Vector]
    subgradient: Callable[[Vector], Vector]


def zero() -> Psi:
    """psi = 0."""
    return Psi(lambda v, t: v.copy(), np.zeros_like)


def l1(lam: float, mask: Mask) -> Psi:
    """psi = lam ||x||_1 on the mask: soft thresholding; the subgradient at 0 is 0."""

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        for i in np.flatnonzero(mask):
            if v[i] > t * lam:
                z[i] = v[i] - t * lam
            elif v[i] < -t * lam:
                z[i] = v[i] + t * lam
            else:
                z[i] = 0.0
        return z

    return Psi(prox, lambda v: np.where(mask, lam * np.sign(v), 0.0))


def squared_l2(lam: float, mask: Mask) -> Psi:
    """psi = lam/2 ||x||_2^2 on the mask: stationarity z - v + t lam z = 0."""
    return Psi(lambda v, t: np.where(mask, v / (1.0 + t * lam), v), lambda v: np.where(mask, lam * v, 0.0))


def nuclear(lam: float, mask: Mask, shape: tuple[int, int]) -> Psi:
    """psi = lam (sum of singular values) of the masked coordinates as a matrix; the smallest subgradient."""

    def prox(v: Vector, t: float) -> Vector:
        u, sigma, vt = np.linalg.svd(v[mask].reshape(shape), full_matrices=False)
        matrix = np.zeros(shape)
        for i in range(len(sigma)):
            matrix += max(sigma[i] - t * lam, 0.0) * np.outer(u[:, i], vt[i])
        z = v.copy()
        z[mask] = matrix.ravel()
        return z

    def subgradient(v: Vector) -> Vector:
        u, sigma, vt = np.linalg.svd(v[mask].reshape(shape), full_matrices=False)
        matrix = np.zeros(shape)
        for i in range(len(sigma)):
            if sigma[i] > 1e-12 * sigma[0]:
                matrix += lam * np.outer(u[:, i], vt[i])
        s = np.zeros_like(v)
        s[mask] = matrix.ravel()
        return s

    return Psi(prox, subgradient)


def l1_ball(radius: float, mask: Mask) -> Psi:
    """psi = indicator of ||x||_1 <= radius on the mask: soft thresholding, the threshold found by bisection."""

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        size = np.abs(v[mask])
        if size.sum() > radius:
            low, high = 0.0, size.max()
            for _ in range(200):
                middle = (low + high) / 2.0
                if np.maximum(size - middle, 0.0).sum() > radius:
                    low = middle
                else:
                    high = middle
            z[mask] = np.sign(v[mask]) * np.maximum(size - high, 0.0)
        return z

    return Psi(prox, np.zeros_like)


def l2_ball(radius: float, mask: Mask) -> Psi:
    """psi = indicator of ||x||_2 <= radius on the mask."""

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        norm = np.sqrt(np.sum(v[mask] ** 2))
        if norm > radius:
            z[mask] = v[mask] * (radius / norm)
        return z

    return Psi(prox, np.zeros_like)


def box(lower: float | Vector, upper: float | Vector, mask: Mask) -> Psi:
    """psi = indicator of lower <= x_i <= upper for i in the mask."""

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        z[mask] = np.minimum(np.maximum(v[mask], lower), upper)
        return z

    return Psi(prox, np.zeros_like)


def non_negative(mask: Mask) -> Psi:
    """psi = indicator of x_i >= 0 for i in the mask."""
    return box(0.0, np.inf, mask)


def l_inf_ball(radius: float, mask: Mask) -> Psi:
    """psi = indicator of ||x||_inf <= radius on the mask."""
    return box(-radius, radius, mask)


def elastic_net(lam1: float, lam2: float, mask: Mask) -> Psi:
    """psi = lam1 ||x||_1 + lam2/2 ||x||_2^2 on the mask: stationarity z (1 + t lam2) - v + t lam1 sign(z) = 0."""
    shrink = l1(lam1, mask)

    def prox(v: Vector, t: float) -> Vector:
        return np.where(mask, shrink.prox(v, t) / (1.0 + t * lam2), v)

    return Psi(prox, lambda v: shrink.subgradient(v) + np.where(mask, lam2 * v, 0.0))


def group_l1(lam: float, groups: Sequence[Sequence[int]]) -> Psi:
    """psi = lam (sum of the groups' 2-norms): z = c v on a group, stationarity c ||v|| - ||v|| + t lam = 0, or c = 0."""

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        for group in groups:
            norm = np.sqrt(np.sum(v[group] ** 2))
            z[group] = v[group] * (norm - t * lam) / norm if norm > t * lam else 0.0
        return z

    def subgradient(v: Vector) -> Vector:
        s = np.zeros_like(v)
        for group in groups:
            norm = np.sqrt(np.sum(v[group] ** 2))
            if norm > 0.0:
                s[group] = lam * v[group] / norm
        return s

    return Psi(prox, subgradient)


def l2_norm(lam: float, mask: Mask) -> Psi:
    """psi = lam ||x||_2 on the mask: one group."""
    return group_l1(lam, [np.flatnonzero(mask).tolist()])


def l_inf(lam: float, mask: Mask) -> Psi:
    """psi = lam max |x_i| on the mask: clip at the level c where sum (|v_i| - c)_+ = t lam, found by bisection.

    With s = max |z_i| fixed, z is v clipped at s; the derivative in s of 1/2 ||z - v||^2 + t lam s is
    t lam - sum (|v_i| - s)_+. The subgradient is carried by the first largest coordinate.
    """

    def prox(v: Vector, t: float) -> Vector:
        z = v.copy()
        size = np.abs(v[mask])
        low, high = 0.0, size.max()
        for _ in range(200):
            middle = (low + high) / 2.0
            if np.maximum(size - middle, 0.0).sum() > t * lam:
                low = middle
            else:
                high = middle
        z[mask] = np.minimum(np.maximum(v[mask], -high), high)
        return z

    def subgradient(v: Vector) -> Vector:
        s = np.zeros_like(v)
        i = np.flatnonzero(mask)[np.argmax(np.abs(v[mask]))]
        s[i] = lam * np.sign(v[i])
        return s

    return Psi(prox, subgradient)


def nuclear_ball(radius: float, mask: Mask, shape: tuple[int, int]) -> Psi:
    """psi = indicator of (sum of singular values) <= radius: the l1 ball's projection of the singular values."""

    def prox(v: Vector, t: float) -> Vector:
        u, sigma, vt = np.linalg.svd(v[mask].reshape(shape), full_matrices=False)
        sigma = l1_ball(radius, np.ones(len(sigma), dtype=bool)).prox(sigma, t)
        matrix = np.zeros(shape)
        for i in range(len(sigma)):
            matrix += sigma[i] * np.outer(u[:, i], vt[i])
        z = v.copy()
        z[mask] = matrix.ravel()
        return z

    return Psi(prox, np.zeros_like)


class Mirror(NamedTuple):
    """A distance-generating function h together with one psi.

    dual(x) = grad h(x), inverse(y) = grad h^*(y) = argmin_x h(x) - <y, x>, and
    primal(y, t) = grad (h + t psi)^*(y) = argmin_x h(x) + t psi(x) - <y, x>; an indicator acts for every t, also t = 0.
    Everywhere h is 1/2 x_i^2 on coordinates outside the mask, where psi is 0.
    """

    dual: Callable[[Vector], Vector]
    inverse: Callable[[Vector], Vector]
    primal: Callable[[Vector, float], Vector]


def entropy_dual(x: Vector, mask: Mask) -> Vector:
    """grad h for h = sum x log x - x, where x > 0."""
    y = x.copy()
    for i in np.flatnonzero(mask):
        y[i] = np.log(x[i])
    return y


def entropy_inverse(y: Vector, mask: Mask) -> Vector:
    """grad h^*: log x = y."""
    x = y.copy()
    for i in np.flatnonzero(mask):
        x[i] = np.exp(y[i])
    return x


def entropy_l1(lam: float, mask: Mask) -> Mirror:
    """psi = lam sum x, as x > 0: log x + t lam = y. With lam = 0, psi = 0."""
    return Mirror(
        lambda x: entropy_dual(x, mask),
        lambda y: entropy_inverse(y, mask),
        lambda y, t: entropy_inverse(np.where(mask, y - t * lam, y), mask),
    )


def entropy_simplex(total: float, mask: Mask) -> Mirror:
    """psi = indicator of sum x = total: log x + nu = y, with the multiplier nu that meets the sum."""

    def primal(y: Vector, t: float) -> Vector:
        x = entropy_inverse(y, mask)
        s = 0.0
        for i in np.flatnonzero(mask):
            s += x[i]
        return np.where(mask, total * x / s, x)

    return Mirror(lambda x: entropy_dual(x, mask), lambda y: entropy_inverse(y, mask), primal)


def entropy_box(lower: float, upper: float, mask: Mask) -> Mirror:
    """psi = indicator of lower <= x_i <= upper: one convex function of each x_i, so its minimiser exp(y_i) clipped."""

    def primal(y: Vector, t: float) -> Vector:
        x = entropy_inverse(y, mask)
        return np.where(mask, np.minimum(np.maximum(x, lower), upper), x)

    return Mirror(lambda x: entropy_dual(x, mask), lambda y: entropy_inverse(y, mask), primal)


def p_norm_link(x: Vector, p: float, mask: Mask) -> Vector:
    """The gradient of 1/2 ||x||_p^2: ||x||_p^(2-p) sign(x_i) |x_i|^(p-1), and 0 at 0."""
    s = 0.0
    for i in np.flatnonzero(mask):
        s += np.abs(x[i]) ** p
    y = x.copy()
    for i in np.flatnonzero(mask):
        y[i] = s ** ((2.0 - p) / p) * np.sign(x[i]) * np.abs(x[i]) ** (p - 1.0) if s > 0.0 else 0.0
    return y


def p_norm_l1(p: float, lam: float, mask: Mask) -> Mirror:
    """h = 1/2 ||x||_p^2, 1 < p <= 2, and psi = lam ||x||_1. With lam = 0, psi = 0.

    h^* is 1/2 ||y||_q^2 with 1/p + 1/q = 1. Stationarity: y - grad h(x) is in t lam d||x||_1. grad h(x)_i has the sign
    of x_i and is 0 where x_i is; so grad h(x)_i = y_i - t lam sign(y_i) where |y_i| > t lam, and else 0: the link's
    inverse at the soft-thresholded y.
    """
    q = p / (p - 1.0)
    return Mirror(
        lambda x: p_norm_link(x, p, mask),
        lambda y: p_norm_link(y, q, mask),
        lambda y, t: p_norm_link(l1(lam, mask).prox(y, t), q, mask),
    )


def diagonal_elastic_net(d: Vector, lam1: float, lam2: float, mask: Mask) -> Mirror:
    """h = 1/2 sum d_i x_i^2, psi = lam1 ||x||_1 + lam2/2 ||x||_2^2: d x + t lam2 x + t lam1 sign(x) = y, or x = 0."""

    def primal(y: Vector, t: float) -> Vector:
        x = y / d
        for i in np.flatnonzero(mask):
            if y[i] > t * lam1:
                x[i] = (y[i] - t * lam1) / (d[i] + t * lam2)
            elif y[i] < -t * lam1:
                x[i] = (y[i] + t * lam1) / (d[i] + t * lam2)
            else:
                x[i] = 0.0
        return x

    return Mirror(lambda x: d * x, lambda y: y / d, primal)


def diagonal_box(d: Vector, lower: float, upper: float, mask: Mask) -> Mirror:
    """h = 1/2 sum d_i x_i^2, psi = indicator of lower <= x_i <= upper: the coordinates' minimisers y_i / d_i clipped."""
    return Mirror(lambda x: d * x, lambda y: y / d, lambda y, t: box(lower, upper, mask).prox(y / d, t))


def mean_gradient(clients: Sequence[Client], x: Vector) -> Vector:
    """All gradients of one round at one point: the mean over each client's K, then the weighted mean over clients."""
    g = np.zeros_like(x)
    for weight, grads in clients:
        g_m = np.zeros_like(x)
        for gradient in grads:
            g_m += gradient(x) / len(grads)
        g += weight * g_m
    return g


def fed_avg(x0: Vector, rounds: Rounds, client_step_size: float, server_step_size: float) -> list[Vector]:
    """alg:fedavg:slr, lines 3699-3718 (alg:fedavg, lines 400-419, is server_step_size = 1)."""
    x = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(x)
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                g = gradient(x_m)
                x_m = x_m - client_step_size * g
            delta += weight * (x_m - x)
        x = x + server_step_size * delta
        solutions.append(x)
    return solutions


def fed_avg_optimizer(
    x0: Vector, rounds: Rounds, client_step_size: float, server_update: Callable[[Vector, Vector], Vector]
) -> list[Vector]:
    """alg:fedavg:slr with the server update (line 3715) replaced by an optimiser that sees -Delta as the gradient."""
    x = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(x)
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                g = gradient(x_m)
                x_m = x_m - client_step_size * g
            delta += weight * (x_m - x)
        x = server_update(-delta, x)
        solutions.append(x)
    return solutions


def fed_ac(x0: Vector, rounds: Rounds, alpha: float, beta: float, eta: float, gamma: float) -> list[Vector]:
    """alg:fedac, lines 1795-1818; line 2 of the box read as x_ag^(0,0) <- x^(0,0). Returns x_ag."""
    x = x0
    x_ag = x0
    solutions = []
    for clients in rounds:
        x_next = np.zeros_like(x)
        x_ag_next = np.zeros_like(x)
        for weight, grads in clients:
            x_m, x_ag_m = x, x_ag
            for gradient in grads:
                x_md = x_m / beta + (1.0 - 1.0 / beta) * x_ag_m
                g = gradient(x_md)
                x_ag_m = x_md - eta * g
                x_m = (1.0 - 1.0 / alpha) * x_m + x_md / alpha - gamma * g
            x_next += weight * x_m
            x_ag_next += weight * x_ag_m
        x, x_ag = x_next, x_ag_next
        solutions.append(x_ag)
    return solutions


def fed_ac_one_parameters(eta: float, mu: float, K: int) -> tuple[float, float, float]:
    """FedAc-I, eq. fedaci (line 1830): alpha, beta, gamma."""
    gamma = max(np.sqrt(eta / (mu * K)), eta)
    alpha = 1.0 / (gamma * mu)
    beta = alpha + 1.0
    return alpha, beta, gamma


def fed_ac_two_parameters(eta: float, mu: float, K: int) -> tuple[float, float, float]:
    """FedAc-II, eq. fedacii (line 1834): alpha, beta, gamma."""
    gamma = max(np.sqrt(eta / (mu * K)), eta)
    alpha = 3.0 / (2.0 * gamma * mu) - 1.0 / 2.0
    beta = (2.0 * alpha**2 - 1.0) / (alpha - 1.0)
    return alpha, beta, gamma


def vanilla_parameters(eta: float, mu: float) -> tuple[float, float, float]:
    """Vanilla FedAc (lines 3502-3510), also of MB-AC-SGD: alpha, beta, gamma."""
    gamma = np.sqrt(eta / mu)
    alpha = 1.0 / (gamma * mu)
    beta = alpha + 1.0
    return alpha, beta, gamma


def minibatch_sgd(x0: Vector, rounds: Rounds, step_size: float) -> list[Vector]:
    """MB-SGD, lines 3415-3422: one step per round with all the round's gradients at x."""
    x = x0
    solutions = []
    for clients in rounds:
        x = x - step_size * mean_gradient(clients, x)
        solutions.append(x)
    return solutions


def minibatch_ac_sgd(x0: Vector, rounds: Rounds, step_size: float, mu: float) -> list[Vector]:
    """MB-AC-SGD, lines 3415-3422: one accelerated step per round, all the round's gradients at x_md. Returns x_ag."""
    alpha, beta, gamma = vanilla_parameters(step_size, mu)
    x = x0
    x_ag = x0
    solutions = []
    for clients in rounds:
        x_md = x / beta + (1.0 - 1.0 / beta) * x_ag
        g = mean_gradient(clients, x_md)
        x_ag = x_md - step_size * g
        x = (1.0 - 1.0 / alpha) * x + x_md / alpha - gamma * g
        solutions.append(x_ag)
    return solutions


def agd(x0: Vector, rounds: Rounds, L: float, mu: float) -> list[Vector]:
    """algo:agd, lines 3122-3134, started from x_ag^(0) = x^(0). Returns x_ag."""
    kappa = L / mu
    x = x0
    x_ag = x0
    solutions = []
    for clients in rounds:
        x_md = x / (np.sqrt(kappa) + 1.0) + np.sqrt(kappa) / (np.sqrt(kappa) + 1.0) * x_ag
        g = mean_gradient(clients, x_md)
        x_ag = x_md - g / L
        x = (1.0 - 1.0 / np.sqrt(kappa)) * x + x_md / np.sqrt(kappa) - np.sqrt(1.0 / (L * mu)) * g
        solutions.append(x_ag)
    return solutions


def fed_mid(
    x0: Vector,
    rounds: Rounds,
    client_step_size: float,
    server_step_size: float,
    psi: Psi,
    prox_on_clients: bool = True,
) -> list[Vector]:
    """alg:fedmid, lines 3735-3755, Euclidean h; without prox_on_clients alg:fedmid-osp, lines 4827-4850."""
    x = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(x)
        walked = 0.0
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                g = gradient(x_m)
                x_m = x_m - client_step_size * g
                if prox_on_clients:
                    x_m = psi.prox(x_m, client_step_size)
            delta += weight * (x_m - x)
            walked += weight * client_step_size * len(grads)
        x = psi.prox(x + server_step_size * delta, server_step_size * walked)
        solutions.append(x)
    return solutions


def fed_dual_avg(
    x0: Vector,
    rounds: Rounds,
    client_step_size: float,
    server_step_size: float,
    psi: Psi,
    prox_on_clients: bool = True,
) -> list[Vector]:
    """alg:feddualavg, lines 3803-3831, Euclidean h; without prox_on_clients alg:feddualavg-osp, lines 4852-4881."""
    y = x0
    elapsed = 0.0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(y)
        walked = 0.0
        for weight, grads in clients:
            y_m = y
            for k, gradient in enumerate(grads):
                eta_tilde = elapsed + client_step_size * k
                x_m = psi.prox(y_m, eta_tilde) if prox_on_clients else y_m
                g = gradient(x_m)
                y_m = y_m - client_step_size * g
            delta += weight * (y_m - y)
            walked += weight * client_step_size * len(grads)
        y = y + server_step_size * delta
        elapsed = elapsed + server_step_size * walked
        solutions.append(psi.prox(y, elapsed))
    return solutions


def fed_mid_shared(
    x0: Vector, rounds: Rounds, client_step_size: float, server_step_size: float, psi: Psi, share: float
) -> list[Vector]:
    """Not in the text: alg:fedmid where clients take share psi for psi and the server (1 - share) psi; 0 psi is no psi."""
    x = x0
    solutions = []
    for clients in rounds:
        average = np.zeros_like(x)
        length = 0.0
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                x_m = x_m - client_step_size * gradient(x_m)
                if share > 0:
                    x_m = psi.prox(x_m, share * client_step_size)
            average += weight * x_m
            length += weight * client_step_size * len(grads)
        x = x + server_step_size * (average - x)
        if share < 1:
            x = psi.prox(x, (1 - share) * server_step_size * length)
        solutions.append(x)
    return solutions


def fed_mid_bregman(
    x0: Vector,
    rounds: Rounds,
    client_step_size: float,
    server_step_size: float,
    h: Mirror,
    prox_on_clients: bool = True,
) -> list[Vector]:
    """alg:fedmid, lines 3735-3755 (OSP 4827-4850), any h.

    The server's line is the Bregman proximal map at x + eta_s Delta, which must be in dom h, since Delta is primal.
    """
    x = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(x)
        walked = 0.0
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                g = gradient(x_m)
                y_m = h.dual(x_m) - client_step_size * g
                x_m = h.primal(y_m, client_step_size) if prox_on_clients else h.inverse(y_m)
            delta += weight * (x_m - x)
            walked += weight * client_step_size * len(grads)
        x = h.primal(h.dual(x + server_step_size * delta), server_step_size * walked)
        solutions.append(x)
    return solutions


def fed_dual_avg_bregman(
    x0: Vector,
    rounds: Rounds,
    client_step_size: float,
    server_step_size: float,
    h: Mirror,
    prox_on_clients: bool = True,
) -> list[Vector]:
    """alg:feddualavg, lines 3803-3831 (OSP 4852-4881), any h."""
    y = h.dual(x0)
    elapsed = 0.0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(y)
        walked = 0.0
        for weight, grads in clients:
            y_m = y
            for k, gradient in enumerate(grads):
                eta_tilde = elapsed + client_step_size * k
                x_m = h.primal(y_m, eta_tilde) if prox_on_clients else h.inverse(y_m)
                g = gradient(x_m)
                y_m = y_m - client_step_size * g
            delta += weight * (y_m - y)
            walked += weight * client_step_size * len(grads)
        y = y + server_step_size * delta
        elapsed = elapsed + server_step_size * walked
        solutions.append(h.primal(y, elapsed))
    return solutions


def subgradient_fed_avg(
    x0: Vector, rounds: Rounds, client_step_size: float, server_step_size: float, psi: Psi
) -> list[Vector]:
    """FedAvg(subgradient), lines 3560-3575: alg:fedavg:slr on f + psi."""
    x = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(x)
        for weight, grads in clients:
            x_m = x
            for gradient in grads:
                g = gradient(x_m) + psi.subgradient(x_m)
                x_m = x_m - client_step_size * g
            delta += weight * (x_m - x)
        x = x + server_step_size * delta
        solutions.append(x)
    return solutions


def scaffold(x0: Vector, rounds: Rounds, client_step_size: float, server_step_size: float) -> list[Vector]:
    """SCAFFOLD (Karimireddy et al. 2020), algorithm 1, option II in line 12; all control variates start at 0.

    The means over S of lines 16 are by the weights of the round; K is the number of the client's own steps.
    """
    x = x0
    c = np.zeros_like(x0)
    c_of: dict[int, Vector] = {}
    solutions = []
    for clients in rounds:
        delta_x = np.zeros_like(x)
        delta_c = np.zeros_like(x)
        share = 0.0
        for weight, grads in clients:
            assert isinstance(grads, Grads)
            c_i = c_of.get(grads.m, np.zeros_like(x))
            y_i = x
            for gradient in grads:
                y_i = y_i - client_step_size * (gradient(y_i) - c_i + c)
            c_i_plus = c_i - c + (x - y_i) / (len(grads) * client_step_size)
            delta_x += weight * (y_i - x)
            delta_c += weight * (c_i_plus - c_i)
            c_of[grads.m] = c_i_plus
            share = len(clients) / grads.M
        x = x + server_step_size * delta_x
        c = c + share * delta_c
        solutions.append(x)
    return solutions


def fed_prox(x0: Vector, rounds: Rounds, client_step_size: float, mu: float, server_step_size: float) -> list[Vector]:
    """FedProx (Li et al. 2020), algorithm 2: w_k is found by gradient steps on h_k(w; w^t) = F_k(w) + mu/2 ||w - w^t||^2.

    The server's mean is by the weights of the round and of changes, with a step size, as in alg:fedavg:slr.
    """
    w_t = x0
    solutions = []
    for clients in rounds:
        delta = np.zeros_like(w_t)
        for weight, grads in clients:
            w = w_t
            for gradient in grads:
                gradient_of_h = gradient(w) + mu * (w - w_t)
                w = w - client_step_size * gradient_of_h
            delta += weight * (w - w_t)
        w_t = w_t + server_step_size * delta
        solutions.append(w_t)
    return solutions


def proximal_gradient(x0: Vector, rounds: Rounds, step_size: float, psi: Psi) -> list[Vector]:
    """eq. pgm, lines 3608-3615, with all the round's gradients at x."""
    x = x0
    solutions = []
    for clients in rounds:
        x = psi.prox(x - step_size * mean_gradient(clients, x), step_size)
        solutions.append(x)
    return solutions


def accelerated_proximal_gradient(x0: Vector, rounds: Rounds, step_size: float, psi: Psi) -> list[Vector]:
    """FISTA with constant stepsize (Beck and Teboulle 2009) and the gradient scheme of restarts (O'Donoghue and Candes 2015),
    the runs and their iterations each a loop; all the round's gradients at y_k.

    A run of FISTA starts at x_0 with y_1 = x_0, t_1 = 1. It ends when G(y_k)'(x_k - x_{k-1}) > 0 for the generalised gradient
    G(y) = (y - p(y)) / step_size, and the next run starts at x_k.
    """
    solutions = []
    start = x0
    while len(solutions) < len(rounds):
        x = [start]  # x_0, x_1, ...
        y = [start, start]  # y_1 is y[1]
        t = [1.0, 1.0]  # t_1 is t[1]
        k = 1
        while len(solutions) < len(rounds):
            clients = rounds[len(solutions)]
            x.append(psi.prox(y[k] - step_size * mean_gradient(clients, y[k]), step_size))
            solutions.append(x[k])
            generalised_gradient = (y[k] - x[k]) / step_size
            inner_product = 0.0
            for i in range(len(x0)):
                inner_product += generalised_gradient[i] * (x[k][i] - x[k - 1][i])
            if inner_product > 0.0:
                break
            t.append((1.0 + np.sqrt(1.0 + 4.0 * t[k] ** 2)) / 2.0)
            y.append(x[k] + (t[k] - 1.0) / t[k + 1] * (x[k] - x[k - 1]))
            k += 1
        start = x[-1]
    return solutions


def mirror_descent(x0: Vector, grads: Sequence[Gradient], step_size: float, psi: Psi) -> list[Vector]:
    """eq. pgm / bpgm / md:oneline, lines 3608-3632, Euclidean h, with the step size that md:oneline leaves out."""
    x = x0
    points = []
    for gradient in grads:
        x = psi.prox(x - step_size * gradient(x), step_size)
        points.append(x)
    return points


def dual_averaging(x0: Vector, grads: Sequence[Gradient], step_size: float, psi: Psi) -> list[Vector]:
    """eq. da, lines 3642-3647, Euclidean h: the primal point of y^(t+1), with weight eta (t+1), after each step."""
    y = x0
    points = []
    for t, gradient in enumerate(grads):
        y = y - step_size * gradient(psi.prox(y, step_size * t))
        points.append(psi.prox(y, step_size * (t + 1)))
    return points


def mirror_descent_bregman(x0: Vector, grads: Sequence[Gradient], step_size: float, h: Mirror) -> list[Vector]:
    """eq. bpgm / md:oneline, lines 3621-3632, any h, with the step size that md:oneline leaves out."""
    x = x0
    points = []
    for gradient in grads:
        x = h.primal(h.dual(x) - step_size * gradient(x), step_size)
        points.append(x)
    return points


def dual_averaging_bregman(x0: Vector, grads: Sequence[Gradient], step_size: float, h: Mirror) -> list[Vector]:
    """eq. da, lines 3642-3647, any h: the primal point of y^(t+1), with weight eta (t+1), after each step."""
    y = h.dual(x0)
    points = []
    for t, gradient in enumerate(grads):
        y = y - step_size * gradient(h.primal(y, step_size * t))
        points.append(h.primal(y, step_size * (t + 1)))
    return points


def mean_local_iterates(x0: Vector, rounds: Rounds, client_step_size: float) -> list[Vector]:
    """alg:fedavg, lines 400-419, equal K: the clients' mean of x_m^(r,k), k = 0..K-1, in the order t = r K + k."""
    x = x0
    means = []
    for clients in rounds:
        K = len(clients[0][1])
        x_bar = [np.zeros_like(x) for _ in range(K + 1)]
        for weight, grads in clients:
            x_m = x
            for k in range(K):
                x_bar[k] += weight * x_m
                x_m = x_m - client_step_size * grads[k](x_m)
            x_bar[K] += weight * x_m
        means.extend(x_bar[:K])
        x = x_bar[K]
    return means


def third_order_average(x0: Vector, rounds: Rounds, client_step_size: float) -> Vector:
    """x-hat of thm:fedavg:3o:ub, lines 1297-1301."""
    x_bar = mean_local_iterates(x0, rounds, client_step_size)
    KR = len(x_bar)
    denominator = 0.0
    numerator = np.zeros_like(x0)
    for t in range(KR):
        denominator += 1.0 / (1.0 + 1.0 / KR) ** (t + 1)
        numerator += x_bar[t] / (1.0 + 1.0 / KR) ** (t + 1)
    return numerator / denominator


def strongly_convex_average(x0: Vector, rounds: Rounds, client_step_size: float, mu: float) -> Vector:
    """The rho-weighted average of fedavg:a2:full, lines 7780-7799."""
    x_bar = mean_local_iterates(x0, rounds, client_step_size)
    KR = len(x_bar)
    denominator = 0.0
    numerator = np.zeros_like(x0)
    for t in range(KR):
        denominator += (1.0 - client_step_size * mu / 2.0) ** (KR - t - 1)
        numerator += (1.0 - client_step_size * mu / 2.0) ** (KR - t - 1) * x_bar[t]
    return numerator / denominator


def dual_average_output(x0: Vector, rounds: Rounds, client_step_size: float, psi: Psi) -> Vector:
    """eq. x_hat, lines 3906-3910: FedDualAvg with eta_s = 1, Euclidean h, equal K; k = 1..K."""
    y = x0
    x_hat = np.zeros_like(x0)
    for r, clients in enumerate(rounds):
        K = len(clients[0][1])
        y_bar = [np.zeros_like(y) for _ in range(K + 1)]
        for weight, grads in clients:
            y_m = y
            for k in range(K):
                x_m = psi.prox(y_m, client_step_size * (r * K + k))
                y_m = y_m - client_step_size * grads[k](x_m)
                y_bar[k + 1] += weight * y_m
        for k in range(1, K + 1):
            x_hat += psi.prox(y_bar[k], client_step_size * (r * K + k)) / (K * len(rounds))
        y = y_bar[K]
    return x_hat
