"""Successive halving over pairs of step sizes: all pairs run a few rounds, the best go on from there, a few run all rounds.

With s stages, a factor f and R rounds, stage i = 1, ..., s ends after R / f^(s-i) rounds, taken up to the next evaluation. After
each stage but the last one the pairs are ranked by the score of the study, over the same part of the rounds so far as the
study's window is of all R, on average over the seeds; one of f goes on, at least `final_pairs`, and just these to the last
stage. Pairs that diverged with any seed do not go on. Where fewer stages lead to the final pairs, the earliest are left out.

A pair that is slow at first and best in the end may be dropped, which is what halving pays for its speed.

Reference: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016. Differs
from it: the number of stages is fixed, and so are the pairs that run all rounds.
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd

from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.runner.pair_sweeps import (
    PAIR,
    CompositeObjective,
    Pair,
    ended_pairs,
    options,
    pair_scores,
    sweep_history,
)
from fedlocal.experiments.runner.settings import TunedStudySettings
from fedlocal.experiments.runner.store import Store
from fedlocal.simulation.engines import EngineName, engine_name
from fedlocal.simulation.plan import Sampling
from fedlocal.simulation.run import Run, RunArguments
from fedlocal.simulation.sweeps.dropping import drop_cells


class Stage(NamedTuple):
    """Rounds after which pairs are compared, and how many pairs run so far if none diverges."""

    rounds: int
    pairs: int


def grid_pairs(settings: TunedStudySettings) -> list[Pair]:
    """Return all pairs of step sizes, in the order of the cells of a sweep."""
    return [(pair["client_step_size"], pair["server_step_size"]) for pair in settings.grid.pairs()]


def stages(settings: TunedStudySettings) -> list[Stage]:
    """Return the stages: no more than are needed to come to the final pairs, and one for each round of evaluation."""
    rule, every, pairs = settings.tuning, settings.eval_every, [len(grid_pairs(settings))]
    while len(pairs) < rule.stages and pairs[-1] > rule.final_pairs:
        pairs.append(max(rule.final_pairs, math.ceil(pairs[-1] / rule.factor)))
    pairs[-1] = min(pairs[-1], rule.final_pairs) if len(pairs) > 1 else pairs[-1]
    found: list[Stage] = []
    for later, count in zip(range(len(pairs) - 1, -1, -1), pairs, strict=True):
        rounds = min(settings.rounds, every * math.ceil(settings.rounds / rule.factor**later / every))
        if not found or rounds > found[-1].rounds:
            found.append(Stage(rounds, count))
    return found


def survivors(settings: TunedStudySettings, history: Any, rounds: int, most: int) -> list[Pair]:
    """Return the pairs with the best scores after some rounds, best first, at most this many; of equal ones the faster.

    Args:
        settings: settings of the study.
        history: rows of one method with all seeds.
        rounds: rounds so far.
        most: pairs that go on.
    """
    score = settings.score
    scores = pair_scores(history, score, rounds, math.ceil(score.window * rounds / settings.rounds))
    ranked: Any = scores.round(12).sort_values(["score", "overall"], ascending=not score.largest, kind="stable")
    return ranked.index.tolist()[:most]  # a pair without a score, whose metric is not finite, is the last one


class Halving:
    """The successive halving of one method.

    Args:
        name: label of the method.
        objectives: objective of each seed.
        settings: settings of the study.
        store: keeps the history of each stage, and the checkpoint from which the next one goes on.
    """

    def __init__(
        self, name: str, objectives: Mapping[int, CompositeObjective], settings: TunedStudySettings, store: Store
    ):
        self.name, self.objectives, self.settings, self.store = name, objectives, settings, store
        self.pairs = grid_pairs(settings)
        self.dropped: dict[int, dict[Pair, int]] = {seed: {} for seed in objectives}  # pair -> round, by seed

    def histories(self) -> list[pd.DataFrame]:
        """Return the history of each seed; stages that are stored are read, the others are run.

        The column `dropped` is the round after which a pair did not go on, missing for those that ran all rounds or diverged.
        """
        plan = stages(self.settings)
        for stage, following in pairwise(plan):
            reached = self._reached(stage.rounds)
            kept = survivors(self.settings, pd.concat(reached.values()), stage.rounds, following.pairs)
            for seed, history in reached.items():
                ended = {*kept, *ended_pairs(history, "diverged"), *self.dropped[seed]}
                self.dropped[seed] |= {pair: stage.rounds for pair in self.pairs if pair not in ended}
        return list(self._reached(plan[-1].rounds).values())

    def _reached(self, rounds: int) -> dict[int, pd.DataFrame]:
        """Return the history of each seed up to this round."""
        end = "" if rounds == self.settings.rounds else f"-{rounds}"
        return {
            seed: self.store.frame(f"{self.name}-{seed}{end}", lambda _, seed=seed: self._run(seed, rounds)).assign(
                method=self.name, seed=seed
            )
            for seed in self.objectives
        }

    def _run(self, seed: int, rounds: int) -> pd.DataFrame:
        """Run the pairs that are left up to this round, from where they are."""
        objective, settings, dropped = self.objectives[seed], self.settings, self.dropped[seed]
        # the last stage's part has this name, so that the store deletes the checkpoint with it
        checkpoint = self.store.checkpoint(f"{self.name}-{seed}")
        drop_cells(checkpoint, (self.pairs.index(pair) for pair in dropped))
        run = options(settings) | {"rounds": rounds, "eval_every": settings.eval_every, "metrics": objective.metrics}
        run |= {"seed": seed, "checkpoint": checkpoint, "engine": self._engine(seed)}
        method = composite_method(self.name, objective.regularizer)
        history = sweep_history(objective.problem, method, settings.grid.pairs(), **run)
        ends = pd.Series([dropped.get(pair) for pair in zip(*(history[name] for name in PAIR), strict=True)])
        history = history.assign(dropped=ends.astype("Int64"))
        history["diverged"] = history["diverged"].where(history["dropped"].isna())  # for the sweep it ended there
        return history[history["dropped"].isna() | (history["round"] <= history["dropped"])].reset_index(drop=True)

    def _engine(self, seed: int) -> EngineName:
        """Return the engine that a sweep over all rounds would choose: it goes by the rounds, of which a stage has fewer."""
        objective, s = self.objectives[seed], self.settings
        methods = [composite_method(self.name, objective.regularizer, *pair) for pair in self.pairs]
        sampling = Sampling(None, s.local_epochs, s.batch_size, s.clients_per_round, s.weights, seed, "uniform")
        asked = RunArguments(sampling, s.rounds, s.eval_every, None, objective.metrics, None)
        return engine_name("sweep", "auto", Run.make("sweep", objective.problem, methods[0], asked), methods)


def reached_rounds(settings: TunedStudySettings, history: Any) -> list[str]:
    """Return one sentence for each method about how many pairs of step sizes ran how many rounds; none without halving."""
    if settings.tuning.search != "halving":
        return []
    every, notes = len(grid_pairs(settings)), []
    for name in settings.methods:
        own = history[history["method"] == name]
        diverged, dropped = ended_pairs(own, "diverged"), ended_pairs(own, "dropped")
        dropped = {pair: r for pair, r in dropped.items() if pair not in diverged}
        last = own.groupby([*PAIR, "seed"])["round"].max()
        ran, saved = last.sum(), (settings.rounds - last[last.index.droplevel("seed").isin(dropped)]).sum()
        ends = [
            f"{len(diverged)} diverged",
            *(f"{n} ran {r} rounds" for r, n in sorted(Counter(dropped.values()).items())),
        ]
        ends.append(f"{every - len(diverged) - len(dropped)} all {settings.rounds}")
        part = f"{ran / (ran + saved):.0%} of the rounds that all pairs would have run"
        notes.append(f"successive halving of {name}: of {every} pairs of step sizes {', '.join(ends)}; {part}")
    return notes
