"""The functions with which the text proves its lower bounds, as problems that can be run."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from fedlocal.core import Scalar
from fedlocal.problems.oracle import Oracle, piecewise_quadratic
from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.lower import lower_bound_curvature
from fedlocal.util import checks

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)  # for phi near 0, where its closed form cancels


def lower_bound_instance(constants: Constants, setting: Setting) -> Oracle:
    r"""The four-dimensional problem on which FedAvg is slow with every step size. With x = (x_1, ..., x_4), client m has

        F_m(x) = L/24 psi(x_1) + mu/2 x_2^2 + L/2 x_3^2 + F_m^(4)(x_4),

    psi(x) = x^2 for x >= 0 and x^2/2 for x < 0, mu that of `lower_bound_curvature`, F_m^(4) those of `heterogeneous_instance`
    with zeta_*, and noise N(0, sigma^2) on the first coordinate of the gradient alone. The start is (0, B/2, B/2, 0), the
    optimum 0.

    Reference: dissertation, equations fedavg:lb:f to fedavg:lb:f4. Differs from it: without heterogeneity the fourth part is
    that of the average client for all of them; the text's has two curvatures even then, so it is not homogeneous.

    >>> constants = Constants(smoothness=1.0, noise=1.0, distance=1.0, heterogeneity=None, optimum_heterogeneity=0.5)
    >>> problem = lower_bound_instance(constants, Setting(clients=2, rounds=64, local_steps=8))
    >>> problem.init(jax.random.key(0)).tolist()
    [0.0, 0.5, 0.5, 0.0]
    >>> [problem.full_gradient(jnp.zeros(4), m).tolist() for m in (0, 1)]
    [[0.0, 0.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.5]]
    """
    zeta = constants.known("lower_bound_instance", "optimum_heterogeneity")
    slopes, curvatures = _fourth_part("lower_bound_instance", constants.smoothness, zeta, setting.clients)
    start = jnp.array([0.0, constants.distance / 2, constants.distance / 2, 0.0])
    mu = lower_bound_curvature(constants, setting)
    return Oracle(
        Partial(_four_parts, constants.smoothness, mu, slopes, curvatures),
        noise=Partial(_first_coordinate, constants.noise),
        num_clients=setting.clients,
        init_fn=Partial(_given, start),
    )


def piecewise_instance(smoothness: Scalar, noise: Scalar) -> Oracle:
    r"""F(x) = L/2 psi(x), psi(x) = x^2 for x >= 0 and x^2/2 for x < 0, with noise N(0, sigma^2): SGD drifts to the left of 0.

    Reference: dissertation, equation psi. Differs from it: nothing.

    >>> [float(piecewise_instance(2.0, 0.1).value(jnp.array(x), 0)) for x in (2.0, -2.0)]
    [4.0, 2.0]
    """
    return piecewise_quadratic(noise, right=smoothness / 2, left=smoothness / 4)


def log_cosh_instance(smoothness: Scalar, third_order: Scalar, noise: Scalar) -> Oracle:
    r"""F(x) = 3/8 L x^2 + L^3/(64 Q^2) phi(4 Q x / L), phi(x) = int_0^x log cosh, with noise U[-sigma, sigma].

    F'' lies in [L/2, L] and F''' in [0, Q], with F'''(0) = Q: the instance of the third-order lower bound on the bias.
    Reference: dissertation, equation def:fedavg:bias:3o:lb:instance. Differs from it: the noise is xi x, where the text adds xi
    itself, of which no gradient would know.

    >>> problem = log_cosh_instance(smoothness=1.0, third_order=0.5, noise=1.0)
    >>> round(float(problem.full_gradient(jnp.array(2.0), 0)), 6)
    1.913399
    """
    smooth = checks.number("log_cosh_instance", "smoothness", smoothness, above=0)
    third = checks.number("log_cosh_instance", "third_order", third_order, above=0)
    return Oracle(
        Partial(_log_cosh_value, smooth, third),
        gradient=Partial(_log_cosh_gradient, smooth, third),
        noise=Partial(_uniform, checks.number("log_cosh_instance", "noise", noise, at_least=0)),
        init_fn=Partial(_given, jnp.zeros(())),
    )


def heterogeneous_instance(smoothness: float, heterogeneity: float, clients: int) -> Oracle:
    r"""F_m(x) = L/8 x^2 - zeta x for odd m = 1, 3, ..., L/16 x^2 + zeta x for even m; no noise, start and optimum at 0.

    Reference: dissertation, equation fedavg:lb:f4. Differs from it: with zeta = 0 all clients have F_m = 3/32 L x^2.

    >>> heterogeneous_instance(8.0, 1.0, clients=2).full_gradient(jnp.array(1.0), 0).tolist()
    1.0
    """
    owner = "heterogeneous_instance"
    zeta = checks.number(owner, "heterogeneity", heterogeneity, at_least=0)
    smooth = checks.number(owner, "smoothness", smoothness, above=0)
    slopes, curvatures = _fourth_part(owner, smooth, zeta, checks.whole(owner, "clients", clients))
    value = Partial(_tilted, slopes, curvatures)
    return Oracle(value, num_clients=clients, init_fn=Partial(_given, jnp.zeros(())))


def heterogeneous_drift(smoothness: float, heterogeneity: float, step_size: float, setting: Setting) -> float:
    r"""Where FedAvg is on `heterogeneous_instance` after R rounds from 0: x^(R,0) = (1 - a^R)/(1 - a) b zeta, with

        a = (q^K + p^K)/2,   b = 2/L (1 - q^K) - 4/L (1 - p^K),   q = 1 - eta L/4,   p = 1 - eta L/8.

    Hence F^(4)(x^(R,0)) = 3/32 L x^2 is of the order zeta^2/L min{1, (eta L K)^2, (eta L K)^4 R^2} for eta <= 2/L.
    Reference: dissertation, lemma fedavg:lb:f4 and its proof. Differs from it: the square of the lemma's first inequality has
    (eta L K)^2 as its middle term, where its second one has eta L K.

    >>> round(heterogeneous_drift(1.0, 1.0, 1.0, Setting(clients=2, rounds=1, local_steps=2)), 12)
    -0.0625
    """
    smooth, steps = smoothness, setting.local_steps
    near, far = _lost(step_size * smooth / 4, steps), _lost(step_size * smooth / 8, steps)
    left, b = (near + far) / 2, 2 / smooth * near - 4 / smooth * far  # left: 1 - a
    return b * heterogeneity * _lost(left, setting.rounds) / left if step_size > 0 else 0.0


def _lost(part: float, times: int) -> float:
    """1 - (1 - part)^times, accurate for small parts."""
    return -math.expm1(times * math.log1p(-part)) if part < 1 else 1 - (1 - part) ** times


def _fourth_part(owner: str, smoothness: float, zeta: float, clients: int) -> tuple[jax.Array, jax.Array]:
    """Slopes at 0 and second derivatives of the fourth coordinate, of the clients m = 1, 3, ... and of the others."""
    if zeta == 0:
        return jnp.zeros(2), jnp.full(2, 3 * smoothness / 16)
    if clients % 2:
        raise ValueError(f"{owner}: clients must be even where there is heterogeneity, got {clients}")
    return jnp.array([-zeta, zeta]), jnp.array([smoothness / 4, smoothness / 8])


def _four_parts(
    smoothness: Scalar, mu: Scalar, slopes: jax.Array, curvatures: jax.Array, x: jax.Array, client: jax.Array
) -> jax.Array:
    psi = jnp.where(x[0] >= 0, 1.0, 0.5) * x[0] ** 2
    quadratic = mu / 2 * x[1] ** 2 + smoothness / 2 * x[2] ** 2
    return smoothness / 24 * psi + quadratic + _tilted(slopes, curvatures, x[3], client)


def _tilted(slopes: jax.Array, curvatures: jax.Array, x: jax.Array, client: jax.Array) -> jax.Array:
    return curvatures[client % 2] / 2 * x**2 + slopes[client % 2] * x


def _first_coordinate(noise: Scalar, key: jax.Array, x: jax.Array, client: jax.Array) -> jax.Array:
    return jnp.zeros_like(x).at[0].set(noise * jax.random.normal(key, dtype=x.dtype))


def _uniform(noise: Scalar, key: jax.Array, x: jax.Array, client: jax.Array) -> jax.Array:
    return noise * jax.random.uniform(key, x.shape, x.dtype, -1.0, 1.0)


def _given(start: jax.Array, key: jax.Array) -> jax.Array:
    return start


def _log_cosh_value(smoothness: Scalar, third_order: Scalar, x: jax.Array, client: jax.Array) -> jax.Array:
    scale = 4 * third_order / smoothness
    return 3 / 8 * smoothness * x**2 + smoothness / (4 * scale**2) * _phi(scale * x)


def _log_cosh_gradient(smoothness: Scalar, third_order: Scalar, x: jax.Array, client: jax.Array) -> jax.Array:
    scale = 4 * third_order / smoothness
    return 3 / 4 * smoothness * x + smoothness / (4 * scale) * _log_cosh(scale * x)


def _log_cosh(x: jax.Array) -> jax.Array:
    """Accurate near 0, where it is x^2/2, and without overflow far from it, where it is |x| - log 2."""
    near = jnp.log1p(2 * jnp.sinh(jnp.clip(x, -1, 1) / 2) ** 2)
    far = jnp.abs(x) - jnp.log(2.0) + jnp.log1p(jnp.exp(-2 * jnp.abs(x)))
    return jnp.where(jnp.abs(x) < 1, near, far)


@jax.custom_jvp
def _phi(x: jax.Array) -> jax.Array:
    """int_0^x log cosh: by Gauss-Legendre where |x| < 1; else, an odd function, x^2/2 - x log 2 + Li2(-e^(-2x))/2 + pi^2/24."""
    inside = jnp.clip(x, -1, 1)
    points = _log_cosh(inside[..., None] * (1 + NODES) / 2)
    near = inside / 2 * jnp.sum(jnp.asarray(WEIGHTS, points.dtype) * points, axis=-1)
    size = jnp.maximum(jnp.abs(x), 1)
    dilogarithm = jax.scipy.special.spence(1 + jnp.exp(-2 * size))
    far = jnp.sign(x) * (size**2 / 2 - size * jnp.log(2.0) + dilogarithm / 2 + jnp.pi**2 / 24)
    return jnp.where(jnp.abs(x) < 1, near, far)


@_phi.defjvp
def _phi_derivative(points: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return _phi(*points), _log_cosh(*points) * tangents[0]
