"""A killed run continues to the same bits; a checkpoint of another run is refused."""

import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

import fedlocal as fl
from conformance.federation import federation
from fedlocal.simulation import engines
from fedlocal.simulation.checkpoint import Checkpoint, write_atomically
from fedlocal.util import serialization
from fedlocal.util.hashing import fingerprint

METHOD = fl.methods.FedDualAvg(0.05, 0.7, fl.regularizers.L1(0.3))
SAMPLING: dict[str, Any] = {"local_epochs": 1, "batch_size": 3, "clients_per_round": 3, "eval_every": 10}

SCRIPT = """
import sys
import numpy as np
import fedlocal as fl
from fedlocal.simulation import driver

driver.SAVE_SECONDS = 0.0
data = fl.data.synthetic_lasso("III", seed=0, dimension=32)
for name in ("killed", "whole"):
    result = fl.simulate(
        fl.problems.LeastSquares(data), fl.methods.FedDualAvg(0.002, 1.0, fl.regularizers.L1(0.3)), rounds=300,
        eval_every=5, clients_per_round=8, local_epochs=1, batch_size=32, seed=1, checkpoint=f"{sys.argv[1]}/{name}",
        progress=False, metrics=[fl.metrics.ClientDiscrepancy()],
    )
    rows = result.history.drop(columns="seconds").to_numpy()
    np.savez(f"{sys.argv[1]}/{name}.npz", rows=rows, **result.x)
"""


def same_run(a: fl.Result, b: fl.Result) -> bool:
    columns = [c for c in a.history if c != "seconds"]
    same_x = all(np.array_equal(a.x[name], b.x[name]) for name in a.x)
    return same_x and a.history[columns].equals(b.history[columns])


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_run_killed_at_any_moment_resumes_to_the_same_bits(tmp_path: Path, times: int):
    """The process that is not killed ends the run, and makes it once more as a whole."""
    checkpoint, kills = tmp_path / "killed", 0
    for attempt in range(12):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)])
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        while process.poll() is None and (checkpoint.stat().st_mtime_ns if checkpoint.exists() else None) == before:
            time.sleep(0.005)
        time.sleep(0.02 + 0.03 * attempt)  # at another moment each time
        if attempt < times and process.poll() is None and not (tmp_path / "killed.npz").exists():
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.wait() == 0
        break
    assert kills == times
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as killed:
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], killed[name])


def test_more_rounds_continue_a_finished_run(tmp_path: Path):
    whole = fl.simulate(federation(), METHOD, rounds=40, **SAMPLING)
    fl.simulate(federation(), METHOD, rounds=20, checkpoint=tmp_path / "c", **SAMPLING)
    assert same_run(whole, fl.simulate(federation(), METHOD, rounds=40, checkpoint=tmp_path / "c", **SAMPLING))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"batch_size": 4}, "batch_size was 3, now 4"),
        ({"method": fl.methods.FedDualAvg(0.06, 0.7, fl.regularizers.L1(0.3))}, "method was"),
        ({"problem": federation(seed=1)}, "data of the problem was"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict, words: str):
    arguments: dict[str, Any] = {
        "problem": federation(),
        "method": METHOD,
        "rounds": 10,
        "seed": 0,
        "checkpoint": tmp_path / "c",
        **SAMPLING,
    }
    fl.simulate(**arguments)
    with pytest.raises(ValueError, match=words):
        fl.simulate(**(arguments | change))


def test_another_server_optimizer_is_another_run(tmp_path: Path):
    for rate, refused in ((0.01, False), (0.01, False), (0.5, True)):
        method = fl.methods.FedAvg(0.05, server_optimizer=optax.adam(rate))
        arguments: dict[str, Any] = {"rounds": 10, "checkpoint": tmp_path / "c", **SAMPLING}
        if refused:
            with pytest.raises(ValueError, match="belongs to another run"):
                fl.simulate(federation(), method, **arguments)
        else:
            fl.simulate(federation(), method, **arguments)


def test_another_loss_of_the_same_name_is_another_run(tmp_path: Path):
    data = fl.data.synthetic_lasso("III", dimension=8)

    def run(factor: float) -> fl.Result:
        problem = fl.Problem(lambda w, a, b: factor * (a @ w - b) ** 2, data)
        return fl.simulate(
            problem, fl.methods.FedAvg(0.01), rounds=1, local_steps=1, x0=np.zeros(8), checkpoint=tmp_path / "c"
        )

    run(1.0)
    run(1.0)
    with pytest.raises(ValueError, match="belongs to another run"):
        run(2.0)


