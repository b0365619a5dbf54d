"""What a site refuses: nothing that a server sends is executed, and no answer of a site quotes its data."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from conformance.cases import CASES
from fedlocal.flower import Policy, TooFewSites, client_app
from fedlocal.flower.messages.grids import _through_bytes
from fedlocal.flower.site import app
from unit.flower.flower_sites import FULL, NAMES, PROBLEM, Sites, app_of, config_of, configuration, node, strategy

CASE = CASES["fed_mid_l1"]


@pytest.fixture(scope="module")
def serializer() -> dict[str, Message]:
    """A message of each kind as an honest server sends it."""
    grid = Sites()
    strategy(CASE, 1, **FULL).start(grid, timeout=5.0)
    return {message.metadata.message_type: message for message in grid.questions}


def _config(**values: Any) -> Callable[[RecordDict], None]:
    """Change plain values; None takes one away."""

    def change(content: RecordDict) -> None:
        for name, value in values.items():
            if value is None:
                del content["config"][name.replace("__", ".")]
            else:
                content["config"][name.replace("__", ".")] = value

    return change


def _weights(array: Array) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.array_records["arrays"]["x/weights"] = array

    return change


def _set(name: str, record: Any) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content[name] = record

    return change


def _without(name: str) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        del content[name]

    return change


GENERAL = "the log of the site says more"
TRAIN: dict[str, tuple[Callable[[RecordDict], None], str]] = {
    "a class that nobody knows": (_config(method="os.system"), "which is not known here"),
    "a class that is no method": (_config(method="L1"), "rebuild:"),
    "a class of Python": (_config(method="object"), "which is not known here"),
    "no method": (_config(method=None), "missing"),
    "an argument less": (_config(method__client_step_size=None), "missing"),
    "an argument more": (_config(method__shell="rm"), "unknown"),
    "an argument of another kind": (_config(method__client_step_size="0.1"), "rebuild"),
    "an argument that is a list": (_config(method__client_step_size=[0.1]), "rebuild"),
    "an argument that cannot be": (_config(method__client_step_size=-1.0), "client_step_size must be > 0"),
    "no format": (_config(settings__format=None), "the round's settings have another format than 1"),
    "another format": (_config(settings__format=2), "the round's settings have another format than 1"),
    "no round": (_config(settings__round=None), "the round's settings have no proper 'round'"),
    "no seed": (_config(settings__seed=None), "the round's settings have no proper 'seed'"),
    "no client": (_config(settings__client=None), "the round's settings have no proper 'client'"),
    "a field more": (_config(settings__command="ls"), "the round's settings have no proper 'command'"),
    "a round that is text": (_config(settings__round="1"), "round of the round's settings is '1'"),
    "a negative round": (_config(settings__round=-1), "round of the round's settings is -1"),
    "a seed too large": (_config(settings__seed=2**40), "seed of the round's settings is"),
    "no steps at all": (_config(settings__local_steps=None), "give either local_steps or local_epochs"),
    "no such weights": (_config(settings__weights="secret"), "weights must be one of"),
    "another shape": (_weights(Array(np.zeros((3, 2)))), "the model does not fit this site's data"),
    "another type": (_weights(Array(np.zeros((2, 3), np.float32))), "the model does not fit this site's data"),
    "nan": (_weights(Array(np.full((2, 3), np.nan))), "nan or inf in x/weights"),
    "inf": (_weights(Array(np.full((2, 3), np.inf))), "nan or inf in x/weights"),
    "more bytes than it says": (_weights(Array("float64", (2, 3), "numpy.ndarray", b"0" * 10_000)), GENERAL),
    "an enormous shape": (_weights(Array("float64", (2**40,), "numpy.ndarray", b"0")), GENERAL),
    "objects": (_weights(Array("object", (2, 3), "numpy.ndarray", b"0")), GENERAL),
    "garbage": (_weights(Array("float64", (2, 3), "numpy.ndarray", b"0" * 50)), GENERAL),
    "another serialisation": (_weights(Array("float64", (2, 3), "pickle", b"0" * 50)), GENERAL),
    "an array more": (
        lambda content: content.array_records["arrays"].update({"more": Array(np.zeros(2))}),
        "arrays are called",
    ),
    "no arrays": (_without("arrays"), GENERAL),
    "no plain values": (_without("config"), GENERAL),
    "arrays twice": (_set("more", ArrayRecord({"x": Array(np.zeros(2))})), GENERAL),
    "plain values twice": (_set("more", ConfigRecord({"a": 1})), GENERAL),
    "a number less": (_config(number__walked=None), "numbers are called"),
    "a number more": (_config(number__more=1.0), "numbers are called"),
    "a number that is nan": (_config(number__walked=float("nan")), "nan or inf in walked"),
    "a number that is text": (_config(number__walked="John"), "is not a number"),
}


def _answer(payload: Message, change: Callable[[RecordDict], None]) -> Message:
    message, _ = _through_bytes(payload)
    change(message.content)
    return app_of()(message, node(1, "a", 0))


@pytest.mark.parametrize("what", TRAIN)
def test_a_wrong_request_to_train_is_refused(
    what: str, serializer: dict[str, Message], monkeypatch: pytest.MonkeyPatch
):
    worked = []
    monkeypatch.setattr(app, "local_round", lambda *arguments: worked.append(arguments))
    change, why = TRAIN[what]
    reply = _answer(serializer[MessageType.TRAIN], change)
    assert reply.has_error()
    assert why in str(reply.error.reason)
    assert worked == []


def test_the_request_itself_is_fine(serializer: dict[str, Message]):
    """So that the test above fails for the reason it gives."""
    assert not _answer(serializer[MessageType.TRAIN], lambda content: None).has_error()
    assert not _answer(serializer[MessageType.EVALUATE], lambda content: None).has_error()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["arrays"].update({"x/weights": Array(np.zeros((3, 2)))}),
        lambda content: content["arrays"].update({"more": Array(np.zeros(2))}),
        lambda content: content["arrays"].update({"x/weights": Array("float64", (2, 3), "pickle", b"0" * 99)}),
        _without("arrays"),
        _without("config"),
    ],
)
def test_a_wrong_request_to_evaluate_is_refused(change: Any, serializer: dict[str, Message]):
    reply = _answer(serializer[MessageType.EVALUATE], change)
    assert reply.has_error()
    fits = "the model does not fit this site's data" in str(reply.error.reason)
    assert fits or reply.error.reason == f"ValueError; {GENERAL}"


def test_a_site_that_gives_no_moments_says_so():
    question = Message(RecordDict({"config": ConfigRecord({"moments": True})}), 1, MessageType.QUERY)
    reply = app_of()(_through_bytes(question)[0], node(1, "a", 0))
    assert reply.error.reason == "this site gives no moments; client_app needs moments_for_node"


def test_a_problem_of_several_clients_is_refused():
    with pytest.raises(TooFewSites, match="a problem of one client, got 3 clients"):
        strategy(CASE, 1, patience=0.05, **FULL).start(
            Sites(client_app(lambda context: PROBLEM, policy=Policy.open())), timeout=0.2
        )
    with pytest.raises(TooFewSites, match="a problem of one client, got NoneType"):
        strategy(CASE, 1, patience=0.05, **FULL).start(
            Sites(client_app(lambda context: None, policy=Policy.open())),  # pyright: ignore[reportArgumentType]
            timeout=0.2,
        )


SECRET = "John Smith"


def _bad_row(*arguments: Any) -> Any:
    raise ValueError(f'could not convert string to float: "{SECRET}"')


def _leaks(grid: Sites, run: Any) -> bool:
    said = " ".join(event.what for event in run.events)
    return any(SECRET.encode() in content for content in grid.sent) or SECRET in said


@pytest.mark.parametrize("where", ["problem", "moments", "evaluate", "modifier"])
def test_an_error_that_quotes_data_stays_at_the_site(where: str, caplog: pytest.LogCaptureFixture):
    logging.getLogger("fedlocal").setLevel(logging.ERROR)
    app = {
        "problem": lambda: client_app(_bad_row),
        "moments": lambda: app_of(moments_for_node=_bad_row),
        "evaluate": lambda: app_of(evaluate=_bad_row),
        "modifier": lambda: app_of(mods=[_bad_row]),
    }[where]()
    grid = Sites(app)
    run = strategy(CASE, 1, patience=0.05, standardize=where == "moments", **FULL)
    if where == "evaluate":
        run.start(grid, timeout=0.2)
        assert run.history == []
    else:
        with pytest.raises((TooFewSites, ValueError), match=r"gave up after waiting") as caught:
            run.start(grid, timeout=0.2)
        assert SECRET not in str(caught.value)
    assert not _leaks(grid, run)
    assert any(b"ValueError; the log of the site says more" in content for content in grid.sent)
    assert SECRET in caplog.text  # the site's own log says what it was


def test_the_configuration_of_a_site_stays_there():
    grid = Sites(sites={name: {**configuration()[name], "data": f"/home/{SECRET}/x.csv"} for name in NAMES})
    run = strategy(CASE, 2, **FULL)
    run.start(grid, timeout=5.0)
    assert not _leaks(grid, run)
    assert config_of(grid.asked(MessageType.TRAIN)[0])["settings.client"] == 0
