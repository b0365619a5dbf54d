"""Bad strengths, shapes and labels: who, what it got, what would work."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlocal import regularizers as R

V, W = jnp.ones(3), jnp.ones((3, 2))
CALLS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "l2_norm": (lambda: R.L2Norm(-1), ("L2Norm: strength must be >= 0", "-1")),
    "elastic_net_l1": (lambda: R.ElasticNet(-1, 0.0), ("ElasticNet: l1 must be >= 0", "-1")),
    "elastic_net_l2": (lambda: R.ElasticNet(1, "x"), ("ElasticNet: l2 must be >= 0", "'x'")),
    "group_l1": (lambda: R.GroupL1(np.array([1.0, -2.0])), ("GroupL1: strength must be >= 0", "-2")),
    "group_l1_labels": (lambda: R.GroupL1(1.0, [0, -1]), ("GroupL1: groups must be whole numbers >= 0", "-1")),
    "group_l1_fractions": (lambda: R.GroupL1(1.0, [0.5]), ("GroupL1: groups must be whole numbers", "float64")),
    "group_l1_no_labels": (lambda: R.GroupL1(1.0, []), ("GroupL1: groups must be whole numbers", "none")),
    "group_l1_shape": (lambda: R.GroupL1(1.0, [0, 1]).prox(V, 1.0), ("GroupL1", "(2,)", "(3,)")),
    "group_l1_strengths": (lambda: R.GroupL1(np.ones(2)).prox(W, 1.0), ("GroupL1", "one per group (3)", "(2,)")),
    "group_l1_on_a_number": (lambda: R.GroupL1(1.0).prox(jnp.ones(()), 1.0), ("GroupL1", "a number", "Blocks")),
    "linf": (lambda: R.LInf(np.inf), ("LInf: strength must be >= 0", "inf")),
    "lp": (lambda: R.Lp(-1, 2), ("Lp: strength must be >= 0", "-1")),
    "lp_p": (lambda: R.Lp(1.0, 0.5), ("Lp: p must be >= 1", "0.5")),
    "lp_p_traced": (
        lambda: jax.jit(lambda p: R.Lp(1.0, p).value(V))(2.0),
        ("Lp: p must be known", "vary the strength"),
    ),
    "total_variation": (lambda: R.TotalVariation(-1), ("TotalVariation: strength must be >= 0", "-1")),
    "total_variation_on_a_matrix": (
        lambda: R.TotalVariation(1.0).prox(W, 1.0),
        ("TotalVariation", "vectors", "(3, 2)"),
    ),
    "monotone_on_a_matrix": (lambda: R.Monotone().prox(W, 1.0), ("Monotone", "vectors", "(3, 2)", "Blocks")),
    "monotone_direction": (lambda: R.Monotone("down"), ("Monotone: increasing must be a bool", "'down'")),  # pyright: ignore[reportArgumentType]
    "linf_ball": (lambda: R.LInfBall(0), ("LInfBall: radius must be > 0", "got 0")),
    "nuclear_ball": (lambda: R.NuclearBall(-1), ("NuclearBall: radius must be > 0", "-1")),
    "nuclear_ball_on_a_vector": (lambda: R.NuclearBall(1.0).prox(V, 1.0), ("NuclearBall", "matrices", "(3,)")),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_says_who_what_and_what_would_work(name: str):
    call, words = CALLS[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert len(message) < 250


def test_checks_skip_traced_values():
    def value(strength: jax.Array) -> jax.Array:
        x = jnp.ones((2, 2))
        all_of_them = (
            R.L2Norm(strength),
            R.GroupL1(strength),
            R.LInf(strength),
            R.Lp(strength, 3),
            R.Nuclear(strength),
        )
        return sum((psi.value(x) for psi in all_of_them), R.ElasticNet(strength, strength).value(x))

    assert np.isfinite(jax.jit(value)(0.5))
