"""deploy, keys and site with real processes: what a coordinator and two sites do, with TLS and keys."""

import os
import signal

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

import fedlocal as fl
from flower_coordinator import coordinator
from flower_processes import poll

pytestmark = pytest.mark.xdist_group("flower")
SITES = ("north", "south")
ROUNDS = 2


@pytest.fixture
def tables(tmp_path):
    """A file per site, with columns in very different units."""
    rng = np.random.default_rng(0)
    for shift, (site, rows) in enumerate(zip(SITES, (40, 60), strict=True)):
        X = rng.standard_normal((rows, 3)) * [1, 10, 1000] + shift
        ill = (X[:, 0] - X[:, 1] / 10 + rng.logistic(size=rows) > 0).astype(int)
        frame = pd.DataFrame({"age": X[:, 0], "ill": ill, "chol": X[:, 1], "dose": X[:, 2]})
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    (tmp_path / "policy.toml").write_text("secret_draws = false\n")  # so that the simulator draws the same
    return tmp_path


def simulated(folder):
    """The same on the rows of all sites, standardised by scikit-learn, through the simulator."""
    from sklearn.preprocessing import StandardScaler

    frames = [pd.read_csv(folder / f"{site}.csv") for site in SITES]
    scaler = StandardScaler().fit(pd.concat(frames).drop(columns="ill").to_numpy())
    clients = [(scaler.transform(f.drop(columns="ill").to_numpy()), f["ill"].to_numpy()) for f in frames]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(clients), intercept=True)
    method = fl.methods.FedDualAvg(0.5, 1.2, fl.regularizers.L1(0.02))
    return fl.simulate(problem, method, rounds=ROUNDS, local_epochs=2, batch_size=20, weights="examples", seed=4)


def test_two_sites_with_tls_and_keys_do_what_the_simulator_does(tables):
    options = ["--target", "ill", "--l1", 0.02, "--rounds", ROUNDS, "--local-epochs", 2, "--batch-size", 20]
    options += ["--client-step-size", 0.5, "--server-step-size", 1.2, "--seed", 4]
    with coordinator(tables, SITES, options) as study:
        sites = {site: study.site(site, tables / f"{site}.csv") for site in SITES}
        run = study.start()
        assert run.exit_code() == 0, run.log()
        assert f"round {ROUNDS} of {ROUNDS}: objective" in run.log()
        assert "[ROUND" not in run.log()
        assert "south: local steps of round 2: " in sites["south"].log()
        os.kill(sites["south"].pids("fedlocal")[0], signal.SIGINT)
        assert sites["south"].exit_code() == 130
        assert sites["south"].pids() == []
        again = study.start()  # without south, which a run that has something to do would wait for
        assert again.exit_code() == 0, again.log()
        results = study.place / "results"
        assert f"all {ROUNDS} rounds were done before; nothing is left to do" in again.log()
        assert f"the results are in {results}" in again.log()
        os.kill(study.process.pids("\0coordinator\0")[0], signal.SIGINT)
        assert study.process.exit_code() == 0
        poll(lambda: not study.process.pids() or None, "the end of Flower's own programs")  # it waits a second for them
    with np.load(results / "model.npz") as model:
        expected = simulated(tables)
        np.testing.assert_allclose(model["x/weights"], expected.x["weights"], atol=1e-6)
        np.testing.assert_allclose(model["x/intercept"], expected.x["intercept"], atol=1e-6)
    objective = pd.read_csv(results / "history.csv")["objective"].iloc[-1]
    assert objective == pytest.approx(expected.history["objective"].iloc[-1], abs=1e-6)


@pytest.mark.thorough
def test_a_site_is_let_in_when_its_key_comes_and_when_its_dead_self_is_forgotten(tables):
    with coordinator(tables, SITES, ["--target", "ill"], late=["north"]) as study:
        study.process.wait_for("no key yet of north")
        site = study.site("north", tables / "north.csv")
        site.wait_for("refused: the coordinator has not registered")
        study.hand_in("north")
        site.wait_for("connected to 127.0.0.1")
        site.kill9()
        site = study.site("north", tables / "north.csv")
        site.wait_for("refused: .* still counts as connected")
        site.wait_for("connected to 127.0.0.1")
