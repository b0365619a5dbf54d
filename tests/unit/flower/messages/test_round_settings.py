"""A round's settings and the plan that a site makes of them: the part of the common plan that is the site's."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import ConfigRecord

import fedlocal as fl
from conformance.federation import SIZES, federation
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.simulation.plan import Plan, Sampling

SETTINGS = RoundSettings(round=3, client=2, seed=7, weights="examples", local_steps=4, batch_size=2)


def test_a_job_survives_a_record():
    for settings in (SETTINGS, RoundSettings(0, 0, 0, "uniform", local_epochs=2, batch_size=3, largest=12)):
        assert RoundSettings.from_config(dict(ConfigRecord(settings.to_config()).items())) == settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings.format": 2}, "the round's settings have another format than 1"),
        ({"settings.format": None}, "the round's settings have another format than 1"),
        ({"settings.round": None}, "no proper 'round'"),
        ({"settings.weights": None}, "no proper 'weights'"),
        ({"settings.more": 1}, "no proper 'more'"),
        ({"settings.round": True}, "round of the round's settings is True"),
        ({"settings.round": 1.0}, "round of the round's settings is 1.0"),
        ({"settings.seed": -1}, "seed of the round's settings is -1"),
        ({"settings.seed": 2**31}, "seed of the round's settings is 2147483648"),
        ({"settings.batch_size": [2]}, r"batch_size of the round's settings is \[2\]"),
        ({"settings.weights": 1}, "weights of the round's settings is 1"),
    ],
)
def test_a_wrong_job_is_named(change: dict[str, Any], words: str):
    config = {n: v for n, v in {**SETTINGS.to_config(), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=words):
        RoundSettings.from_config(config)


SAMPLINGS: list[dict[str, Any]] = [
    {"local_steps": 3, "batch_size": 2},
    {"local_steps": [1, 4, 2, 3, 5], "batch_size": 2},
    {"local_epochs": 2, "batch_size": 3},
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_site_draws_what_it_would_draw_among_all(sampling: dict[str, Any]):
    """Rows of the site's own data, counted from its first, and the same weights."""
    whole = federation()
    together = Plan.make(whole, Sampling(seed=5, **sampling))
    for m in (1, 3):
        steps = sampling.get("local_steps")
        own = {**sampling, "local_steps": steps[m] if isinstance(steps, list) else steps}
        settings = RoundSettings(1, m, 5, "uniform", **own, largest=max(SIZES) if "local_epochs" in sampling else None)
        alone = settings.plan(fl.problems.only(whole, m))
        assert int(alone.steps[0]) == int(together.steps[m])
        drawn, wanted = (
            alone.draws(alone.round_key(1), jnp.asarray(0)),
            together.draws(together.round_key(1), jnp.asarray(m)),
        )
        for k in range(int(alone.steps[0])):
            one, other = alone.batch(drawn, jnp.asarray(0), k), together.batch(wanted, jnp.asarray(m), k)
            rows, common_rows = _counted(one), _counted(other)
            assert {row + sum(SIZES[:m]): weight for row, weight in rows.items()} == pytest.approx(common_rows)
            assert all(0 <= row < SIZES[m] for row in rows)


def _counted(batch: Any) -> dict[int, float]:
    """The weight of each row in a minibatch."""
    rows = np.asarray(batch.rows)
    weights = np.full(len(rows), 1 / len(rows)) if batch.weights is None else np.asarray(batch.weights)
    counted: dict[int, float] = {}
    for row, weight in zip(rows.tolist(), weights.tolist(), strict=True):
        if weight > 0:
            counted[row] = counted.get(row, 0.0) + weight
    return counted
