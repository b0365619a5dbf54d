"""Site: one site's data, policy and record in this process. Every answer is computed through it."""

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context

from fedlocal.core import AbstractProblem, Params
from fedlocal.data.moments import Moments, Scaling
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.site import rows
from fedlocal.flower.site.audit import SiteRecord
from fedlocal.flower.site.policy import Agreement, Policy, Refused
from fedlocal.problems.data_problem import DataProblem
from fedlocal.simulation.plan import Draws, Plan
from fedlocal.util.hashing import fingerprint

MOMENTS = "moments."  # of the columns over all sites, in a question
INCLUDED = "moments.included"  # True if this site's own are in them
ROUNDING = 1e-6  # relative; the moments of others are differences of large sums
EPSILON = 1e-12  # of sums of squares around means that are far from zero
MOST_OTHERS = 1e6  # values of all sites, as a multiple of one site's
MOST_PLACES = 100_000  # rounds and runs whose states are remembered
FAR = 10.0  # deviations of a site's values between their mean and that of all sites
LARGEST_MAGNIFICATION = 100.0  # of a site's own deviation, by moments that do not include it
ProblemForNode = Callable[..., AbstractProblem]  # (context), or (context, scaling) where features are standardised
log = logging.getLogger("fedlocal")


def site_name(context: Context) -> str:
    """Return the name of a site: `site` of the node's configuration, else its partition, else its node id."""
    config = context.node_config
    return str(config.get("site", config.get("partition-id", context.node_id)))


