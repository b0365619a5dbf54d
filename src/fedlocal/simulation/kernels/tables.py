"""The numbers that the compiled loops of the linear engine work with, from the affine forms of some methods."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedlocal.core import Affine, Separable
from fedlocal.simulation.kernels.buffers import DUAL, MIRROR, ONE, PAIR, Places

MODERATE = 30.0  # how large and how small A^k may be for the linear part to be kept aside
SINGULAR = 1e4  # the same for A itself, beyond which these kernels are not used


class Form(NamedTuple):
    """Methods of one kind, which walk side by side: one per lane."""

    kind: int
    frozen: bool  # whether all gradients of a round are at one point
    proximal: bool  # whether the server's step ends with a proximal map
    size: int  # vectors of a client
    number: int  # vectors of the server
    period: int  # steps for which the linear part is kept aside
    places: Places
    local: np.ndarray
    server: np.ndarray

    @classmethod
    def make(cls, forms: Sequence[Affine], l2: float, steps: int, dtype: Any) -> "Form":
        kind = max(kind_of(form) for form in forms)  # a lane without psi may walk beside others with one
        frozen = all(is_frozen(form, l2, steps) for form in forms)
        local, server = _local(forms, l2, steps, kind, frozen), _server(forms)
        tables, places = [], {}
        for part in (local, server):
            flat = {name: a.reshape(-1, a.shape[-1]) for name, a in part.items()}
            sizes = [len(a) for a in flat.values()]
            places |= dict(zip(flat, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
            tables.append(np.concatenate(list(flat.values())))
        proximal = forms[0].proximal is not None and not forms[0].proximal.dual
        size, number = np.shape(forms[0].start)
        period = len(local["query"])
        with np.errstate(over="ignore"):  # what no precision holds is inf, and the run diverges
            numbers = tables[0].astype(dtype)
        return cls(kind, frozen, proximal, size, number, period, Places(**places), numbers, tables[1])


def kind_of(form: Affine) -> int:
    if form.proximal is not None and form.proximal.on_clients and form.proximal.psi != Separable():
        return DUAL if form.proximal.dual else MIRROR
    return ONE if len(form.query) == 1 else PAIR


def reason_against(form: Affine, l2: float, steps: int, equal_steps: bool) -> str | None:
    """Why the loops cannot follow a method, or None."""
    if not _fits(form):
        return "its affine form is not one of at most two vectors (one with a regulariser) and plain numbers"
    if is_frozen(form, l2, steps) and not equal_steps:
        return "it needs the same number of local steps on every client"
    if kind_of(form) == DUAL and l2 != 0:
        return (
            "the problem's l2 term has a gradient in every feature; put it into the regulariser (ElasticNet, SquaredL2)"
        )
    if kind_of(form) == MIRROR:
        step = float(form.proximal.step)  # pyright: ignore[reportOptionalMemberAccess]
        return None if step * l2 < 0.999 else f"client_step_size * l2 must be below 1, got {step} * {l2}"
    if not is_frozen(form, l2, steps) and not _moderate(penalised(form, l2), SINGULAR):
        return "its linear part cannot be inverted with these parameters"
    return None


def _fits(form: Affine) -> bool:
    """Whether all parts have the shapes that they should have."""
    size, number = len(form.query), len(form.keep)
    shapes = {"query": (size,), "transition": (size, size), "gain": (size,), "start": (size, number)}
    shapes |= {"keep": (number, number), "take": (number, size)}
    right = all(_shape(getattr(form, name)) == shape for name, shape in shapes.items())
    return right and size <= (2 if form.proximal is None else 1)


def _shape(numbers: Any) -> tuple[int, ...] | None:
    try:
        return np.array(numbers, float).shape
    except (TypeError, ValueError):  # ragged, as with a step size that is an array
        return None


def is_frozen(form: Affine, l2: float, steps: int) -> bool:
    """Whether a client's gradients are all at one point and simply add up: minibatch methods, and any with one step."""
    if kind_of(form) == MIRROR:
        return False
    query, gain, linear = np.array(form.query, float), np.array(form.gain, float), penalised(form, l2)
    stays = np.array_equal(query @ linear, query) and query @ gain == 0 and np.array_equal(linear @ gain, gain)
    return steps == 1 or bool(stays)


