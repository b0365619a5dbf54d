"""Agreement: a run's settings are those of the site's copy of the app, or inside what its policy allows."""

from dataclasses import replace
from typing import Any

import pytest

import fedlocal as fl
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.site.policy import Agreement, Policy, Refused
from fedlocal.methods import method_spec

METHOD = fl.methods.FedDualAvg(0.1, 1.0, fl.regularizers.L1(0.02))
CONFIG = {"local-steps": 4, "batch-size": 16, "weights": "examples", "seed": 3, "rounds": 50}
SETTINGS = RoundSettings(round=2, client=1, seed=3, weights="examples", local_steps=4, batch_size=16)
AGREED = Agreement(METHOD, CONFIG)


def check(
    method: fl.LocalMethod = METHOD, settings: RoundSettings = SETTINGS, allow: dict[str, Any] | None = None
) -> None:
    AGREED.check(Policy(allow=allow or {}), method_spec.describe(method), settings, None)


def test_what_was_agreed_on_passes_in_every_round():
    for r, client in ((0, 0), (2, 1), (10**6, 5)):
        check(settings=replace(SETTINGS, round=r, client=client))


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (fl.methods.FedDualAvg(0.2, 1.0, fl.regularizers.L1(0.02)), "client_step_size = 0.2"),
        (fl.methods.FedDualAvg(0.1, 1.0, fl.regularizers.L1(0.03)), "regularizer.strength = 0.03"),
        (fl.methods.FedDualAvg(0.1, 1.0, fl.regularizers.L1(0.02), prox_on_clients=False), "prox_on_clients = False"),
        (fl.methods.FedMiD(0.1, 1.0, fl.regularizers.L1(0.02)), "method = 'FedMiD'"),
        (fl.methods.FedAvg(0.1), "method = 'FedAvg'"),
    ],
)
def test_other_methods_are_refused_with_what_differs(method: fl.LocalMethod, name: str):
    with pytest.raises(Refused, match=f"the coordinator asks for {name}; this site's copy of the app says") as caught:
        check(method)
    assert caught.value.code == "settings"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local_steps", 5),
        ("batch_size", 8),
        ("batch_size", None),
        ("weights", "uniform"),
        ("seed", 4),
        ("local_epochs", 1),
    ],
)
def test_other_settings_are_refused(name: str, value: Any):
    with pytest.raises(Refused, match=rf"asks for {name} = {value!r}; this site's copy of the app says"):
        check(settings=replace(SETTINGS, **{name: value}))


def test_the_policy_allows_ranges_and_choices():
    other = fl.methods.FedDualAvg(0.2, 1.0, fl.regularizers.L1(0.02))
    check(other, allow={"client_step_size": (0.05, 0.2)})
    check(settings=replace(SETTINGS, seed=9), allow={"seed": (0, 10)})
    check(settings=replace(SETTINGS, weights="uniform"), allow={"weights": ["uniform"]})
    for allow in ({"client_step_size": (0.05, 0.19)}, {"client_step_size": ["0.2"]}, {"server_step_size": (0, 9)}):
        with pytest.raises(Refused, match=r"client_step_size = 0\.2"):
            check(other, allow=allow)
    with pytest.raises(Refused, match="seed = 11"):
        check(settings=replace(SETTINGS, seed=11), allow={"seed": (0, 10)})
    with pytest.raises(Refused, match="batch_size = None"):
        check(settings=replace(SETTINGS, batch_size=None), allow={"batch_size": (1, 100)})


def test_a_chosen_step_size_is_at_most_one_over_the_curvature():
    chosen = Agreement(METHOD, CONFIG, chosen_step_size=True)
    for size, fine in ((1e-3, True), (0.5, True), (0.5 * (1 + 1e-12), True), (0.5001, False), (float("nan"), False)):
        description = method_spec.describe(METHOD) | {"method.client_step_size": size}
        if fine:
            chosen.check(Policy(), description, SETTINGS, 0.5)
        else:
            with pytest.raises(Refused, match=r"client_step_size = .*at most 0.5, 1 / curvature here"):
                chosen.check(Policy(), description, SETTINGS, 0.5)
    more = method_spec.describe(METHOD) | {"method.client_step_size": 0.1, "method.server_step_size": 2.0}
    with pytest.raises(Refused, match=r"server_step_size = 2.0"):
        chosen.check(Policy(), more, SETTINGS, 0.5)
