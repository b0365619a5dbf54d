"""What is loaded equals what was saved to the bit; files that hold something else are refused in one sentence."""

import io
import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from hypothesis import given, settings

import fedlocal as fl
from conformance.cases import CASES, Case
from conformance.federation import federation, start
from fedlocal.methods.fed_avg import AvgState
from fedlocal.simulation.saved.results import save_result
from fedlocal.util.hashing import fingerprint

METHOD = fl.methods.FedDualAvg(0.05, 0.7, fl.regularizers.L1(0.3))
SAMPLING: dict[str, Any] = {"local_epochs": 1, "batch_size": 3, "clients_per_round": 3, "progress": False}
GRID = {"client_step_size": [0.01, 0.02, 1e60], "server_step_size": [0.5, 1.0]}


def run(method: fl.LocalMethod = METHOD, **arguments: Any) -> fl.Result:
    return fl.simulate(federation(), method, **{"rounds": 3, **SAMPLING, **arguments})


@cache
def a_sweep() -> fl.SweepResult:
    with pytest.warns(fl.DivergenceWarning):
        return fl.sweep(federation(), METHOD, GRID, rounds=3, **SAMPLING)


def same_leaves(a: Any, b: Any) -> bool:
    """The same bits, types and shapes, whatever holds them."""
    pairs = list(zip(map(np.asarray, jax.tree.leaves(a)), map(np.asarray, jax.tree.leaves(b)), strict=True))
    return all(p.dtype == q.dtype and p.shape == q.shape and p.tobytes() == q.tobytes() for p, q in pairs)


def check_same(loaded: Any, saved: fl.Result) -> None:
    for name in ("x", "server", "shadow_points"):
        a, b = getattr(loaded, name), getattr(saved, name)
        assert jax.tree.structure(a) == jax.tree.structure(b), name
        assert same_leaves(a, b), name
    pd.testing.assert_frame_equal(loaded.history, saved.history, check_exact=True)
    assert (loaded.shadow is None) == (saved.shadow is None)
    if saved.shadow is not None:
        pd.testing.assert_frame_equal(loaded.shadow, saved.shadow, check_exact=True)
    assert loaded.diverged == saved.diverged
    assert loaded.provenance == saved.provenance
    assert eqx.tree_equal(loaded.plan, saved.plan)
    assert eqx.tree_equal(loaded.method, saved.method)
    assert repr(loaded) == repr(saved)


def kept(result: Any, folder: Path, **arguments: Any) -> Any:
    result.save(folder / "new" / "run.npz")
    return fl.load(folder / "new" / "run.npz", **arguments)


@pytest.mark.parametrize("name", CASES)
def test_every_method_comes_back(name: str, tmp_path: Path):
    case: Case = CASES[name]
    saved = run(case.method, x0=start(case.positive), rounds=1)
    check_same(kept(saved, tmp_path), saved)


def test_single_precision_comes_back(tmp_path: Path):
    x0 = {"weights": np.zeros((2, 3), np.float32), "intercept": np.float32(0)}
    saved = run(x0=x0)
    assert saved.x["weights"].dtype == np.float32
    check_same(kept(saved, tmp_path), saved)


def test_a_plan_in_double_precision_is_not_rounded_in_a_process_with_single_precision(tmp_path: Path):
    saved = run(weights="examples")
    saved.save(tmp_path / "run.npz")
    with jax.enable_x64(False):
        loaded = fl.load(tmp_path / "run.npz")
    assert loaded.plan.mean_weights.dtype == np.float64
    assert loaded.plan.client_weights().tolist() == saved.plan.client_weights().tolist()
    assert loaded.x["weights"].tobytes() == saved.x["weights"].tobytes()


def test_the_plan_says_who_took_part_and_draws_the_same(tmp_path: Path):
    saved = run()
    loaded = kept(saved, tmp_path)
    assert [loaded.plan.cohort(r).tolist() for r in range(70)] == [saved.plan.cohort(r).tolist() for r in range(70)]
    rows = [result.plan.draws(result.plan.round_key(1), jnp.asarray(3)).rows for result in (loaded, saved)]
    assert rows[0].tolist() == rows[1].tolist()


