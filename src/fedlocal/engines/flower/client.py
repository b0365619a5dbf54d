"""client_app: what a site runs. Its data stay where they are; what leaves is a method's message and a few numbers."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.common.constant import ErrorCode

from fedlocal import metrics, recipes, wire
from fedlocal.core import AbstractProblem, LocalMethod, Memory, Params
from fedlocal.core import Message as Sent
from fedlocal.data.moments import Moments, Scaling
from fedlocal.engines.flower import records
from fedlocal.engines.flower.jobs import Job
from fedlocal.engines.flower.letters import Letter, Letters
from fedlocal.engines.flower.records import ARRAYS, CONFIG, EXAMPLES, METRICS, WEIGHT
from fedlocal.engines.plan import Plan
from fedlocal.engines.rounds import local_steps

MEMORY, BEFORE, LAST = (
    "fedlocal-memory",
    "fedlocal-memory-before",
    "fedlocal-last",
)  # what a site keeps between messages
SCALING = "scaling."
NUMBER = "number."
ProblemForNode = Callable[..., AbstractProblem]  # (context), or (context, scaling) where features are standardised
Evaluate = Callable[..., dict[str, float]]  # (context, model), or (context, model, scaling)
log = logging.getLogger("fedlocal")


class Refused(ValueError):
    """What a site says of a message it does not accept. Its text goes back to the server, so no data may be in it."""


def client_app(
    problem_for_node: ProblemForNode,
    *,
    moments_for_node: Callable[[Context], Moments] | None = None,
    columns_for_node: Callable[[Context], Sequence[str] | None] | None = None,
    evaluate: Evaluate | None = None,
    mods: list[Mod] | None = None,
) -> ClientApp:
    """A Flower ClientApp for any method: the message says which, the site's own problem gives the gradients.

    Args:
        problem_for_node: from Flower's context (`context.node_config["data"]`) to the site's losses, a problem of one client;
            called with a `Scaling`, too, where the server standardises the features, and in the precision of the run.
        moments_for_node: the moments of the site's features, for the server's `standardize=True`.
        columns_for_node: the names of the site's features; a site with other ones than the first is refused.
        evaluate: from context, model (and scaling, as above) to further numbers, e.g. the accuracy on rows that the site holds
            out; means over rows, please: what it returns is sent.
        mods: Flower's modifiers, e.g. `fixedclipping_mod`.

    Example:
        >>> from fedlocal.engines.flower import client_app
        >>> def problem_for_node(context):
        ...     return my_problem(context.node_config["data"])
        >>> app = client_app(problem_for_node)
    """
    app = ClientApp()
    site_problem = _remembered(problem_for_node)

    @app.query()
    @_discreet
    def hello(message: Message, context: Context) -> RecordDict:
        wanted = records.only_config(message.content)
        if wanted.get("moments"):
            if moments_for_node is None:
                raise Refused("this site gives no moments; client_app needs moments_for_node")
            return _moments(context, moments_for_node(context))
        return _introduction(context, site_problem, None if columns_for_node is None else columns_for_node(context))

    @app.train(mods=mods)
    @_discreet
    def train(message: Message, context: Context) -> RecordDict:
        config, arrays = records.only_config(message.content), records.only_arrays(message.content)
        with jax.enable_x64(any(a.dtype == np.float64 for a in arrays.values())):
            return _train(config, arrays, context, site_problem)

    @app.evaluate()
    @_discreet
    def assess(message: Message, context: Context) -> RecordDict:
        config, arrays = records.only_config(message.content), records.only_arrays(message.content)
        with jax.enable_x64(any(a.dtype == np.float64 for a in arrays.values())):
            problem = _problem(site_problem, context, config)
            x = wire.from_arrays(arrays, _parameters(problem))
            examples = _examples(problem)
            more = {} if evaluate is None else evaluate(context, x, *_scaling(config))
            taken = {"loss", EXAMPLES, WEIGHT, "round", "sites", "objective"} & set(more)
            if taken:
                raise ValueError(f"client_app: evaluate must not call a number {sorted(taken)[0]!r}")
            numbers = {"loss": _loss(problem, x), **more}
            weight = examples if config.get("weights") == "examples" else 1.0
            return RecordDict({METRICS: MetricRecord({EXAMPLES: examples, WEIGHT: weight, **numbers})})

    return app


def site_name(context: Context) -> str:
    """What a site is called: `site` of the node's configuration, else its partition, else its node id."""
    config = context.node_config
    return str(config.get("site", config.get("partition-id", context.node_id)))


