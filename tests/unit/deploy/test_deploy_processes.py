"""deploy, keys and site with real processes: what a coordinator and two sites do, with TLS and keys."""

import os
import signal

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedlocal as fl
from fedlocal.cli import app as cli
from flower_keys import Certificates, Key
from flower_processes import Process, superlink

SITES = ("north", "south")
ROUNDS = 2


@pytest.fixture
def tables(tmp_path):
    """A file per site, with columns in very different units."""
    rng = np.random.default_rng(0)
    for shift, (site, rows) in enumerate(zip(SITES, (12, 20), strict=True)):
        X = rng.standard_normal((rows, 3)) * [1, 10, 1000] + shift
        ill = (X[:, 0] - X[:, 1] / 10 + rng.logistic(size=rows) > 0).astype(int)
        frame = pd.DataFrame({"age": X[:, 0], "ill": ill, "chol": X[:, 1], "dose": X[:, 2]})
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    return tmp_path


def invoke(*words):
    said = CliRunner().invoke(cli, [str(word) for word in words])
    assert said.exit_code == 0, said.output


def simulated(folder):
    """The same on the rows of all sites, standardised by scikit-learn, through the simulator."""
    from sklearn.preprocessing import StandardScaler

    frames = [pd.read_csv(folder / f"{site}.csv") for site in SITES]
    scaler = StandardScaler().fit(pd.concat(frames).drop(columns="ill").to_numpy())
    clients = [(scaler.transform(f.drop(columns="ill").to_numpy()), f["ill"].to_numpy()) for f in frames]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(clients), intercept=True)
    method = fl.methods.FedDualAvg(0.5, 1.2, fl.regularizers.L1(0.02))
    return fl.simulate(problem, method, rounds=ROUNDS, local_epochs=2, batch_size=5, weights="examples", seed=4)


@pytest.mark.thorough
def test_two_sites_with_tls_and_keys_do_what_the_simulator_does(tables):
    folder = tables / "study"
    options = ["--sites", ",".join(SITES), "--target", "ill", "--l1", 0.02, "--rounds", ROUNDS, "--local-epochs", 2]
    options += ["--batch-size", 5, "--client-step-size", 0.5, "--server-step-size", 1.2, "--seed", 4]
    invoke("deploy", folder, *options)
    keys = tables / "keys"
    invoke("keys", keys, "--host", "localhost", "--host", "127.0.0.1", "--sites", ",".join(SITES))
    tls = Certificates(keys / "ca.pem", keys / "server.pem", keys / "server.key")
    with superlink(tables / "run", tls=tls, auth=True) as link:
        for site in SITES:
            link.register(Key(keys / f"{site}.key", keys / f"{site}.pub"))
        sites = {site: start_site(link, tables, site) for site in SITES}
        run = link.run(folder)
        assert run.wait() == "finished:completed", run.log()
        assert f"round {ROUNDS} of {ROUNDS}: objective" in run.log()
        assert "[ROUND" not in run.log()
        assert "south: local steps of round 2: " in sites["south"].log()
        os.kill(sites["south"].pids("fedlocal")[0], signal.SIGINT)
        assert sites["south"].exit_code() == 130
        assert sites["south"].pids() == []
        results = link.folder / "link" / "results"
    with np.load(results / "model.npz") as model:
        expected = simulated(tables)
        np.testing.assert_allclose(model["x/weights"], expected.x["weights"], atol=1e-6)
        np.testing.assert_allclose(model["x/intercept"], expected.x["intercept"], atol=1e-6)
    objective = pd.read_csv(results / "history.csv")["objective"].iloc[-1]
    assert objective == pytest.approx(expected.history["objective"].iloc[-1], abs=1e-6)


@pytest.mark.thorough
def test_a_site_is_let_in_when_it_is_registered_and_when_its_dead_self_is_forgotten(tables):
    invoke("deploy", tables / "study", "--sites", "north,south", "--target", "ill")
    keys = tables / "keys"
    invoke("keys", keys, "--host", "127.0.0.1", "--sites", "north")
    tls = Certificates(keys / "ca.pem", keys / "server.pem", keys / "server.key")
    with superlink(tables / "run", tls=tls, auth=True) as link:
        site = start_site(link, tables, "north")
        site.wait_for("refused: either the coordinator has not registered")
        link.register(Key(keys / "north.key", keys / "north.pub"))
        site.wait_for("connected to 127.0.0.1")
        site.kill9()
        site = start_site(link, tables, "north")
        site.wait_for("refused: .* still counts as connected")
        site.wait_for("connected to 127.0.0.1")


def start_site(link, folder, site):
    command = ["fedlocal", "site", str(folder / "study"), "--site", site, "--data", str(folder / f"{site}.csv")]
    command += ["--superlink", link.address, "--root-certificates", str(folder / "keys" / "ca.pem")]
    command += ["--key", str(folder / "keys" / f"{site}.key")]
    return link._start(Process(link.folder / site, command))
