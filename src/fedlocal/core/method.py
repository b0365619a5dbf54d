"""LocalMethod: the contract of a federated method. It is data plus pure functions."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import equinox as eqx

from fedlocal.core.regularizer import Regularizer, Separable, Zero
from fedlocal.core.types import GradFn, Params, Scalar


class Proximal(NamedTuple):
    """Where a regulariser enters an otherwise affine recurrence of one vector.

    Dual (averaging): the gradient is taken at prox(query'S, walked), where walked, the last part of the server's state, grows
    by `step` in each local step and by server_step times the clients' mean in a round. Otherwise (mirror descent): prox(., step)
    after each local step, and prox(., server_step times the mean length walked) after the server's, that of server_psi, which
    is psi if it is None.
    """

    psi: Separable
    step: Scalar
    server_step: Scalar
    dual: bool
    on_clients: bool
    server_psi: Separable | None = None


class Affine(NamedTuple):
    """A method whose rounds are affine recurrences of vectors of the shape of x, so that an engine may fuse them.

    With V the server's vectors (its state, in order) and S a client's:
        S = start V;   K times: g = gradient at query'S, S <- transition S - gain g;   V <- keep V + take mean(S).
    """

    query: Any  # (s,)
    transition: Any  # (s, s)
    gain: Any  # (s,)
    start: Any  # (s, v)
    keep: Any  # (v, v)
    take: Any  # (v, s)
    proximal: Proximal | None = None


Server = TypeVar("Server")  # a method's server state
Client = TypeVar("Client")  # a method's client state
Message = TypeVar("Message")  # what a client sends: a change of what it received, or a gradient; messages are averaged
Memory = TypeVar("Memory")  # what a client keeps between rounds; () for most methods


class Round(NamedTuple):
    """What the server knows of a round besides the mean message.

    Args:
        number: counted from 0.
        participation: the share S / M of all clients that took part.
    """

    number: Scalar = 0
    participation: Scalar = 1.0


class Acceleration(NamedTuple):
    """What the analyses of accelerated methods need to know of one: its clients hold `x` and `ag`, and query at `md`."""

    gamma: Scalar  # step size of x


class LocalMethod(eqx.Module, Generic[Server, Client, Message, Memory]):
    """A federated method: data plus pure functions. It never sees data, random keys, other clients or a network.

    `regularizer` is the psi of the objective F + psi that is reported and certified: Zero unless a subclass has a field, or
    a property, of this name. `fl.check_method(method, x0)` runs a method through this contract and names what is wrong.
    """

    if TYPE_CHECKING:
        regularizer: Regularizer = eqx.field(init=False)
    else:
        regularizer = Zero()  # not a field: methods without psi hold nothing

    @abstractmethod
    def init(self, x0: Params) -> Server:
        """Server state before round 0."""

    def init_memory(self, x0: Params) -> Memory:
        """What a client remembers before it first takes part; () for methods without client memory."""
        return ()  # pyright: ignore[reportReturnType]

    def check_start(self, x0: Params) -> None:
        """Raise a ValueError that says what is wrong with a starting point; every point is right by default."""

    def made_for_steps(self) -> int | None:
        """The number of local steps that the method's numbers were computed for; None, the default, if they suit any.

        The engines warn of a run in which no client takes this many.
        """
        return None

    def broadcast(self, server: Server) -> Server:
        """What of the server state goes down the wire: the `server` of `start` and `finish`. All of it by default."""
        return server

    @abstractmethod
    def start(self, server: Server, memory: Memory) -> Client:
        """What a client holds when a round begins."""

    @abstractmethod
    def step(self, client: Client, grad_fn: GradFn) -> Client:
        """One local step; `grad_fn(x)` is the stochastic gradient at x."""

    @abstractmethod
    def finish(self, server: Server, client: Client) -> tuple[Message, Memory]:
        """What goes up the wire and is averaged, and what the client keeps."""

    @abstractmethod
    def update(self, server: Server, mean_message: Message, round: Round) -> Server:
        """The server's step with the mean of the messages of those clients that took part in the round."""

    @abstractmethod
    def solution(self, server: Server) -> Params:
        """The primal point to evaluate and to give to the user."""

    @abstractmethod
    def primal(self, client: Client) -> Params:
        """The primal point of a client state, or of a mean of client states: what the theorems average."""

    def for_clients(self) -> "LocalMethod":
        """The method as clients need it, without what only the server uses; the method itself by default."""
        return self

    def affine(self, local_steps: int) -> Affine | None:
        """The method as an affine recurrence, where it is one; None by default."""
        return None

    def acceleration(self) -> Acceleration | None:
        """What `fl.Shadow` measures of an accelerated method besides; None by default."""
        return None
