"""Runs between real processes give what `simulate` gives, also when processes are killed.

One story over three sites. First several methods run undisturbed: in `make thorough` all of them, and one by itself. Then
`steady` needs two of the sites. b is killed while it works, so `steady` goes on without it. Then its server app is killed. b
comes back, and `steady` is started again. In two rounds c answers nan to it. In `make thorough` there is `strict` beside it,
which needs all sites: it gives up when b is killed, and is started again, too (in process: unit/flower/test_faults.py).
"""

import os
import re
import signal
import time
from typing import Any, NamedTuple

import pytest

pytest.importorskip("flwr")

import numpy as np

import fedlocal as fl
from conformance.federation import MASK, flat, numpy_gradient
from deployment.deployed.methods import METHODS
from deployment.stage import SIZES, STEPS, Stage, check, federation, simulated, stage
from flower_processes import Run, poll
from oracles import transcripts

pytestmark = pytest.mark.xdist_group("flower")
USUAL = ("fed_ac_one", "scaffold")  # several sequences at a client; memory that stays there
CHOSEN = [name if name in USUAL else pytest.param(name, marks=pytest.mark.thorough) for name in METHODS]
CONFORMANCE_ROUNDS = 3
ROUNDS, POISONED, STRUCK = 8, {1, 6}, 2  # b is killed in round STRUCK, counted from 0
STEADY, STRICT = "fed_dual_avg", "fed_mid"


class Story(NamedTuple):
    stage: Stage
    kept: int  # rounds of `strict` that were done when it gave up
    complaint: str  # what it said then


@pytest.fixture(scope="module")
def story(tmp_path_factory, request):
    here = [item for item in request.session.items if item.path == request.path]
    selected = {item.callspec.params["method"] for item in here if hasattr(item, "callspec")}
    names = {item.name for item in here}
    folder = tmp_path_factory.mktemp("runs")
    began = time.monotonic()
    with stage(folder) as s:
        marker = folder / "hold"
        sites = {
            "a": s.site("a"),
            "b": s.site("b", hold=str(marker), hold_from=STRUCK),
            "c": s.site("c", poison=",".join(map(str, POISONED))),
        }
        for site in sites.values():
            site.node_id()
        timeout = max(10, round(time.monotonic() - began))  # on a busy machine everything takes longer, also an answer
        undisturbed = []
        if methods := [name for name in METHODS if name in selected]:
            undisturbed.append(s.run("together", methods=",".join(methods), rounds=CONFORMANCE_ROUNDS))
        if test_a_method_that_travels_alone_gives_the_same.__name__ in names:
            undisturbed.append(s.run("alone", methods="fed_avg", rounds=CONFORMANCE_ROUNDS))
        completed(s, *undisturbed)

        common: dict[str, Any] = {"rounds": ROUNDS, "batch_size": 0, "timeout": timeout}
        steady = {"methods": STEADY, "min_clients": 2, "patience": 300, **common}
        strict = {"methods": STRICT, "min_clients": 3, "patience": timeout, **common}
        with_strict = test_a_run_that_needs_all_sites_gives_up_and_is_finished_later.__name__ in names
        first = [s.run("strict", **strict)] if with_strict else []
        if with_strict:
            poll(lambda: s.progress("strict", STRICT)[0] >= 1 or None, "a round of strict", 600)
        marker.touch()
        s.run("steady", **steady)
        reached = marker.with_suffix(".reached")
        poll(lambda: reached.exists() or None, "b in the round in which it is killed", 600)
        sites["b"].kill9()
        marker.unlink()

        poll(lambda: s.progress("steady")[0] > STRUCK + 1 or None, "two rounds of steady without b", 600)
        os.kill(int((folder / "steady" / STEADY / "pid").read_text()), signal.SIGKILL)
        assert [run.wait(600) for run in first] == ["finished:failed"] * len(first)
        kept = s.progress("strict", STRICT)[0] if with_strict else 0
        s.site("b").node_id()
        again = [s.run("strict", **{**strict, "patience": 300})] if with_strict else []
        completed(s, *again, s.run("steady", **steady))
        yield Story(s, kept, "".join(run.log() for run in first))


def completed(s: Stage, *runs: Run) -> None:
    assert [run.wait(600) for run in runs] == ["finished:completed"] * len(runs), s.link.logs()


@pytest.mark.parametrize("method", CHOSEN)
def test_the_model_is_that_of_simulate(story: Story, method: str):
    check(story.stage, "together", method, simulated(method, "abc", CONFORMANCE_ROUNDS))


