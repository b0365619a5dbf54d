"""Question: a state of a run at which a site is asked for local steps or for its loss, held against the site's rules."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message

from fedlocal import recipes
from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.engines.flower import records
from fedlocal.engines.flower.jobs import Job
from fedlocal.engines.flower.letters import Letter, Letters
from fedlocal.engines.flower.policy import Refused
from fedlocal.engines.flower.site import Site, state_of

NUMBER = "number."


class Question:
    """What a message asks of a site. `open` reads it; until then only its plain values are known."""

    def __init__(self, site: Site, config: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.site, self.config, self.arrays = site, config, arrays
        self.description = {n: v for n, v in config.items() if n == "method" or n.startswith("method.")}
        try:
            self.job = Job.from_config(config)
        except ValueError as error:  # about what the server sent, not about data
            raise Refused(str(error)) from None

    @classmethod
    def read(cls, message: Message, context: Context, site: Site) -> "Question":
        return cls(site, records.only_config(message.content), records.only_arrays(message.content))

    def precision(self) -> Any:
        """A context in which JAX computes as exactly as the state is given."""
        return jax.enable_x64(any(a.dtype == np.float64 for a in self.arrays.values()))

    def open(self, context: Context) -> None:
        """Read the problem, the method and the state; refuse what the site's rules do not allow."""
        self.scaling = self.site.scaling(context, self.config)
        self.problem = self.site.problem(context, self.scaling)
        self.site.check_round(context, self.job, self.description, self.problem)
        self.x0 = jax.tree.map(jnp.zeros_like, parameters_of(self.problem))
        leaves, treedef = jax.tree.flatten(self.x0)
        frozen = tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in sorted(self.description.items()))
        try:
            self.method, self.letters = _letters(frozen, treedef, tuple((a.shape, str(a.dtype)) for a in leaves))
        except ValueError as error:
            raise Refused(str(error)) from None
        try:
            numbers = {n.removeprefix(NUMBER): float(v) for n, v in self.config.items() if n.startswith(NUMBER)}
        except (TypeError, ValueError):
            raise Refused("a number of the state is not a number") from None
        self.letter = Letter(self.arrays, numbers)
        try:
            self.letters.check(self.letter)
        except ValueError as error:
            raise Refused(f"the model does not fit this site's data: {error}") from None
        self.sent = jax.tree.map(jnp.asarray, self.letters.read_down(self.letter))
        self.place = (context.run_id, recipes.digest(self.description), self.job.round)
        self.site.check_state(self.place, state_of(self.arrays, numbers))
        moments = {n: v for n, v in self.config.items() if n.startswith("moments.")}
        self.state = state_of(self.arrays, numbers, self.description, self.job.to_config(), moments)


@lru_cache(maxsize=8)
def _letters(
    description: tuple[tuple[str, Any], ...], treedef: Any, leaves: tuple[Any, ...]
) -> tuple[LocalMethod, Letters]:
    """The method of a description and its letters, for parameters of this form."""
    method = recipes.rebuild({name: list(v) if isinstance(v, tuple) else v for name, v in description})
    return method, Letters(method, jax.tree.unflatten(treedef, [jnp.zeros(*leaf) for leaf in leaves]))


def parameters_of(problem: AbstractProblem) -> Params:
    """Shapes and types of a problem's parameters."""
    return jax.eval_shape(problem.init, jax.random.key(0))
