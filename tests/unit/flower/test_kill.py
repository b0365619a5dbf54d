"""A coordinator that is killed at any moment continues from its checkpoint to the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, MessageType

from conformance.federation import flat
from unit.flower.flower_sites import FED_AVG, FULL, Sites, strategy

SCRIPT = """
import logging, sys
import jax
import numpy as np
jax.config.update("jax_enable_x64", True)
import fedlocal as fl
from fedlocal.flower import InProcess, Outcome, Policy, Strategy, client_app

for name in ("flwr", "fedlocal"):
    logging.getLogger(name).setLevel(100)
rng = np.random.default_rng(0)
clients = [(rng.standard_normal((8, 3)), rng.standard_normal(8)) for _ in range(3)]
problem = fl.problems.LeastSquares(fl.FederatedData.from_clients(clients))
app = client_app(lambda context: fl.problems.only(problem, int(context.node_config["m"])), policy=Policy.open())
grid = InProcess(app, {name: {"m": m} for m, name in enumerate("abc")})
method = fl.methods.FedDualAvg(0.01, 0.7, fl.regularizers.L1(0.1))
strategy = Strategy(
    method, rounds=60, sites=list("abc"), local_steps=2, batch_size=4, clients_per_round=2, seed=1, eval_every=3,
    patience=20.0, checkpoint=sys.argv[1],
)
strategy.start(grid, timeout=60.0)
outcome = Outcome.of(strategy)
np.savez(sys.argv[2], rows=outcome.history.to_numpy(), **outcome.x)
"""


def _changed(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _run_with_kills(folder: Path, kills: int, rng: random.Random) -> int:
    """How often it was killed before it was done."""
    command = [sys.executable, "-c", SCRIPT, str(folder / "killed"), str(folder / "killed.npz")]
    for attempt in range(kills + 1):
        process, before = subprocess.Popen(command), _changed(folder / "killed")
        try:
            while process.poll() is None and _changed(folder / "killed") == before:
                time.sleep(0.002)
            if attempt < kills:
                time.sleep(rng.uniform(0.0, 0.3))
                if process.poll() is not None:
                    return attempt
                os.kill(process.pid, signal.SIGKILL)
            assert process.wait(timeout=120) == (0 if attempt == kills else -signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
    return kills


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [1, 8])
def test_a_killed_coordinator_continues_to_the_same_bits(kills: int, tmp_path: Path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "whole"), str(tmp_path / "whole.npz")]
    subprocess.run(command, check=True, timeout=120)
    assert _run_with_kills(tmp_path, kills, random.Random(kills)) >= 1
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as killed:
        assert len(whole["rows"]) == 20
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], killed[name])


@pytest.mark.parametrize("at", [2, 4])
def test_a_coordinator_that_stops_before_it_asks_for_the_loss_asks_when_it_continues(at: int, tmp_path: Path):
    def stop(site: str, question: Message, answer: Message) -> Message:
        if question.metadata.message_type == MessageType.EVALUATE and run.done == at:
            raise KeyboardInterrupt
        return answer

    arguments = {"eval_every": 2, "checkpoint": str(tmp_path / "run"), **FULL}
    run = strategy(FED_AVG, 4, **arguments)
    with pytest.raises(KeyboardInterrupt):
        run.start(Sites(fault=stop), timeout=5.0)
    assert run.done == at
    again, whole = strategy(FED_AVG, 4, **arguments), strategy(FED_AVG, 4, **(arguments | {"checkpoint": None}))
    for one in (again, whole):
        one.start(Sites(), timeout=5.0)
    assert [row["round"] for row in again.history] == [2, 4]
    assert again.history == whole.history
    np.testing.assert_array_equal(flat(again.solution()), flat(whole.solution()))