@dataclass
class Site:
    """A node's data, policy and record of what it was asked."""

    problem_for_node: ProblemForNode
    moments_for_node: Callable[[Context], Moments] | None
    agreement: Agreement | None
    policy: Policy
    record: SiteRecord
    # one per precision: what it was made of, itself, and its parameters, curvature and loss of the zero model once found
    _problems: dict[Any, tuple[Any, AbstractProblem, dict[str, Any]]] = field(default_factory=dict)
    _columns: dict[Any, tuple[np.ndarray, Moments | None]] = field(default_factory=dict)  # the rare ones, and moments
    _states: dict[tuple[Any, ...], str] = field(default_factory=dict)  # what was sent in which round of which run
    _spending: threading.Lock = field(default_factory=threading.Lock)  # short questions are answered side by side

    def problem(self, context: Context, scaling: Scaling | None = None) -> AbstractProblem:
        """Return the site's losses, without columns that are too rare. The data are read once per run and scaling."""
        numbers = () if scaling is None else tuple(a.tobytes() for a in scaling)
        made_with = (context.run_id, tuple(sorted(context.node_config.items())), numbers)
        place = (jnp.result_type(float), scaling is None)
        if self._problems.get(place, (None,))[0] != made_with:
            self._check_data(context)
            problem = self.problem_for_node(context, *(() if scaling is None else (scaling,)))
            clients = problem.num_clients if isinstance(problem, AbstractProblem) else None
            if clients != 1:
                got = type(problem).__name__ if clients is None else f"{clients} clients"
                raise Refused(f"problem_for_node must return a problem of one client, got {got}; see fl.problems.only")
            rows.check_rows(self.policy, problem)
            rare, moments = self._of_columns(context, problem if scaling is None else None)
            if moments is not None:
                rare = np.union1d(rare, self._marking_missing(problem, moments, scaling))
            self._problems[place] = (made_with, rows.without_columns(problem, rare), {})
        return self._problems[place][1]

    def _check_data(self, context: Context) -> None:
        """Refuse data that changed a little since questions about them were answered. They are read anew in every run."""
        with jax.enable_x64(True):
            problem = self.problem_for_node(context)
            if isinstance(problem, DataProblem):
                content = fingerprint(jax.tree.leaves(problem.data))
                self.record.use_data(self.policy, content, rows.examples_of(problem))

    def _marking_missing(self, problem: AbstractProblem, own: Moments, scaling: Scaling | None) -> np.ndarray:
        """Return columns that mark a few rows by their missing value, which counts as the mean of all sites.

        That mean is far from all values here; or it is another one than before, for the difference of answers with two means
        is a sum over the rows that have a value. Without a scaling the mean would be the site's own.
        """
        missing = rows.examples_of(problem) - own.present
        few = (missing > 0) & (missing < self.policy.smallest_cell) & (own.present > 0)
        if scaling is None:
            return np.flatnonzero(few)
        deviation = np.sqrt(own.squares / np.maximum(own.present, 1))
        far = np.abs(np.nan_to_num(scaling.mean) - own.mean) > FAR * deviation
        usual = np.flatnonzero(few & ~far).tolist()
        other = [j for j in usual if self.record.has_other_mean(j, float(scaling.mean[j]))]
        return np.union1d(np.flatnonzero(few & far), other).astype(np.intp)

    def moments(self, context: Context) -> Moments:
        """Return the site's own moments, of columns that are not too rare."""
        if self.moments_for_node is None:
            raise Refused("this site gives no moments; client_app needs moments_for_node")
        self.problem(context)  # with too few rows there are none
        rare, moments = self._of_columns(context, None)
        assert moments is not None
        return rows.moments_without(moments, rare)

    def rare_columns(self, context: Context) -> np.ndarray:
        """Return the places of the columns that the policy leaves out."""
        self.problem(context)
        return self._of_columns(context, None)[0]

    def _of_columns(self, context: Context, problem: AbstractProblem | None) -> tuple[np.ndarray, Moments | None]:
        """Return rare columns and moments of the file, found once per run. Scaling must not change which columns are rare."""
        key = (context.run_id, tuple(sorted(context.node_config.items())))
        if key not in self._columns:
            problem = self.problem_for_node(context) if problem is None else problem
            rare = rows.rare_columns(self.policy, problem)
            moments = None if self.moments_for_node is None else self.moments_for_node(context)
            if moments is not None:  # of columns with a few values no moments are given
                rare = np.union1d(rare, np.flatnonzero(moments.present == 0))
            self._columns = {key: (rare, moments)}
        return self._columns[key]

    def parameters(self, problem: AbstractProblem) -> Params:
        """Return shapes and types of a problem's parameters."""
        return self._fact("parameters", problem, rows.parameters_of)

    def _fact(self, name: str, problem: AbstractProblem, find: Callable[[AbstractProblem], Any]) -> Any:
        """Return what `find` says of a problem, found once while the problem is in use."""
        facts = next((facts for _, known, facts in list(self._problems.values()) if known is problem), {})
        if name not in facts:
            facts[name] = find(problem)
        return facts[name]

    def scaling(self, context: Context, config: Mapping[str, Any]) -> Scaling | None:
        """Return the scaling that the moments in a question give; raise Refused if the site's own moments contradict them."""
        if f"{MOMENTS}mean" not in config:
            return None
        try:
            total = Moments(*(np.asarray(config[f"{MOMENTS}{name}"], np.float64) for name in Moments._fields))
        except (KeyError, ValueError, TypeError):
            raise Refused("the question has no proper moments") from None
        if len({a.shape for a in total}) != 1 or not all(np.isfinite(a).all() for a in total):
            raise Refused("the question has no proper moments")
        plain = {name: value for name, value in config.items() if name.startswith(MOMENTS)}
        self.check_state((context.run_id, MOMENTS), state_of({}, plain), "a run has one scaling")
        own = self.moments(context)
        if own.mean.shape != total.mean.shape:
            raise Refused(f"the question has moments of {total.mean.size} columns, this site has {own.mean.size}")
        wrong = _contradicted(own, total, bool(config.get(INCLUDED, True)))
        if wrong.any():
            column = int(np.argmax(wrong)) + 1
            raise Refused(f"the moments of all sites contradict this site's own, in column {column}", "moments")
        return total.scaling()

    def check_round(
        self, context: Context, settings: RoundSettings, description: Mapping[str, Any], problem: AbstractProblem
    ) -> None:
        """Refuse settings that are not agreed on."""
        if self.agreement is not None:
            chosen = self.agreement.chosen_step_size
            largest = 1 / self._fact("curvature", problem, rows.curvature) if chosen else None
            self.agreement.check(self.policy, description, settings, largest)

    def plan(self, settings: RoundSettings, problem: AbstractProblem) -> Plan:
        """Return the site's part of a round; its minibatches are secret unless the policy says otherwise."""
        try:
            plan = settings.plan(problem)
        except ValueError as error:  # about the settings and the number of rows, which the coordinator knows
            raise Refused(str(error)) from None
        if self.policy.secret_draws:
            numbers = self.record.draw_numbers(settings.seed, settings.client)
            plan = eqx.tree_at(lambda p: (p.seed, p.first), plan, numbers)
            plan = replace(plan, largest=rows.examples_of(problem))  # the rows of a larger site need no memory here
        self._check_batches(problem, plan, settings.round)
        return plan

    def _check_batches(self, problem: AbstractProblem, plan: Plan, r: int) -> None:
        """Refuse minibatches of too few rows, or that show a small part of the rows again and again."""
        if plan.batch_size is None or problem.sizes() is None:
            return
        count, least = rows.examples_of(problem), self.policy.fewest_rows
        if plan.batch_size < least:
            raise self.policy.refusal(f"minibatches have {plan.batch_size} rows", "fewest_rows")
        draws = jax.device_get(plan.draws(plan.round_key(jnp.asarray(r, jnp.int32)), jnp.zeros((), jnp.int32)))
        if not isinstance(draws, Draws):
            return
        shown = len(np.unique(draws.rows))
        if shown < max(min(least, count), self.policy.smallest_share * count):
            what = f"the minibatches of the round show {shown} of {count} rows"
            raise self.policy.refusal(what, "smallest_share")
        if plan.epochs is None and min(len(np.unique(batch)) for batch in draws.rows) < least / 2:
            raise self.policy.refusal("a minibatch repeats a few rows", "fewest_rows")
        last = count % plan.batch_size
        if plan.epochs is not None and 0 < last < min(least, count):
            what = f"the last minibatch of an epoch has {last} of {count} rows"
            raise self.policy.refusal(what, "fewest_rows", more=". Another batch_size leaves more")

    def check_state(self, place: tuple[Any, ...], state: str, rule: str = "a round has one state") -> None:
        """Refuse a second state in a round of a run, and a second scaling in a run."""
        while len(self._states) >= MOST_PLACES and place not in self._states:
            self._states.pop(next(iter(self._states)), None)  # the oldest; a coordinator may name any number of runs
        if self._states.setdefault(place, state) != state:
            raise Refused(f"{rule}, and this run was asked before with another one", "round")

    def check_point(self, problem: AbstractProblem, x: Params) -> None:
        """Refuse a point that singles out rows."""
        rows.check_point(self.policy, problem, x, lambda: self._fact("zero", problem, lambda p: rows.at_zero(p)[0]))

    def spend(
        self,
        kind: str,
        run: int,
        rows: int = 0,
        r: int | None = None,
        state: str | None = None,
    ) -> None:
        """Count a question about so many rows against the budget and write it down, before it is answered."""
        with self._spending:
            self.record.check(self.policy, kind, rows, state)
            self.record.note(kind, run, r, state)


