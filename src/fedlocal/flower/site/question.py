"""Question: a state of a run at which a site is asked for local steps or for its loss, checked against the site's rules."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message

from fedlocal.core import LocalMethod
from fedlocal.flower.messages import records
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.messages.serialization import Payload, StateSerializer
from fedlocal.flower.site.policy import Refused
from fedlocal.flower.site.site import Site, state_of
from fedlocal.methods import method_spec

NUMBER = "number."


class Question:
    """What a message asks of a site. `open` reads it; until then only its plain values are known."""

    def __init__(self, site: Site, message: Message):
        self.site, self.config = site, records.only_config(message.content)
        self.arrays = records.only_arrays(message.content)
        self.description = {n: v for n, v in self.config.items() if n == "method" or n.startswith("method.")}
        try:
            self.settings = RoundSettings.from_config(self.config)
        except ValueError as error:  # about what the server sent, not about data
            raise Refused(str(error)) from None

    def precision(self) -> Any:
        """Return a context in which JAX computes in the precision of the state."""
        return jax.enable_x64(any(a.dtype == np.float64 for a in self.arrays.values()))

    def open(self, context: Context) -> None:
        """Read the problem, the method and the state; refuse what the site's rules do not allow."""
        self.scaling = self.site.scaling(context, self.config)
        self.problem = self.site.problem(context, self.scaling)
        self.site.check_round(context, self.settings, self.description, self.problem)
        self.x0 = jax.tree.map(jnp.zeros_like, self.site.parameters(self.problem))
        leaves, treedef = jax.tree.flatten(self.x0)
        frozen = tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in sorted(self.description.items()))
        try:
            self.method, self.serializer = _serializer(frozen, treedef, tuple((a.shape, str(a.dtype)) for a in leaves))
        except ValueError as error:
            raise Refused(str(error)) from None
        try:
            numbers = {n.removeprefix(NUMBER): float(v) for n, v in self.config.items() if n.startswith(NUMBER)}
        except (TypeError, ValueError):
            raise Refused("a number of the state is not a number") from None
        self.payload = Payload(self.arrays, numbers)
        try:
            self.serializer.check(self.payload)
        except ValueError as error:
            raise Refused(f"the model does not fit this site's data: {error}") from None
        self.sent = jax.tree.map(jnp.asarray, self.serializer.read_down(self.payload))
        self.place = (context.run_id, method_spec.digest(self.description), self.settings.round)
        self.site.check_state(self.place, state_of(self.arrays, numbers))
        moments = {n: v for n, v in self.config.items() if n.startswith("moments.")}
        self.state = state_of(self.arrays, numbers, self.description, self.settings.to_config(), moments)


@lru_cache(maxsize=8)
def _serializer(
    description: tuple[tuple[str, Any], ...], treedef: Any, leaves: tuple[Any, ...]
) -> tuple[LocalMethod, StateSerializer]:
    """Return the method of a description and its serializer, for parameters of these shapes."""
    method = method_spec.rebuild({name: list(v) if isinstance(v, tuple) else v for name, v in description})
    return method, StateSerializer(method, jax.tree.unflatten(treedef, [jnp.zeros(*leaf) for leaf in leaves]))
