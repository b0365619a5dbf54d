"""What all tests of real deployments need: data for four unequal sites, the app's folder, and a SuperLink with sites."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from deployment.deployed.methods import METHODS
from fedlocal.simulation.checkpoint import Checkpoint
from fedlocal.util import serialization
from flower_keys import Certificates, Key
from flower_processes import Node, Run, SuperLink, superlink

SIZES = {"a": 4, "b": 7, "c": 12, "d": 5}  # examples
STEPS = {"a": 2, "b": 3, "c": 1, "d": 2}  # local steps
SHAPE = (2, 3)
HERE = Path(__file__).parent
PYPROJECT = """
[project]
name = "deployed"
version = "1.0.0"
description = "The methods of the tests"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "deployed.server:app"
clientapp = "deployed.client:app"
[tool.flwr.app.config]
methods = "fed_dual_avg"
sites = "a,b,c"
local-steps = "2,3,1"
rounds = 1
batch-size = 2
seed = 3
min-clients = 0
patience = 120
timeout = 120
out = ""
"""


def rows(site: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets of a site."""
    rng = np.random.default_rng(sorted(SIZES).index(site))
    features = rng.standard_normal((SIZES[site], *SHAPE)) + rng.standard_normal(SHAPE)
    return features, features.sum((1, 2)) + 0.5 + 0.1 * rng.standard_normal(SIZES[site])


def simulated(method: str, sites: str, rounds: int) -> fl.Result:
    """What `simulate` makes of these sites."""
    steps = [STEPS[site] for site in sites]
    sampling = {"local_steps": steps, "batch_size": 2, "weights": "examples", "seed": 3}
    return fl.simulate(
        federation(sites), METHODS[method], rounds=rounds, eval_every=rounds, engine="jax", progress=False, **sampling
    )


def federation(sites: str = "abc") -> fl.problems.MatrixSensing:
    """The data of these sites together."""
    return fl.problems.MatrixSensing(fl.FederatedData.from_clients([rows(site) for site in sites]))


class Stage:
    """A SuperLink and sites with data, in one folder."""

    def __init__(self, folder: Path, link: SuperLink):
        self.folder, self.link = folder, link
        self.app = folder / "app"
        shutil.copytree(HERE / "deployed", self.app / "deployed", ignore=shutil.ignore_patterns("__pycache__"))
        (self.app / "pyproject.toml").write_text(PYPROJECT)

    def site(self, name: str, key: Key | None = None, root: Path | None = None, **config: Any) -> Node:
        """Start a site with a process of its own."""
        return self.link.site(name, HERE / "site_script.py", self._config(name, config), key, root)

    def stock_site(self, name: str, key: Key | None = None) -> Node:
        """Start a site that is Flower's SuperNode as it is: a process per message, and code that comes with the run."""
        return self.link.node(name, self._config(name, {}), key)

    def run(self, name: str, **config: Any) -> Run:
        """Start a run whose outcome goes to a folder of this name."""
        return self.link.run(
            self.app, {"out": str(self.folder / name), **{k.replace("_", "-"): v for k, v in config.items()}}
        )

    def _config(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        data = self.folder / f"{name}.npz"
        features, targets = rows(name)
        np.savez(data, features=features, targets=targets)
        return {"site": name, "data": str(data), **{k.replace("_", "-"): v for k, v in config.items()}}

    def progress(self, run: str, method: str = "fed_dual_avg") -> tuple[int, list[dict[str, Any]]]:
        """Rounds that are done and kept, and events so far."""
        read = Checkpoint(self.folder / run / method / "checkpoint.npz", {}).read()
        return (0, []) if read is None else (read[0]["rounds"], read[0]["extra"]["events"])

    def model(self, run: str, method: str = "fed_dual_avg") -> dict[str, np.ndarray]:
        """The model that a run ended with."""
        x = {"intercept": np.zeros(()), "weights": np.zeros(SHAPE)}
        return serialization.from_bytes((self.folder / run / method / "model.npz").read_bytes(), {"x": x})["x"]

    def history(self, run: str, method: str = "fed_dual_avg") -> pd.DataFrame:
        """What was measured, by history.csv."""
        return pd.read_csv(self.folder / run / method / "history.csv")

    def events(self, run: str, method: str = "fed_dual_avg") -> pd.DataFrame:
        """What happened, by events.csv."""
        return pd.read_csv(self.folder / run / method / "events.csv", keep_default_na=False)


def check(deployed: Stage, run: str, method: str, result: fl.Result) -> None:
    """Model and objective of a run are these, and every site took part in every round."""
    x = deployed.model(run, method)
    for name, want in result.x.items():
        np.testing.assert_allclose(x[name], want, rtol=0, atol=1e-12)
    assert max(np.abs(want).max() for want in result.x.values()) > 1e-2  # something happened
    lost = deployed.events(run, method)["what"].str.contains("left out|repeated")
    assert not lost.any()
    objective = deployed.history(run, method)["objective"].iloc[-1]
    np.testing.assert_allclose(objective, result.history["objective"].iloc[-1], rtol=1e-10)


@contextmanager
def stage(folder: Path, tls: Certificates | None = None, auth: bool = False) -> Iterator[Stage]:
    """A SuperLink; its processes compute in float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ENABLE_X64", "1")
        with superlink(folder, tls, auth, database=False) as link:
            yield Stage(folder, link)