def _remembered(problem_for_node: ProblemForNode) -> ProblemForNode:
    """Read the data once per run where a process answers more than one message."""
    problems: dict[Any, tuple[Any, AbstractProblem]] = {}  # the last one of each node, and what it was made with

    def problem(context: Context, *scaling: Scaling) -> AbstractProblem:
        place = (context.node_id, jnp.result_type(float))
        numbers = tuple(a.tobytes() for s in scaling for a in s)
        made_with = (context.run_id, tuple(sorted(context.node_config.items())), numbers)
        if problems.get(place, (None,))[0] != made_with:
            problems[place] = (made_with, problem_for_node(context, *scaling))
        return problems[place][1]

    return problem


@lru_cache(maxsize=8)
def _letters(
    description: tuple[tuple[str, Any], ...], treedef: Any, leaves: tuple[Any, ...]
) -> tuple[LocalMethod, Letters]:
    """The method of a description and its letters, for parameters of this form."""
    method = recipes.rebuild({name: list(v) if isinstance(v, tuple) else v for name, v in description})
    return method, Letters(method, jax.tree.unflatten(treedef, [jnp.zeros(*leaf) for leaf in leaves]))


def _discreet(
    answer: Callable[[Message, Context], RecordDict],
) -> Callable[[Message, Context], Message]:
    """Send an answer, or that there is none. What an exception says stays in the site's log: it may quote data."""

    def reply(message: Message, context: Context) -> Message:
        try:
            return Message(answer(message, context), reply_to=message)
        except Refused as error:
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}; the log of the site says more"
            log.exception("%s: the message was not answered", site_name(context))
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)

    return reply


def _introduction(context: Context, problem_for_node: ProblemForNode, columns: Sequence[str] | None) -> RecordDict:
    """Name of the site, number of its examples, names of its columns, names and shapes of its parameters; no values."""
    problem = problem_for_node(context)
    _check_one_client(problem)
    leaves, _ = jax.tree_util.tree_flatten_with_path(_parameters(problem))
    shapes = {wire.path_name(path): list(a.shape) for path, a in leaves}
    config: dict[str, Any] = {"site": site_name(context), "names": list(shapes)}
    config |= {f"shape.{name}": shape for name, shape in shapes.items()}
    if columns:
        config["columns"] = [str(column) for column in columns]
    return RecordDict({CONFIG: ConfigRecord(config), METRICS: MetricRecord({EXAMPLES: _examples(problem)})})


def _moments(context: Context, moments: Moments) -> RecordDict:
    config = ConfigRecord({"site": site_name(context)})
    return RecordDict({ARRAYS: records.to_record(wire.to_arrays(moments)), CONFIG: config})