@pytest.mark.thorough
def test_a_method_that_travels_alone_gives_the_same(story: Story):
    check(story.stage, "alone", "fed_avg", simulated("fed_avg", "abc", CONFORMANCE_ROUNDS))


def test_every_method_is_in_the_table():
    assert {type(method).__name__ for method in METHODS.values()} == set(fl.methods.__all__)


def test_the_events_say_who_was_left_out_of_which_round(story: Story):
    absent = left_out(story.stage, "steady", STEADY)
    (resumed,) = resumed_after(story.stage, "steady", STEADY)
    assert resumed < ROUNDS
    for (
        site
    ) in "abc":  # the second run begins with the first two sites that are there; the third may come a round later
        late = [r for r in sorted(absent[site]) if r >= resumed and absent[site][r] == "not connected; left out"]
        assert late == list(range(resumed, resumed + len(late)))
        for r in late:
            del absent[site][r]
    assert absent["a"] == {}
    assert 1 in absent["c"]
    assert set(absent["c"]) <= POISONED
    assert all("nan or inf in y/" in why for why in absent["c"].values())
    assert set(absent["b"]) == set(range(STRUCK, resumed))  # it was back before the second run
    assert absent["b"].pop(STRUCK) == "no answer in time; left out"
    assert set(absent["b"].values()) == {"not connected; left out"}


def test_the_model_is_that_of_the_sites_that_took_part(story: Story):
    absent = left_out(story.stage, "steady", STEADY)
    present = [[site for site in "abc" if r not in absent[site]] for r in range(ROUNDS)]
    want = transcripts.fed_dual_avg(np.zeros(7), rounds(present), 0.05, 0.7, transcripts.l1(0.3, MASK))[-1]
    np.testing.assert_allclose(flat(story.stage.model("steady", STEADY)), want, rtol=0, atol=1e-9)
    full = transcripts.fed_dual_avg(np.zeros(7), rounds(["abc"] * ROUNDS), 0.05, 0.7, transcripts.l1(0.3, MASK))[-1]
    assert np.abs(want - full).max() > 1e-4  # who takes part matters


@pytest.mark.thorough
def test_a_run_that_needs_all_sites_gives_up_and_is_finished_later(story: Story):
    assert 1 <= story.kept < ROUNDS
    after = "2 of 3 sites take part, 3 are needed; gave up after waiting"
    assert re.search(rf"{after} \d+ s; not there: b; {story.kept} rounds are kept in ", story.complaint)
    assert resumed_after(story.stage, "strict", STRICT) == [story.kept]
    events = story.stage.events("strict", STRICT)
    lost = events[events["what"].str.contains("repeated")]
    assert set(lost["what"]) == {"2 answers, 3 needed; the round is repeated"}
    assert set(lost["round"]) == {story.kept + 1}
    want = transcripts.fed_mid(np.zeros(7), rounds(["abc"] * ROUNDS), 0.05, 0.7, transcripts.l1(0.3, MASK))[-1]
    np.testing.assert_allclose(flat(story.stage.model("strict", STRICT)), want, rtol=0, atol=1e-9)


def left_out(s: Stage, run: str, method: str) -> dict[str, dict[int, str]]:
    """For each site the rounds that it missed, from 0, and why, by the events."""
    events = s.events(run, method)
    missed = events[events["what"].str.contains("left out")]
    of_site = {site: missed[missed["site"] == site] for site in "abc"}
    return {site: dict(zip(rows["round"] - 1, rows["what"], strict=True)) for site, rows in of_site.items()}


def resumed_after(s: Stage, run: str, method: str) -> list[int]:
    """After how many rounds the run continued from its checkpoint."""
    events = s.events(run, method)
    return (events[events["what"].str.contains("continued from")]["round"] - 1).tolist()


def rounds(present: list[Any]) -> list[Any]:
    """What the transcripts take: for every round the weights and the gradients of the sites that took part."""
    problem, starts = federation("abc"), {"a": 0, "b": 4, "c": 11}
    gradients = {site: numpy_gradient(problem, first + np.arange(SIZES[site])) for site, first in starts.items()}
    totals = [sum(SIZES[site] for site in sites) for sites in present]
    return [
        [(SIZES[site] / total, [gradients[site]] * STEPS[site]) for site in sites]
        for sites, total in zip(present, totals, strict=True)
    ]