def test_shadow_and_divergence_come_back(tmp_path: Path):
    shadowed = run(local_epochs=None, local_steps=2, shadow=fl.Shadow(points=True))
    check_same(kept(shadowed, tmp_path), shadowed)
    with pytest.warns(fl.DivergenceWarning):
        diverged = run(fl.methods.FedAvg(1e60), local_epochs=None, local_steps=3)
    assert diverged.diverged is not None
    check_same(kept(diverged, tmp_path), diverged)


def test_columns_of_ints_missing_values_and_text_come_back(tmp_path: Path):
    saved = run()
    n = len(saved.history)
    history = saved.history.assign(
        whole=pd.array([1, None, 3, 4], "Int64"),
        unsigned=pd.array([1, None, 3, 255], "UInt8"),
        rare=pd.array([0.5, None, np.nan, 1e-300], "Float32"),
        fine=pd.array([True, None, False, True], "boolean"),
        small=np.arange(n, dtype=np.int8),
        flag=np.arange(n) > 1,
        text=["a", "b", None, ""],
        mixed=pd.Series(["a", 1, np.float64(0.1), pd.NA], dtype=object),
        holes=[1.0, np.nan, -np.inf, -0.0],
    )
    saved = fl.Result(**{**vars(saved), "history": history.set_axis([3, 5, 7, 9])})
    loaded = kept(saved, tmp_path)
    pd.testing.assert_frame_equal(loaded.history, saved.history, check_exact=True)
    assert loaded.history["holes"].to_numpy().tobytes() == saved.history["holes"].to_numpy().tobytes()
    assert [type(v) for v in loaded.history["mixed"]] == [type(v) for v in saved.history["mixed"]]


class Layer(eqx.Module):
    weights: jax.Array
    bias: jax.Array
    activation: Callable[..., Any] = eqx.field(static=True, default=jnp.tanh)


def test_parameters_of_every_structure_come_back(tmp_path: Path):
    data = fl.FederatedData.from_clients([(np.ones((2, 3)), np.zeros(2))])
    problem = fl.Problem(lambda x, a, b: sum(jnp.sum(w) for w in jax.tree.leaves(x)) ** 2 * (a @ a - b), data)
    x0 = {
        "a": [np.zeros(2), (np.ones((1, 2)), np.zeros(()))],
        "b": {"c/d": np.ones(3)},
        "b/c": {"d": np.zeros(1)},
        7: 1.0,
    }
    x0 = {str(key): value for key, value in x0.items()}
    saved = fl.simulate(problem, fl.methods.FedAvg(1e-6), rounds=2, local_steps=1, x0=x0, progress=False)
    check_same(kept(saved, tmp_path), saved)


def test_an_unknown_class_of_parameters_comes_back_as_a_named_tuple_of_its_fields(tmp_path: Path):
    data = fl.FederatedData.from_clients([(np.ones((2, 3)), np.zeros(2))])
    problem = fl.Problem(lambda layer, a, b: (layer.activation(a @ layer.weights) + layer.bias - b) ** 2, data)
    layer = Layer(jnp.ones(3), jnp.zeros(()))
    results = [
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=2, local_steps=1, x0=layer, seed=seed, progress=False)
        for seed in (0, 1)
    ]
    first, second = (kept(result, tmp_path) for result in results)
    assert type(first.x).__name__ == "Layer"
    assert first.x._fields == ("weights", "bias", "activation")
    assert same_leaves((first.x.weights, first.x.bias), results[0].x)
    assert "tanh" in first.x.activation
    assert type(first.x) is type(second.x)


def test_an_optax_optimizer_is_kept_as_text_and_its_state_as_named_tuples(tmp_path: Path):
    method = fl.methods.FedAvg(0.05, server_optimizer=optax.adam(0.1, mu_dtype=jnp.bfloat16))
    saved = run(method)
    loaded = kept(saved, tmp_path, problem=federation())
    assert loaded.method is None
    ((lost),) = loaded.provenance["methods not restored"]
    assert lost["method"] == str(method)
    assert "optimiser" in lost["because"]
    assert type(loaded.server) is AvgState
    assert loaded.server.optimizer[0]._fields == saved.server.optimizer[0]._fields
    assert loaded.server.optimizer[0].mu["weights"].dtype == jnp.bfloat16
    assert same_leaves(loaded.server, saved.server)
    with pytest.raises(ValueError, match=r"certificate: the result was loaded without its method.* fl\.certificate"):
        loaded.certificate()
    again = kept(loaded, tmp_path)
    assert again.method is None
    assert again.provenance == loaded.provenance


