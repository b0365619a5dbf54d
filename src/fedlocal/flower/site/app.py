"""The ClientApp that a site runs. Its data stay where they are; a method's message and a few numbers leave."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedlocal import metrics
from fedlocal.core import Memory
from fedlocal.data.moments import Moments
from fedlocal.flower._flwr.messages import Mod
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import ARRAYS, CONFIG, EXAMPLES, METRICS, WEIGHT
from fedlocal.flower.messages.text import clean, traceback_of
from fedlocal.flower.site import rows
from fedlocal.flower.site.audit import CURVATURE, EVALUATE, HELLO, MOMENTS, TRAIN, SiteRecord
from fedlocal.flower.site.certificate_terms import KINDS, gradient_at, l2_of
from fedlocal.flower.site.policy import Agreement, Policy, Refused
from fedlocal.flower.site.question import Question
from fedlocal.flower.site.rows import examples_of
from fedlocal.flower.site.site import ProblemForNode, Site, site_name
from fedlocal.flower.site.timed_round import local_round
from fedlocal.problems.data_problem import DataProblem
from fedlocal.util import serialization
from fedlocal.util.hashing import fingerprint

MEMORY, BEFORE, LAST = "fedlocal-memory", "fedlocal-memory-before", "fedlocal-last"  # kept between messages
CERTIFICATE, NOTICE = "certificate", "notice"
TAKEN = {"loss", EXAMPLES, WEIGHT, "round", "sites", "objective", "l2"}
Evaluate = Callable[..., dict[str, float]]  # (context, model), or (context, model, scaling)
log = logging.getLogger("fedlocal")


class SiteApp(ClientApp):
    """A ClientApp that can be asked for its policy and can look at its data before it connects."""

    def __init__(self, site_of: Callable[[Context], Site], columns_for_node: Any):
        super().__init__()
        self.site_of, self.columns_for_node = site_of, columns_for_node

    def check(self, context: Context) -> dict[str, Any]:
        """Read the site's data and check them against its policy; return what there is, for the screen."""
        site = self.site_of(context)
        problem = site.problem(context)
        columns = None if self.columns_for_node is None else self.columns_for_node(context)
        moments = None if site.moments_for_node is None else site.moments(context)
        rare = site.rare_columns(context)
        return {
            "policy": site.policy,
            "rows": examples_of(problem),
            "effective rows": rows.at_zero(problem)[1],
            "columns": columns,
            "moments": moments,
            "left out": [columns[i] if columns else f"column {i + 1}" for i in rare],
        }


def client_app(
    problem_for_node: ProblemForNode,
    *,
    moments_for_node: Callable[[Context], Moments] | None = None,
    columns_for_node: Callable[[Context], Sequence[str] | None] | None = None,
    evaluate: Evaluate | None = None,
    mods: list[Mod] | None = None,
    agreement: Agreement | None = None,
    policy: Policy = Policy(),  # noqa: B008  (frozen)
) -> SiteApp:
    """A Flower ClientApp for any method: the message says which, the site's own problem gives the gradients.

    Args:
        problem_for_node: from Flower's context (`context.node_config["data"]`) to the site's losses, a problem of one client;
            called with a `Scaling`, too, where the server standardises the features, and in the precision of the run.
        moments_for_node: the moments of the site's features, for the server's `standardize=True`.
        columns_for_node: the names of the site's features; a site with other ones than the first is refused.
        evaluate: from context, model (and scaling, as above) to further numbers, e.g. the accuracy on rows that the site holds
            out; means over rows, please: what it returns is sent.
        mods: Flower's modifiers, e.g. `fixedclipping_mod`.
        agreement: what this copy of the app says of a run; other settings are refused.
        policy: what the site answers. The file that `policy` of the node's configuration names goes before it, and the
            file that `record` names keeps what was asked.

    Example:
        >>> from fedlocal.flower import client_app
        >>> def problem_for_node(context):
        ...     return my_problem(context.node_config["data"])
        >>> app = client_app(problem_for_node)
    """
    sites: dict[Any, Site] = {}

    def site_of(context: Context) -> Site:
        record, own = (context.node_config.get(name) for name in ("record", "policy"))
        key = (site_name(context), record, own)
        if key not in sites:
            kept = SiteRecord(None if record is None else str(record))
            rules = policy if own is None else Policy.read(str(own))
            sites[key] = Site(problem_for_node, moments_for_node, agreement, rules, kept)
        return sites[key]

    app = SiteApp(site_of, columns_for_node)

    @app.query()
    @_private(site_of, HELLO)
    def hello(message: Message, context: Context) -> RecordDict:
        asked, site = records.only_config(message.content), site_of(context)
        named = ConfigRecord({"site": site_name(context)})
        if NOTICE in asked:
            log.warning("%s: the coordinator says: %s", site_name(context), clean(asked[NOTICE]))
            return RecordDict({CONFIG: named})
        if asked.get("curvature"):
            site.spend(CURVATURE, context.run_id)
            with jax.enable_x64(True):
                found = rows.curvature(site.problem(context, site.scaling(context, asked)))
            return RecordDict({METRICS: MetricRecord({"curvature": found}), CONFIG: named})
        if asked.get("moments"):
            site.spend(MOMENTS, context.run_id)
            moments = records.to_record(serialization.to_arrays(site.moments(context)))
            return RecordDict({ARRAYS: moments, CONFIG: named})
        site.spend(HELLO, context.run_id)
        return _introduction(context, site, None if columns_for_node is None else columns_for_node(context))

    @app.train(mods=mods)
    @_private(site_of, TRAIN)
    def train(message: Message, context: Context) -> RecordDict:
        question = Question(site_of(context), message)
        with question.precision():
            return _train(question, context)

    @app.evaluate()
    @_private(site_of, EVALUATE)
    def assess(message: Message, context: Context) -> RecordDict:
        question = Question(site_of(context), message)
        with question.precision():
            return _assess(question, context, evaluate)

    return app


