"""Every byte that leaves a site: sums over its rows and a few numbers, under names that are known."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MessageType

import fedlocal as fl
from conformance.cases import CASES, ETA
from conformance.federation import SHAPE
from fedlocal.data.moments import Moments, Scaling
from fedlocal.flower import Policy, client_app
from unit.flower.flower_sites import Sites, configuration, strategy

ROWS = 7
RNG = np.random.default_rng(11)
DATA = [(RNG.standard_normal((ROWS, *SHAPE)), 3 + RNG.standard_normal(ROWS)) for _ in range(3)]


def _moments(context: Any) -> Moments:
    return Moments.of(DATA[context.node_config["m"]][0].reshape(ROWS, -1))


def _problem(context: Any, scaling: Scaling | None = None) -> Any:
    features, labels = DATA[context.node_config["m"]]
    if scaling is not None:
        features = scaling.apply(features.reshape(ROWS, -1)).reshape(features.shape)
    return fl.problems.MatrixSensing(fl.FederatedData.from_clients([(features, labels)]))


APP = client_app(
    _problem,
    moments_for_node=_moments,
    evaluate=lambda context, x, *scaling: {"intercept-error": 0.25},
    policy=Policy.open(),
)


def _forms(number: float) -> Iterator[bytes]:
    """How a number may be written."""
    single = float(np.float32(number))
    yield struct.pack("<d", number)
    yield struct.pack(">d", number)
    yield struct.pack("<f", single)
    yield struct.pack("<d", single)
    yield repr(number).encode()
    yield repr(np.float32(number).item())[:9].encode() if abs(number) > 1e-3 else struct.pack("<d", number)
    yield f"{number:.12g}".encode()


def _found(numbers: Iterable[float], content: bytes) -> list[float]:
    return [number for number in numbers if any(form in content for form in _forms(float(number)))]


def _per_example(m: int, x: dict[str, np.ndarray], scaling: Scaling | None) -> Iterator[np.ndarray]:
    """What one row alone would give at a model: its residual, loss, gradients, and a step along them."""
    features, labels = DATA[m]
    if scaling is not None:
        features = scaling.apply(features.reshape(ROWS, -1)).reshape(features.shape)
    residuals = np.tensordot(features, x["weights"], 2) + x["intercept"] - labels
    gradients = 2 * residuals[:, None, None] * features
    yield residuals
    yield residuals**2
    yield 2 * residuals
    yield gradients.ravel()
    yield (x["weights"] - ETA * gradients).ravel()
    yield x["intercept"] - ETA * 2 * residuals
    yield np.cumsum(gradients, axis=0)[:-1].ravel()  # sums over some rows
    yield np.cumsum(labels)[:-1]


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", ["fed_avg", "minibatch_sgd"])
def test_no_row_leaves_a_site(name: str, standardize: bool, precision: Any):
    x0 = {"weights": np.full(SHAPE, 0.1, precision), "intercept": np.asarray(0.2, precision)}
    grid = Sites(APP, configuration())
    run = strategy(CASES[name], 1, x0=x0, local_steps=1, standardize=standardize)
    run.start(grid, timeout=5.0)
    content, scaling = b"".join(grid.sent), run.scaling()
    assert (scaling is not None) == standardize
    numbers = [np.concatenate([features.ravel(), labels]) for features, labels in DATA]
    for m in range(3):
        numbers += _per_example(m, x0, scaling)
        numbers += _per_example(m, run.solution(), scaling)
        if scaling is not None:
            numbers.append(scaling.apply(DATA[m][0].reshape(ROWS, -1)).ravel())
    assert _found(np.concatenate([np.asarray(n, np.float64) for n in numbers]), content) == []
    loss = next(_number(a, "loss") for q, a in _pairs(grid, MessageType.EVALUATE))
    assert _found([loss], content) == [loss]  # the search finds what is there


def _pairs(grid: Sites, kind: str) -> Iterator[tuple[Message, Message]]:
    for question, answer in zip(grid.questions, grid.answers, strict=True):
        if question.metadata.message_type == kind:
            yield question, answer


def _number(answer: Message, name: str) -> float:
    value = answer.content.metric_records["metrics"][name]
    assert isinstance(value, float)
    return value


def _names(answer: Message) -> dict[str, list[str]]:
    return {name: sorted(record) for name, record in answer.content.items()}


def test_only_known_names_leave_a_site():
    grid = Sites(APP, configuration())
    strategy(CASES["fed_mid_l1"], 2, eval_every=1, local_steps=1, standardize=True).start(grid, timeout=5.0)
    hello = {
        "config": ["fingerprint", "names", "shape.intercept", "shape.weights", "site", "states-left"],
        "metrics": ["num-examples"],
    }
    moments = {"arrays": ["mean", "present", "squares"], "config": ["site"]}
    train = {
        "arrays": ["x/intercept", "x/weights"],
        "metrics": ["num-examples", "walked", "weight"],
        "config": ["method", "round", "site"],
    }
    evaluate = {
        "arrays": ["intercept", "weights"],
        "config": ["kind"],
        "metrics": ["intercept-error", "loss", "num-examples", "weight"],
    }
    assert [_names(answer) for _, answer in _pairs(grid, MessageType.QUERY)] == [hello] * 3 + [moments] * 3
    assert [_names(answer) for _, answer in _pairs(grid, MessageType.TRAIN)] == [train] * 6
    assert [_names(answer) for _, answer in _pairs(grid, MessageType.EVALUATE)] == [evaluate] * 6
    for _, answer in _pairs(grid, MessageType.TRAIN):
        assert answer.content.config_records["config"]["site"] in ("a", "b", "c")
        assert answer.content["metrics"]["num-examples"] == ROWS
        assert answer.content["metrics"]["weight"] == 1.0


def test_what_arrives_is_what_was_sent():
    """`sent` has all answers: their arrays are found in it."""
    grid = Sites(APP, configuration())
    strategy(CASES["fed_avg"], 1, local_steps=1).start(grid, timeout=5.0)
    content = b"".join(grid.sent)
    for _, answer in _pairs(grid, MessageType.TRAIN):
        assert all(array.data in content for array in answer.content.array_records["arrays"].values())
