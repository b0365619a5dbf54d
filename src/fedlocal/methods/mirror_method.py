"""MirrorMethod: what the methods with a regulariser and a mirror map have in common."""

from fedlocal.core import Affine, LocalMethod, MirrorMap, Params, Proximal, Regularizer, Scalar, Separable, static
from fedlocal.core.method import Client, Memory, Message, Server
from fedlocal.core.schedule import checked_step_size
from fedlocal.mirrors import Euclidean
from fedlocal.regularizers import Zero
from fedlocal.util import checks


class MirrorMethod(LocalMethod[Server, Client, Message, Memory]):
    """A local method for min_x mean_m F_m(x) + psi(x) whose steps are taken in the geometry of h."""

    client_step_size: Scalar
    server_step_size: Scalar = 1.0
    regularizer: Regularizer = Zero()
    mirror_map: MirrorMap = Euclidean()
    prox_on_clients: bool = static(default=True)

    def __init__(
        self,
        client_step_size: Scalar,
        server_step_size: Scalar = 1.0,
        regularizer: Regularizer = Zero(),  # noqa: B008  (frozen)
        mirror_map: MirrorMap = Euclidean(),  # noqa: B008
        prox_on_clients: bool = True,
    ):
        owner = type(self).__name__
        self.client_step_size = checked_step_size(owner, "client_step_size", client_step_size)
        self.server_step_size = checked_step_size(owner, "server_step_size", server_step_size)
        self.regularizer = checks.instance(owner, "regularizer", regularizer, Regularizer)
        self.mirror_map = checks.instance(owner, "mirror_map", mirror_map, MirrorMap)
        self.prox_on_clients = bool(prox_on_clients)

    def check_start(self, x0: Params) -> None:
        self.mirror_map.check(x0)

    def proximal_affine(self, dual: bool, shares: tuple[float, float] | None = None) -> Affine | None:
        """The affine form for the Euclidean h and a separable psi; `dual` if clients and server add up dual points, `shares` if
        clients and server apply parts of psi."""
        psi = self.regularizer.separable()
        if psi is None or type(self.mirror_map) is not Euclidean:
            return None
        eta, server = self.client_step_size, float(self.server_step_size)  # in float64, whatever it was given in
        proximal = Proximal(psi, eta, server, dual, self.prox_on_clients)
        if shares is not None:
            client_psi, server_psi = (_part(psi, share) for share in shares)
            proximal = Proximal(client_psi, eta, server, dual, shares[0] > 0, server_psi)
        return Affine([1], [[1]], [eta], start=[[1]], keep=[[1 - server]], take=[[server]], proximal=proximal)


def _part(psi: Separable, share: float) -> Separable:
    """share times psi; nothing for a share of zero, also of a constraint."""
    return psi._replace(l1=share * psi.l1, l2=share * psi.l2) if share > 0 else Separable()