def penalised(form: Affine, l2: float) -> np.ndarray:
    """A of S <- A S - b g when an l2 term adds l2 query'S to the gradient."""
    return np.array(form.transition, float) - l2 * np.outer(form.gain, form.query)


def _moderate(matrix: np.ndarray, limit: float) -> bool:
    """Whether neither the matrix nor its inverse makes anything more than `limit` times as large."""
    singular = np.linalg.svd(matrix, compute_uv=False)
    return bool(np.all(singular[..., 0] < limit) and np.all(singular[..., -1] > 1 / limit))


def _lanes(arrays: Sequence[Any]) -> np.ndarray:
    """Numbers of all lanes, the lane last."""
    return np.ascontiguousarray(np.moveaxis(np.array([np.asarray(a, float) for a in arrays]), 0, -1))


def _local(forms: Sequence[Affine], l2: float, steps: int, kind: int, frozen: bool) -> dict[str, np.ndarray]:
    linear = np.array([penalised(form, l2) for form in forms])  # (L, s, s)
    free = np.array([form.transition for form in forms], float)
    query, gain = (np.array([getattr(form, name) for form in forms], float) for name in ("query", "gain"))  # (L, s)
    powers = [np.broadcast_to(np.eye(linear.shape[-1]), linear.shape)]
    if frozen:
        powers *= 2  # nobody walks
    elif kind in (DUAL, MIRROR):
        powers *= steps + 1  # nothing is kept aside
    else:
        while len(powers) <= steps and (len(powers) == 1 or _moderate(powers[-1] @ linear, MODERATE)):
            powers.append(powers[-1] @ linear)
    inverse = np.array([np.linalg.solve(power, gain[..., None])[..., 0] for power in powers[1:]])  # (period, L, s)
    decay, shrink, bounds = _idle_steps(forms, l2, steps if kind == MIRROR else 0)
    if kind == MIRROR:
        inverse /= (1 - l2 * gain)[None]  # the decay of the step itself comes with the next idle one
    jump = np.array([np.linalg.matrix_power(a, steps if frozen else 0) for a in (linear, free)])
    return {
        "query": np.moveaxis(np.array([np.einsum("ls,lst->lt", query, power) for power in powers[:-1]]), 1, -1),
        "gain": np.moveaxis(inverse, 1, -1),
        "powers": np.moveaxis(np.array(powers), 1, -1),
        "free_query": _lanes(list(query)),
        "free_transition": _lanes(list(free)),
        "free_gain": _lanes(list(gain)),
        "jump": np.moveaxis(jump, 1, -1),
        "threshold": np.zeros((steps, len(forms))),
        "decay": decay,
        "shrink": shrink,
        "bounds": bounds,
    }


def _idle_steps(forms: Sequence[Affine], l2: float, steps: int) -> list[np.ndarray]:
    """Decay and shrinkage of 0..K steps of mirror descent without gradient, (K + 1, L), and the bounds, (2, L)."""
    decays, shrinks, bounds = [], [], []
    for step, _, psi, _ in map(_proximal, forms):
        step, l1, ridge = float(step), float(psi.l1), float(psi.l2)
        powers = ((1 - step * l2) / (1 + step * ridge)) ** np.arange(steps + 1)
        decays.append(powers)
        shrinks.append(step * l1 / (1 + step * ridge) * np.concatenate([[0.0], np.cumsum(powers[:-1])]))
        bounds.append((psi.lower, psi.upper))
    return [_lanes(a) for a in (decays, shrinks, bounds)]


def _server(forms: Sequence[Affine]) -> dict[str, np.ndarray]:
    steps, server_steps, _, psis = zip(*map(_proximal, forms), strict=True)
    return {
        **{name: _lanes([getattr(form, name) for form in forms]) for name in ("start", "keep", "take")},
        "step": _lanes([[step] for step in steps]),
        "server_step": _lanes([[step] for step in server_steps]),
        "strengths": _lanes([[psi.l1, psi.l2] for psi in psis]),
        "server_bounds": _lanes([[psi.lower, psi.upper] for psi in psis]),
    }


def _proximal(form: Affine) -> tuple[Any, Any, Separable, Separable]:
    """The step sizes of clients and server by which psi is weighed, psi, and psi of the server; all zero where there is none."""
    found = form.proximal
    if found is None:
        return 0.0, 0.0, Separable(), Separable()
    return found.step, found.server_step, found.psi, found.psi if found.server_psi is None else found.server_psi
