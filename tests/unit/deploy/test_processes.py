"""A site whose key comes late, and one that died: with real processes, TLS and keys.

tests/hostile/test_real_control_api.py has a run of two sites.
"""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flower_coordinator import coordinator

pytestmark = pytest.mark.xdist_group("flower")
SITES = ("north", "south")


@pytest.fixture
def table(tmp_path):
    """The file of a site."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((40, 3)), columns=["age", "chol", "dose"])
    frame["ill"] = (frame["age"] + rng.logistic(size=40) > 0).astype(int)
    frame.to_csv(tmp_path / "north.csv", index=False)
    return tmp_path / "north.csv"


@pytest.mark.thorough
def test_a_site_is_let_in_when_its_key_comes_and_when_its_dead_self_is_forgotten(table):
    with coordinator(table.parent, SITES, ["--target", "ill"], late=["north"]) as study:
        study.process.wait_for("no key yet of north")
        site = study.site("north", table)
        site.wait_for("refused: the coordinator has not registered")
        study.hand_in("north")
        site.wait_for("connected to 127.0.0.1")
        site.kill9()
        site = study.site("north", table)
        site.wait_for("refused: .* still counts as connected")
        site.wait_for("connected to 127.0.0.1")