class Mine(fl.methods.FedAvg):
    pass


def test_a_class_of_ones_own_is_kept_as_text_that_says_what_to_do(tmp_path: Path):
    loaded = kept(run(Mine(0.05, 1.0)), tmp_path)
    assert loaded.method is None
    ((lost),) = loaded.provenance["methods not restored"]
    assert lost["method"].startswith("Mine(")
    assert "register(Mine)" in lost["because"]


def test_the_problem_is_checked(tmp_path: Path):
    saved = run()
    alone = kept(saved, tmp_path)
    words = (
        r"certificate: the result was loaded without its problem, a MatrixSensing; give it to fl.load\(path, problem"
    )
    with pytest.raises(ValueError, match=words):
        alone.certificate()
    assert alone.problem.fingerprint == fingerprint(federation())
    loaded = kept(saved, tmp_path, problem=federation())
    assert loaded.certificate() == saved.certificate()
    again = kept(alone, tmp_path, problem=federation())
    assert again.certificate() == saved.certificate()
    with pytest.raises(ValueError, match=r"load: .* is a result on a MatrixSensing \(\w+\), and problem is a .*; give"):
        kept(saved, tmp_path, problem=federation(seed=1))
    with pytest.raises(TypeError, match="load: problem must be a AbstractProblem, got 3"):
        kept(saved, tmp_path, problem=3)


def test_a_sweep_comes_back(tmp_path: Path):
    saved = a_sweep()
    loaded = kept(saved, tmp_path, problem=federation())
    assert isinstance(loaded, fl.SweepResult)
    assert repr(loaded) == repr(saved)
    pd.testing.assert_frame_equal(loaded.cells, saved.cells, check_exact=True)
    pd.testing.assert_frame_equal(loaded.history, saved.history, check_exact=True)
    assert loaded.best("loss", "last") == saved.best("loss", "last")
    for i in range(len(saved.cells)):
        check_same(loaded.cell(i), saved.cell(i))
    assert loaded.cell(0).certificate() == saved.cell(0).certificate()
    cell = saved.cell(5)
    check_same(kept(cell, tmp_path), cell)


def test_a_sweep_over_server_optimizers_keeps_their_texts(tmp_path: Path):
    def method(rate: float) -> fl.LocalMethod:
        return fl.methods.FedAvg(0.05, server_optimizer=optax.sgd(rate)) if rate else fl.methods.FedAvg(0.05)

    saved = fl.sweep(federation(), method, {"rate": [0.0, 0.5]}, rounds=1, **SAMPLING)
    loaded = kept(saved, tmp_path)
    assert [type(m) for m in loaded.methods] == [fl.methods.FedAvg, type(None)]
    assert [lost["method"] for lost in loaded.provenance["methods not restored"]] == [str(saved.methods[1])]


