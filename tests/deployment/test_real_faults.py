"""What goes wrong with real processes is survived, told, and does not change what is computed.

One story, of two runs over the same three sites at the same time. `steady` needs two of the sites, `strict` all of them.
b is killed while it works, so `steady` goes on without it and `strict` gives up. Then the server app of `steady` is killed.
b comes back, and both runs are started again. In two rounds c answers nan to `steady`.
"""

import os
import re
import signal
import time
from typing import Any, NamedTuple

import pytest

pytest.importorskip("flwr")

import numpy as np

from conformance.federation import MASK, flat, numpy_gradient
from deployment.stage import SIZES, STEPS, Stage, federation, stage
from flower_processes import poll
from oracles import transcripts

pytestmark = pytest.mark.xdist_group("flower")
ROUNDS, POISONED = 8, {1, 6}
STEADY, STRICT = "fed_dual_avg", "fed_mid"


class Story(NamedTuple):
    stage: Stage
    struck: int  # the round in which b was killed
    kept: int  # rounds of `strict` that were done when it gave up
    complaint: str  # what it said then
    patience: int  # the seconds after which it did


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    began = time.monotonic()
    with stage(folder) as s:
        marker = folder / "hold"
        sites = {
            "a": s.site("a"),
            "b": s.site("b", hold=str(marker), hold_from=2),
            "c": s.site("c", poison=",".join(map(str, POISONED))),
        }
        for site in sites.values():
            site.node_id()
        timeout = max(10, round(time.monotonic() - began))  # on a busy machine everything takes longer, also an answer
        common: dict[str, Any] = {"rounds": ROUNDS, "batch_size": 0, "timeout": timeout}
        steady = {"methods": STEADY, "min_clients": 2, "patience": 300, **common}
        strict = {"methods": STRICT, "min_clients": 3, "patience": timeout, **common}
        runs = [s.run("strict", **strict), s.run("steady", **steady)]

        poll(lambda: s.progress("strict", STRICT)[0] >= 1 or None, "a round of strict", 600)
        marker.touch()
        reached = marker.with_suffix(".reached")
        poll(lambda: reached.exists() or None, "b in round 3", 600)
        sites["b"].kill9()
        struck = int(reached.read_text())
        marker.unlink()

        poll(lambda: s.progress("steady")[0] > struck + 1 or None, "two rounds of steady without b", 600)
        os.kill(int((folder / "steady" / STEADY / "pid").read_text()), signal.SIGKILL)
        assert runs[0].wait(600) == "finished:failed"
        kept = s.progress("strict", STRICT)[0]
        s.site("b").node_id()
        again = [s.run("strict", **{**strict, "patience": 300}), s.run("steady", **steady)]
        assert [run.wait(600) for run in again] == ["finished:completed"] * 2, s.link.logs()
        yield Story(s, struck, kept, runs[0].log(), timeout)


def test_the_events_say_who_was_left_out_of_which_round(story: Story):
    absent = left_out(story.stage, "steady", STEADY)
    (resumed,) = resumed_after(story.stage, "steady", STEADY)
    assert absent["a"] == {}
    assert set(absent["c"]) == POISONED
    assert all("nan or inf in y/" in why for why in absent["c"].values())
    assert set(absent["b"]) == set(range(story.struck, resumed))  # it was back before the second run
    assert resumed < ROUNDS
    assert absent["b"].pop(story.struck) == "no answer in time; left out"
    assert set(absent["b"].values()) == {"not connected; left out"}


def test_the_model_is_that_of_the_sites_that_took_part(story: Story):
    absent = left_out(story.stage, "steady", STEADY)
    present = [[site for site in "abc" if r not in absent[site]] for r in range(ROUNDS)]
    want = transcripts.fed_dual_avg(np.zeros(7), rounds(present), 0.05, 0.7, transcripts.l1(0.3, MASK))[-1]
    np.testing.assert_allclose(flat(story.stage.model("steady", STEADY)), want, rtol=0, atol=1e-9)
    full = transcripts.fed_dual_avg(np.zeros(7), rounds(["abc"] * ROUNDS), 0.05, 0.7, transcripts.l1(0.3, MASK))[-1]
    assert np.abs(want - full).max() > 1e-4  # who takes part matters


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