def _train(question: Question, context: Context) -> RecordDict:
    question.open(context)
    site, settings, method, problem = question.site, question.settings, question.method, question.problem
    _, digest, r = question.place
    plan = site.plan(settings, problem)
    memory = before = _memory(context, r, method.init_memory(question.x0))
    site.check_point(problem, method.primal(method.start(question.sent, memory)))
    site.spend(TRAIN, context.run_id, examples_of(problem), r, question.state)
    message, memory, end = local_round(problem, method, plan, question.sent, memory, r, site.policy.most_seconds)
    if int(plan.steps[0]) > 1 and all(np.isfinite(a).all() for a in jax.tree.leaves(end)):
        site.check_point(problem, end)
    _remember(context, r, before, memory)
    reply = question.serializer.up(question.payload, message)
    content = RecordDict({ARRAYS: records.to_record(reply.arrays)})
    content[METRICS] = MetricRecord({**_weight(question), **reply.numbers})
    content[CONFIG] = ConfigRecord({"round": r, "method": digest, "site": site_name(context)})
    return content


def _assess(question: Question, context: Context, evaluate: Evaluate | None) -> RecordDict:
    """Return the loss of the model in a state of the run, what a certificate needs, and what `evaluate` adds."""
    question.open(context)
    site, problem, config = question.site, question.problem, question.config
    x = jax.device_get(question.method.solution(question.sent))
    site.check_point(problem, x)
    site.spend(EVALUATE, context.run_id, examples_of(problem), question.settings.round, question.state)
    named = _weight(question)
    more = {} if evaluate is None else evaluate(context, x, *(() if question.scaling is None else (question.scaling,)))
    if taken := TAKEN & set(more):
        raise ValueError(f"client_app: evaluate must not call a number {sorted(taken)[0]!r}")
    content = RecordDict()
    if config.get(CERTIFICATE) and site.policy.certificate:
        content[ARRAYS] = records.to_record(serialization.to_arrays(gradient_at(problem, x)))
        content[CONFIG] = ConfigRecord({"kind": KINDS.get(type(problem), "other")})
        named |= l2_of(problem)
    points = jax.tree.map(lambda a: np.asarray(a, np.float64)[None], x)
    loss = float(metrics.losses_in_float64(problem, points, problem.loss_weights(np.ones(1)))[0])
    content[METRICS] = MetricRecord({**named, "loss": loss, **more})
    return content


def _weight(question: Question) -> dict[str, Any]:
    """Return the number of the site's rows and its weight in means."""
    examples = examples_of(question.problem)
    return {EXAMPLES: examples, WEIGHT: float(examples) if question.settings.weights == "examples" else 1.0}


def _private(site_of: Callable[[Context], Site], kind: str) -> Callable[..., Callable[[Message, Context], Message]]:
    """Reply with the answer, or with an error. The text of an exception stays in the site's log: it may quote data."""

    def wrap(answer: Callable[[Message, Context], RecordDict]) -> Callable[[Message, Context], Message]:
        def reply(message: Message, context: Context) -> Message:
            try:
                return Message(answer(message, context), reply_to=message)
            except Refused as error:
                log.warning("%s: refused: %s", site_name(context), clean(error))
                try:
                    site = site_of(context)
                    site.record.note_refusal(site.policy, kind, context.run_id, clean(error))
                except Exception:  # a record that cannot be written is a reason to refuse, not to fail
                    log.exception("%s: the record could not be written", site_name(context))
                return records.error_reply(message, error.reason())
            except Exception as error:
                log.error("%s: the message was not answered\n%s", site_name(context), traceback_of(error))
                return records.error_reply(message, error)

        return reply

    return wrap


def _introduction(context: Context, site: Site, columns: Sequence[str] | None) -> RecordDict:
    """Return the site's name, number of rows, names of columns, names and shapes of parameters; no values."""
    problem = site.problem(context)
    leaves, _ = jax.tree_util.tree_flatten_with_path(site.parameters(problem))
    shapes = {serialization.path_name(path): list(a.shape) for path, a in leaves}
    config: dict[str, Any] = {"site": site_name(context), "names": list(shapes)}
    config |= {f"shape.{name}": shape for name, shape in shapes.items()}
    config["states-left"] = site.record.states_left(site.policy, examples_of(problem))
    content = fingerprint(jax.tree.leaves(problem.data) if isinstance(problem, DataProblem) else problem)
    config["fingerprint"] = site.record.fingerprint(content)
    if columns:
        config["columns"] = [str(column) for column in columns]
    return RecordDict({CONFIG: ConfigRecord(config), METRICS: MetricRecord({EXAMPLES: examples_of(problem)})})


def _memory(context: Context, r: int, first: Memory) -> Memory:
    """Return what the site kept from the last round it took part in; from the one before, when a round is repeated."""
    if MEMORY not in context.state or not jax.tree.leaves(first):
        return first
    kept = BEFORE if context.state.config_records[LAST]["round"] == r else MEMORY
    return serialization.from_arrays(records.from_record(context.state.array_records[kept]), first)


def _remember(context: Context, r: int, before: Memory, after: Memory) -> None:
    """Keep the memory after a round, and that before it: with too few answers the round is repeated."""
    if jax.tree.leaves(after):
        context.state[BEFORE] = records.to_record(serialization.to_arrays(before))
        context.state[MEMORY] = records.to_record(serialization.to_arrays(after))
        context.state[LAST] = ConfigRecord({"round": r})
