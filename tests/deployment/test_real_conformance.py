"""Methods between real processes give what `simulate` gives: five kinds of state, and all methods in `make thorough`."""

import pytest

pytest.importorskip("flwr")

import fedlocal as fl
from deployment.deployed.methods import METHODS
from deployment.stage import Stage, check, simulated, stage

pytestmark = pytest.mark.xdist_group("flower")
ROUNDS = 10
USUAL = ("fed_avg_adam", "fed_ac_one", "fed_dual_avg", "scaffold", "accelerated_proximal_gradient")
CHOSEN = [name if name in USUAL else pytest.param(name, marks=pytest.mark.thorough) for name in METHODS]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory, request):
    """Three sites; all methods of the selected tests together, and FedDualAvg by itself at the same time."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    selected = {item.callspec.params["method"] for item in here}
    methods = [name for name in METHODS if name in selected]
    folder = tmp_path_factory.mktemp("conformance")
    with stage(folder) as s:
        for node in [s.site(name) for name in "abc"]:
            node.node_id()
        started = [s.run("together", methods=",".join(methods), rounds=ROUNDS), s.run("alone", rounds=ROUNDS)]
        assert [run.wait(600) for run in started] == ["finished:completed"] * 2, s.link.logs()
        yield s


@pytest.mark.parametrize("method", CHOSEN)
def test_the_model_is_that_of_simulate(deployed: Stage, method: str):
    check(deployed, "together", method, simulated(method, "abc", ROUNDS))


def test_a_method_that_travels_alone_gives_the_same(deployed: Stage):
    check(deployed, "alone", "fed_dual_avg", simulated("fed_dual_avg", "abc", ROUNDS))


def test_every_method_is_in_the_table():
    assert {type(method).__name__ for method in METHODS.values()} == set(fl.methods.__all__)