def _train(
    config: dict[str, Any], arrays: dict[str, np.ndarray], context: Context, problem_for_node: ProblemForNode
) -> RecordDict:
    """One round on this site."""
    try:
        job = Job.from_config(config)
    except ValueError as error:  # about what the server sent, not about data
        raise Refused(str(error)) from None
    description = {n: v for n, v in config.items() if n == "method" or n.startswith("method.")}
    problem = _problem(problem_for_node, context, config)
    x0 = jax.tree.map(jnp.zeros_like, _parameters(problem))
    leaves, treedef = jax.tree.flatten(x0)
    frozen = tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in sorted(description.items()))
    try:
        method, letters = _letters(frozen, treedef, tuple((a.shape, str(a.dtype)) for a in leaves))
    except ValueError as error:
        raise Refused(str(error)) from None
    numbers = {n.removeprefix(NUMBER): float(v) for n, v in config.items() if n.startswith(NUMBER)}
    letter = Letter(arrays, numbers)
    try:
        letters.check(letter)
    except ValueError as error:
        raise Refused(f"the model does not fit this site's data: {error}") from None
    memory = before = _memory(context, job.round, method.init_memory(x0))
    sent = jax.tree.map(jnp.asarray, letters.read_down(letter))
    message, memory = jax.device_get(
        _round(problem, method, job.plan(problem), sent, memory, jnp.asarray(job.round, jnp.int32))
    )
    _remember(context, job.round, before, memory)
    reply, examples = letters.up(letter, message), _examples(problem)
    weight = float(examples) if job.weights == "examples" else 1.0
    return RecordDict(
        {
            ARRAYS: records.to_record(reply.arrays),
            METRICS: MetricRecord({EXAMPLES: examples, WEIGHT: weight, **reply.numbers}),
            CONFIG: ConfigRecord(
                {"round": job.round, "method": recipes.digest(description), "site": site_name(context)}
            ),
        }
    )


@jax.jit
def _round(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, sent: Any, memory: Memory, r: jax.Array
) -> tuple[Sent, Memory]:
    """What `simulate` does for one client."""
    message, kept, _ = local_steps(
        problem,
        method,
        plan,
        average=None,
        total_steps=0.0,
        sent=sent,
        key=plan.round_key(r),
        r=r,
        axis=None,
        running=None,
        cohort=jnp.zeros(1, jnp.int32),
        weights=jnp.ones(1),
        memory=jax.tree.map(lambda a: jnp.asarray(a)[None], memory),
    )
    return jax.tree.map(lambda a: a[0], (message, kept))


def _memory(context: Context, r: int, first: Memory) -> Memory:
    """What the site kept from the last round it took part in; from the one before, when a round is repeated."""
    if MEMORY not in context.state:
        return first
    repeated = context.state.config_records[LAST]["round"] == r
    return wire.from_arrays(records.from_record(context.state.array_records[BEFORE if repeated else MEMORY]), first)


def _remember(context: Context, r: int, before: Memory, after: Memory) -> None:
    """Keep what a round began with, too: with too few answers it is repeated."""
    if jax.tree.leaves(after):
        context.state[BEFORE] = records.to_record(wire.to_arrays(before))
        context.state[MEMORY] = records.to_record(wire.to_arrays(after))
        context.state[LAST] = ConfigRecord({"round": r})


def _problem(problem_for_node: ProblemForNode, context: Context, config: dict[str, Any]) -> AbstractProblem:
    """The site's problem, its features standardised as the server says."""
    problem = problem_for_node(context, *_scaling(config))
    _check_one_client(problem)
    return problem


def _scaling(config: dict[str, Any]) -> list[Scaling]:
    """The scaling that the server says, if it says one."""
    if f"{SCALING}mean" not in config:
        return []
    return [Scaling(*(np.asarray(config[f"{SCALING}{name}"], np.float64) for name in Scaling._fields))]


def _check_one_client(problem: Any) -> None:
    if not isinstance(problem, AbstractProblem) or problem.num_clients != 1:
        got = f"{problem.num_clients} clients" if isinstance(problem, AbstractProblem) else type(problem).__name__
        raise Refused(f"problem_for_node must return a problem of one client, got {got}; see fl.problems.only")


def _parameters(problem: AbstractProblem) -> Params:
    return jax.eval_shape(problem.init, jax.random.key(0))


def _examples(problem: AbstractProblem) -> int:
    sizes = problem.sizes()
    return 1 if sizes is None else int(sizes[0])


def _loss(problem: AbstractProblem, x: Params) -> float:
    """F_m(x), in float64."""
    x = jax.tree.map(lambda a: np.asarray(a, np.float64)[None], x)
    return float(metrics.losses_in_float64(problem, x, problem.loss_weights(np.ones(1)))[0])