def test_fewer_rounds_than_the_checkpoint_has_are_refused(tmp_path: Path):
    fl.simulate(federation(), METHOD, rounds=20, checkpoint=tmp_path / "c", **SAMPLING)
    with pytest.raises(ValueError, match="at round 20 already"):
        fl.simulate(federation(), METHOD, rounds=10, checkpoint=tmp_path / "c", **SAMPLING)


def test_a_continued_history_is_that_of_an_uninterrupted_run(tmp_path: Path):
    whole = fl.simulate(federation(), METHOD, rounds=40, **SAMPLING)
    fl.simulate(federation(), METHOD, rounds=17, checkpoint=tmp_path / "c", **SAMPLING)
    assert same_run(whole, fl.simulate(federation(), METHOD, rounds=40, checkpoint=tmp_path / "c", **SAMPLING))


@pytest.mark.parametrize("at", [20, 40])
def test_ctrl_c_during_an_evaluation_loses_no_row(tmp_path: Path, at: int):
    seen: list[int] = []

    def fragile(x: dict) -> float:
        seen.append(1)
        if len(seen) == at // 10 + 1:
            raise KeyboardInterrupt
        return 1.0

    arguments: dict[str, Any] = {"rounds": 40, "checkpoint": tmp_path / "c", "metrics": [fragile], **SAMPLING}
    with pytest.raises(KeyboardInterrupt, match=f"stopped after round {at}"):
        fl.simulate(federation(), METHOD, **arguments)
    resumed = fl.simulate(federation(), METHOD, **arguments)
    assert resumed.history["round"].tolist() == [0, 10, 20, 30, 40]
    assert same_run(resumed, fl.simulate(federation(), METHOD, **{**arguments, "checkpoint": None}))


def test_a_diverged_run_stays_diverged(tmp_path: Path):
    arguments: dict[str, Any] = {"rounds": 20, "checkpoint": tmp_path / "c", "local_steps": 3}
    results = []
    for _ in range(2):
        with pytest.warns(fl.DivergenceWarning):
            results.append(fl.simulate(federation(), fl.methods.FedAvg(1e60), **arguments))
    assert results[0].diverged == results[1].diverged
    assert len(results[0].history) == len(results[1].history)


def test_numbers_of_numpy_and_jax_can_be_saved(tmp_path: Path):
    metrics = [lambda x: {"largest": jnp.max(x["weights"])}]
    arguments: dict[str, Any] = {
        "rounds": np.int64(2),
        "seed": np.int64(1),
        "local_steps": np.int64(2),
        "metrics": metrics,
    }
    fl.simulate(federation(), METHOD, checkpoint=tmp_path / "c", **arguments)


def test_an_empty_file_is_refused(tmp_path: Path):
    (tmp_path / "c").touch()
    with pytest.raises(ValueError, match="is not a checkpoint of fedlocal"):
        fl.simulate(federation(), METHOD, rounds=1, checkpoint=tmp_path / "c", **SAMPLING)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path):
    (tmp_path / "c").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a checkpoint of fedlocal"):
        fl.simulate(federation(), METHOD, rounds=1, checkpoint=tmp_path / "c", **SAMPLING)


GOOD: dict[str, Any] = {"identity": {}, "rounds": 0, "extra": {}}


def npz(header: Any, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, header=np.asarray(header), **arrays)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def without(name: str) -> str:
    return json.dumps({key: value for key, value in GOOD.items() if key != name})


FOREIGN = {
    "one array": npy(np.zeros(3)),
    "text": b"round,loss\n0,1.0\n",
    "pickle": pickle.dumps({"header": 1}),
    "other keys": serialization.to_bytes({"weights": np.zeros(3)}),
    "zip without arrays": b"PK\x05\x06" + bytes(18),
    "text that is no JSON": npz("hello"),
    "JSON that recurses": npz("[" * 100_000),
    "a list": npz(json.dumps([1, 2])),
    "a number": npz(3.5),
    "many headers": npz(["{}", "{}"]),
    "no identity": npz(without("identity")),
    "no rounds": npz(without("rounds")),
    "no extra": npz(without("extra")),
    "negative rounds": npz(json.dumps({**GOOD, "rounds": -1})),
    "rounds as text": npz(json.dumps({**GOOD, "rounds": "7"})),
    "rounds true": npz(json.dumps({**GOOD, "rounds": True})),
    "identity is a list": npz(json.dumps({**GOOD, "identity": []})),
    "extra is null": npz(json.dumps({**GOOD, "extra": None})),
    "arrays missing": npz(json.dumps(GOOD)),
    "arrays of another shape": npz(json.dumps(GOOD), **{"state/a": np.zeros(3)}),
    "arrays of another type": npz(json.dumps(GOOD), **{"state/a": np.array(["x", "y"])}),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes):
    path = tmp_path / "c.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^checkpoint: {path} is not a checkpoint of fedlocal \(.+\)$") as refused:
        Checkpoint(path, {}).load({"a": np.zeros(2)})
    assert "allow_pickle" not in str(refused.value)  # NumPy advises to load it unsafely


