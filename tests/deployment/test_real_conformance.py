"""Every method between real processes gives what `simulate` gives."""

import pytest

pytest.importorskip("flwr")

import fedlocal as fl
from deployment.deployed.methods import METHODS
from deployment.stage import Stage, check, simulated, stage

pytestmark = pytest.mark.xdist_group("flower")
ROUNDS = 10


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """Three sites; all methods together, and FedDualAvg by itself at the same time."""
    folder = tmp_path_factory.mktemp("conformance")
    with stage(folder) as s:
        for node in [s.site(name) for name in "abc"]:
            node.node_id()
        started = [s.run("together", methods=",".join(METHODS), rounds=ROUNDS), s.run("alone", rounds=ROUNDS)]
        assert [run.wait(600) for run in started] == ["finished:completed"] * 2, s.link.logs()
        yield s


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_that_of_simulate(deployed: Stage, method: str):
    check(deployed, "together", method, simulated(method, "abc", ROUNDS))


def test_a_method_that_travels_alone_gives_the_same(deployed: Stage):
    check(deployed, "alone", "fed_dual_avg", simulated("fed_dual_avg", "abc", ROUNDS))


def test_every_method_is_in_the_table():
    assert {type(method).__name__ for method in METHODS.values()} == set(fl.methods.__all__)