def test_a_saved_result_is_the_same_file_every_time_and_opens_with_numpy(tmp_path: Path):
    saved = run()
    saved.save(tmp_path / "a")
    saved.save(str(tmp_path / "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b"]
    with np.load(tmp_path / "a", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["x/weights"], saved.x["weights"])
        np.testing.assert_array_equal(file["history/loss"], saved.history["loss"])


def test_what_cannot_be_saved_is_named_and_nothing_is_written(tmp_path: Path):
    whole = vars(run())
    dates = whole["history"].assign(when=pd.to_datetime(["2026-01-01"] * 4))
    with pytest.raises(TypeError, match="save: the column 'when' is of datetime64"):
        fl.Result(**{**whole, "history": dates}).save(tmp_path / "a")
    with pytest.raises(TypeError, match="save: server/0 is an array of object"):
        fl.Result(**{**whole, "server": (np.array([None]),)}).save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_os_error_and_a_folder_is_told(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        fl.load(tmp_path / "nothing.npz")
    with pytest.raises(ValueError, match="is not a saved result of fedlocal"):
        fl.load(tmp_path)


@cache
def parts() -> tuple[str, dict[str, np.ndarray]]:
    """The header and the arrays of a saved result."""
    buffer = io.BytesIO(content_of(run()))
    with np.load(buffer, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return str(arrays.pop("header")), arrays


def content_of(result: fl.Result | fl.SweepResult) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        written: list[bytes] = []
        patch.setattr(
            "fedlocal.simulation.saved.archive.write_atomically", lambda path, content: written.append(content)
        )
        save_result(result, "unused")
    return written[0]


def packed(header: str, arrays: dict[str, Any], pack: Callable[..., None] = np.savez) -> bytes:
    buffer = io.BytesIO()
    pack(buffer, header=np.asarray(header), **arrays)
    return buffer.getvalue()


def with_field(name: str, node: Any) -> bytes:
    """A saved result whose field of this name has another node."""
    header, arrays = parts()
    changed = json.loads(header)
    fields = dict(changed["content"]["object"][1])
    assert name in fields
    changed["content"]["object"][1] = list({**fields, name: node}.items())
    return packed(json.dumps(changed), arrays)


def with_header(**entries: Any) -> bytes:
    header, arrays = parts()
    return packed(json.dumps(json.loads(header) | entries), arrays)


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def single_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


FOREIGN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"round,loss\n0,1.0\n",
    "one array": single_array,
    "parts before its beginning": lambda: (whole := packed(*parts()))[:-6] + (1 << 24).to_bytes(4, "little") + whole[-2:],
    "a zip of text": lambda: zipped(readme=b"hello"),
    "a header of text": lambda: zipped(**{"header.npy": b"hello"}),
    "an array of objects as header": lambda: packed("{}", {}).replace(b"<U2", b"|O8"),
    "arrays of objects": lambda: packed(parts()[0], {**parts()[1], "x/weights": np.array([{}, None])}),
    "compressed arrays": lambda: packed(*parts(), np.savez_compressed),
    "no header": lambda: packed("", {}).replace(b"header", b"footer"),
    "arrays missing": lambda: packed(parts()[0], {}),
    "JSON that recurses": lambda: packed("[" * 100_000, {}),
    "a list": lambda: packed("[]", {}),
    "no content": lambda: packed('{"format": 1}', {}),
    "format true": lambda: with_header(format=True),
    "a later format": lambda: with_header(format=2),
    "content is a number": lambda: with_header(content=1),
    "content is a plan": lambda: with_header(content=dict(json.loads(parts()[0])["content"]["object"][1])["plan"]),
    "an unknown class": lambda: with_header(content={"object": ["Popen", [["args", "ls"]]]}),
    "an unknown kind": lambda: with_header(content={"pickle": "x/weights"}),
    "two kinds": lambda: with_header(content={"list": [], "tuple": []}),
    "fields missing": lambda: with_header(content={"object": ["Result", []]}),
    "history is a number": lambda: with_field("history", 3),
    "history is empty": lambda: with_field("history", {"frame": {"columns": [], "index": {"range": [0, 0, 1]}, "name": None}}),
    "provenance is a list": lambda: with_field("provenance", []),
    "plan is a dict": lambda: with_field("plan", {"dict": []}),
    "diverged is true": lambda: with_field("diverged", True),
    "the round of divergence is text": lambda: with_field(
        "diverged", {"object": ["Divergence", [["round", "1"], ["where", {"tuple": []}]]]}
    ),
    "where is a list of numbers": lambda: with_field(
        "diverged", {"object": ["Divergence", [["round", 1], ["where", {"tuple": [1]}]]]}
    ),
    "problem is text": lambda: with_field("problem", "LeastSquares"),
    "problem has no fingerprint": lambda: with_field("problem", {"problem": ["LeastSquares"]}),
    "fingerprint is a number": lambda: with_field("problem", {"problem": ["LeastSquares", 3]}),
    "method is a number": lambda: with_field("method", 3),
    "a key that is a list": lambda: with_field("x", {"dict": [[[], 1]]}),
    "a class with a bad name": lambda: with_field("x", {"record": ["a-b", []]}),
    "bad fields of our class": lambda: with_field("server", {"named tuple": ["AvgState", [["x", 1]]]}),
    "shadow is a record": lambda: with_field("shadow", {"record": ["A", [["class", 1]]]}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused_in_one_sentence(name: str, tmp_path: Path):
    path = tmp_path / "run.npz"
    path.write_bytes(FOREIGN[name]())
    with pytest.raises(ValueError, match=rf"^load: {path} is not a saved result of fedlocal \(.+\)$") as refused:
        fl.load(path)
    assert len(str(refused.value)) < 400 + len(str(path))
    assert "allow_pickle" not in str(refused.value)  # NumPy advises to load it unsafely


def test_a_description_that_is_no_method_is_a_method_that_was_not_restored(tmp_path: Path):
    node = {"method": {"values": {"dict": [["method", "os.system"]]}, "text": "a text"}}
    (tmp_path / "run.npz").write_bytes(with_field("method", node))
    loaded = fl.load(tmp_path / "run.npz")
    assert loaded.method is None
    ((lost),) = loaded.provenance["methods not restored"]
    assert lost["method"] == "a text"
    assert "'os.system', which is not known here" in lost["because"]


def test_a_truncated_file_is_refused(tmp_path: Path):
    whole, path = content_of(run()), tmp_path / "run.npz"
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a saved result of fedlocal"):
            fl.load(path)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_changed_bytes_are_refused_or_give_a_result(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path, content = tmp_path_factory.getbasetemp() / "changed.npz", bytearray(packed(*parts()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        found = fl.load(path)
    except ValueError as refusal:
        assert str(refusal).startswith(f"load: {path} is not a saved result of fedlocal (")  # noqa: PT017
    else:
        assert isinstance(found, fl.Result)
        assert len(found.history) == 4


SOME_SAMPLERS: dict[str, Any] = {
    "round_robin": "round_robin",
    "by_weight": "by_weight",
    "a function": lambda r: [r % 3, 3] if r != 2 else [],
    "availability": fl.samplers.Availability(np.eye(4)),
}


@pytest.mark.parametrize("name", SOME_SAMPLERS)
def test_the_clients_of_all_rounds_come_back_whoever_chose_them(name: str, tmp_path: Path):
    clients = [(np.ones((n, 2)), np.arange(n)) for n in (2, 3, 4, 2)]
    problem = fl.problems.LeastSquares(fl.FederatedData.from_clients(clients))
    count = None if name == "a function" else 2
    work: dict[str, Any] = {"rounds": 70, "local_steps": 1, "clients_per_round": count, "eval_every": 70}
    result = fl.simulate(problem, fl.methods.FedAvg(0.01), sampler=SOME_SAMPLERS[name], weights=[1, 2, 3, 4], **work)
    result.save(tmp_path / "run.npz")
    again = fl.load(tmp_path / "run.npz", problem)
    assert [again.plan.cohort(r).tolist() for r in range(70)] == [result.plan.cohort(r).tolist() for r in range(70)]
    assert (again.plan.client_weights() == result.plan.client_weights()).all()


def test_a_comparison_comes_back(tmp_path: Path):
    problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]], noise_std=0.1)
    methods = {"a": fl.methods.FedAvg(0.1), "b": fl.methods.FedAvg(lambda r: 0.1 / (1 + r))}
    work: dict[str, Any] = {"seeds": [3, 5], "rounds": 4, "local_steps": 2, "batch_size": 1, "clients_per_round": 1}
    result = fl.compare(problem, methods, **work)
    result.save(tmp_path / "compared.npz")
    again = fl.load(tmp_path / "compared.npz", problem)
    assert again.history.equals(result.history)
    assert again.summary("loss").equals(result.summary("loss"))
    assert [plan.cohort(2).tolist() for plan in again.plans] == [plan.cohort(2).tolist() for plan in result.plans]
    assert again.methods[0] == methods["a"]
    assert again.methods[2] is None  # a function is not kept
    assert "StepSizeSchedule" in again.provenance["methods not restored"][0]["method"]