def saved(path: Path) -> bytes:
    Checkpoint(path, {"seed": 0}).save(3, {"a": np.arange(2.0)}, {"rows": [{"round": 1}]})
    return path.read_bytes()


def load_or_refuse(path: Path, content: bytes) -> None:
    """The right state, or the sentence; nothing else."""
    path.write_bytes(content)
    found, said = None, ""
    try:
        found = Checkpoint(path, {"seed": 0}).load({"a": np.zeros(2)})
    except ValueError as refusal:
        said = str(refusal)
    if found is None:
        assert said.startswith(f"checkpoint: {path} ")
        return
    assert isinstance(found[0], int)
    assert found[1]["a"].shape == (2,)
    assert isinstance(found[2], dict)


def test_a_truncated_file_is_refused(tmp_path: Path):
    whole = saved(tmp_path / "c.npz")
    for length in range(len(whole)):
        (tmp_path / "c.npz").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a checkpoint of fedlocal"):
            Checkpoint(tmp_path / "c.npz", {"seed": 0}).load({"a": np.zeros(2)})


@given(st.binary(max_size=400))
@settings(deadline=None, max_examples=200)
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    load_or_refuse(tmp_path_factory.getbasetemp() / "random.npz", content)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_changed_bytes_are_refused_or_change_nothing_of_the_kind(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    content = bytearray(saved(path))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    load_or_refuse(path, bytes(content))


def test_a_checkpoint_without_its_history_is_refused(tmp_path: Path):
    path, grid = tmp_path / "c", {"client_step_size": [0.01, 0.02]}
    runs = {
        "simulate": lambda: fl.simulate(federation(), METHOD, rounds=2, checkpoint=path, **SAMPLING),
        "sweep": lambda: fl.sweep(federation(), METHOD, grid, rounds=2, checkpoint=path, **SAMPLING),
    }
    for run in runs.values():
        path.unlink(missing_ok=True)
        run()
        with np.load(path) as file:
            arrays: dict[str, Any] = dict(file)
        header = json.loads(str(arrays.pop("header"))) | {"extra": {}}
        path.write_bytes(npz(json.dumps(header), **arrays))
        with pytest.raises(ValueError, match="is not a checkpoint of fedlocal"):
            run()


def test_a_place_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path):
    """A folder below a file cannot be made, not even by root."""
    (tmp_path / "file").touch()
    looked: list[Any] = []
    for path in (tmp_path / "file" / "c.npz", tmp_path / "file" / "folder" / "c.npz"):
        arguments: dict[str, Any] = {"rounds": 1, "local_steps": 1, "checkpoint": path}
        arguments["metrics"] = [lambda x: looked.append(x) or {}]
        sentence = rf"^cannot write {path}: Not a directory; give checkpoint= a file in a folder that can be written$"
        with pytest.raises(NotADirectoryError, match=sentence) as caught:
            fl.simulate(federation(), METHOD, **arguments)
        assert caught.value.errno == errno.ENOTDIR
        with pytest.raises(NotADirectoryError, match=sentence):
            fl.sweep(federation(), METHOD, {"client_step_size": [0.01]}, **arguments)
    assert not looked


def test_a_read_only_folder_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(PermissionError, match=rf"^cannot write {tmp_path}/c: Permission denied; give checkpoint=") as e:
        fl.simulate(federation(), METHOD, rounds=1, checkpoint=tmp_path / "c", **SAMPLING)
    assert e.value.errno == errno.EACCES


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named(tmp_path: Path):
    """The temporary file is a link to a device that is always full."""
    path = tmp_path / "c.npz"
    path.write_bytes(b"before")
    (tmp_path / f".c.npz.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"^cannot write {path}: No space left on device$") as caught:
        write_atomically(path, b"after")
    assert caught.value.errno == errno.ENOSPC
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_whatever_the_disk_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    def failing(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=rf"^cannot write {tmp_path}/c: {os.strerror(code)}$") as caught:
        write_atomically(tmp_path / "c", b"content")
    assert caught.value.errno == code
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_and_says_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls, advance = [], engines._advance

    def interrupted(*arguments: object):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(engines, "_advance", interrupted)
    with pytest.raises(KeyboardInterrupt, match="stopped after round"):
        fl.simulate(federation(), METHOD, rounds=40, checkpoint=tmp_path / "c", **SAMPLING)
    monkeypatch.undo()
    resumed = fl.simulate(federation(), METHOD, rounds=40, checkpoint=tmp_path / "c", **SAMPLING)
    assert same_run(resumed, fl.simulate(federation(), METHOD, rounds=40, **SAMPLING))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]  # nothing temporary is left