def _contradicted(own: Moments, total: Moments, included: bool) -> np.ndarray:
    """Return (d,) True for columns in which the moments of all sites contradict one site's own.

    What is left for the others, total less own (the reverse of `Moments.merge`), must be moments of so many rows.
    """
    rounding = EPSILON * total.present * np.maximum(total.mean**2, own.mean**2)
    slack = ROUNDING * (np.abs(total.squares) + own.squares) + rounding
    if not included:
        own_variance, variance = (m.squares / np.maximum(m.present, 1) for m in (own, total))
        return (own.present > 0) & (total.present > 0) & (variance * LARGEST_MAGNIFICATION**2 < own_variance)
    others = total.present - own.present
    apart = np.where(others > 0, (total.mean - own.mean) * total.present / np.maximum(others, 1), 0.0)
    between = apart**2 * own.present * others / np.maximum(total.present, 1)
    left = total.squares - own.squares - between
    size = ROUNDING * np.maximum(np.abs(own.mean), np.sqrt(own.squares / np.maximum(own.present, 1)))
    alone = (others == 0) & (own.present > 0) & (np.abs(total.mean - own.mean) > size)
    alone |= (others == 0) & (np.abs(left) > slack)
    too_many = (own.present > 0) & (total.present > MOST_OTHERS * own.present)  # of a column that is left out here: any
    return (others < 0) | (left < -slack) | alone | too_many


def state_of(arrays: Mapping[str, np.ndarray], *plain: Mapping[str, Any]) -> str:
    """Return a hash of what a question holds."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    for values in plain:
        digest.update(repr(sorted(values.items())).encode())
    return digest.hexdigest()