class Counter:
    def __init__(self, start: int):
        self.start = start

    def method(self, x: float) -> float:
        return x + self.start


def test_fingerprints_look_into_jitted_functions_bound_methods_and_objects():
    def f(x: float) -> float:
        return x + 1

    def g(x: float) -> float:
        return x + 2

    differing = [(jax.jit(f), jax.jit(g)), (Counter(1).method, Counter(2).method), (Counter(1), Counter(2)), ({1}, {2})]
    for one, other in [*differing, ((f, f, g), (f, g, g))]:
        assert fingerprint(one) != fingerprint(other)
    assert fingerprint(Counter(1)) == fingerprint(Counter(1))


def test_a_run_with_a_metric_of_other_numbers_is_another_run(tmp_path: Path):
    problem = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)])
    arguments: dict[str, Any] = {"local_steps": 1, "checkpoint": tmp_path / "run.npz"}
    fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=2, metrics=[fl.metrics.Suboptimality(0.0)], **arguments)
    with pytest.raises(ValueError, match="belongs to another run: metrics and their data"):
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=4, metrics=[fl.metrics.Suboptimality(1.0)], **arguments)


def _of_users(sign: float) -> tuple[fl.LocalMethod, Any, fl.metrics.Metric]:
    """A method, a function that is a metric, and a metric, each with the same name and other code for another sign."""
    code = f"""
import fedlocal as fl
class Own(fl.methods.FedAvg):
    def update(self, server, mean_message, round):
        return super().update(server, mean_message * {sign}, round)
class Size(fl.metrics.Metric):
    def measure(self, evaluation):
        return {{"size": {sign}}}
def constant(x):
    return {sign}
"""
    names: dict[str, Any] = {"__name__": "users"}
    exec(code, names)
    return names["Own"](0.1), names["constant"], names["Size"]()


def test_a_run_with_other_code_of_a_users_method_or_metric_is_another_run(tmp_path: Path):
    """Whoever mends a function and runs the script again must not get the old result."""
    problem = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)])
    (method, function, metric), (mended, other_function, other_metric) = _of_users(1.0), _of_users(0.5)

    def run(method: fl.LocalMethod, metrics: list[Any], rounds: int = 2) -> fl.Result:
        file = tmp_path / "run.npz"
        return fl.simulate(problem, method, rounds=rounds, local_steps=1, metrics=metrics, checkpoint=file)

    run(method, [function, metric])
    same, same_function, same_metric = _of_users(1.0)
    assert len(run(same, [same_function, same_metric], rounds=4).history) == 5
    with pytest.raises(ValueError, match="belongs to another run: numbers of the method"):
        run(mended, [function, metric], rounds=6)
    for metrics in ([other_function, metric], [function, other_metric]):
        with pytest.raises(ValueError, match="belongs to another run: metrics and their data"):
            run(method, metrics, rounds=6)


def test_a_metric_that_collects_what_it_sees_goes_on(tmp_path: Path):
    problem, seen = fl.problems.quadratics(matrices=[np.eye(2)], optima=[np.ones(2)]), []

    def collect(x: np.ndarray) -> float:
        seen.append(x)
        return float(len(seen))

    for rounds in (2, 4):
        arguments: dict[str, Any] = {"local_steps": 1, "checkpoint": tmp_path / "run.npz", "metrics": [collect]}
        fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=rounds, **arguments)
    assert len(seen) == 5


def test_a_run_that_diverged_between_evaluations_is_the_same_when_it_is_called_again(tmp_path: Path):
    common: dict[str, Any] = {"rounds": 50, "eval_every": 40, "local_steps": 3, "checkpoint": tmp_path / "run.npz"}
    runs = []
    for _ in range(2):
        with pytest.warns(fl.DivergenceWarning):
            runs.append(fl.simulate(federation(), fl.methods.FedAvg(1e40), **common))
    first, second = runs
    assert first.diverged is not None
    assert 0 < first.diverged.round < 40
    assert first.history["round"].tolist() == [0, first.diverged.round]
    assert first.diverged == second.diverged
    assert first.history.drop(columns="seconds").equals(second.history.drop(columns="seconds"))
