"""SiteMoments: what sites say of their columns before the first round, checked, compared and merged."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from flwr.app import Message
from flwr.serverapp import Grid

from fedlocal.data.moments import Moments, Scaling
from fedlocal.flower._flwr.messages import ErrorCode
from fedlocal.flower.messages import records
from fedlocal.flower.messages.grids import PollingGrid

LARGEST = 1e150  # of a mean or deviation: squares of larger numbers overflow
SMALLEST, MARGIN = 1e-150, 1e10  # of a deviation; that over all sites is smaller where the others have the same value
FAR = 5.0  # deviations between a site's mean and that of the others
OTHER_UNIT = 8.0  # ratio of deviations
FEW = 10  # values of which a mean and a deviation say little


class LossBounds(NamedTuple):
    """Bounds of a row's loss as a function of its score, and the l2 penalty inside F.

    Args:
        slope: the largest absolute first derivative; None where it has no bound.
        curvature: the largest second derivative.
        l2: the strength of the penalty.
    """

    slope: float | None
    curvature: float
    l2: float = 0.0


AWAY = (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
News = list[tuple[str, str]]  # names of sites, and what of them
BySite = Mapping[str, int]  # nodes, or numbers of rows


class SiteMoments:
    """Moments and curvatures by site. `total` is fixed once enough sites have given theirs."""

    def __init__(self) -> None:
        self.of: dict[str, Moments] = {}
        self.included: list[str] = []  # the sites whose moments are in the total
        self.total: Moments | None = None
        self.curvature: dict[str, float] = {}

    def ask(self, grid: Grid, nodes: BySite, rows: BySite, width: int | None, timeout: float) -> News:
        """Ask these sites for moments of `width` columns, or of as many as most of them have; return what went wrong."""

        def keep(site: str, reply: Message) -> None:
            self.of[site] = _checked(reply, rows[site])

        news = ask_all(grid, nodes, {site: {"moments": True} for site in nodes}, timeout, keep)
        widths = [moments.mean.size for moments in self.of.values()]
        if width is None and widths:
            width = max(widths, key=widths.count)
        for site in [site for site, moments in self.of.items() if moments.mean.size != width]:
            news.append((site, f"moments of {self.of.pop(site).mean.size} columns, not of {width}; left out"))
        return news

    def add_up(self, least: int) -> None:
        """Fix the moments of all sites together, if at least so many have given theirs."""
        if self.total is None and len(self.of) >= least:
            self.included = sorted(self.of)
            self.total = Moments.merged([self.of[site] for site in self.included])

    def ask_curvature(self, grid: Grid, nodes: BySite, rows: BySite, bounds: LossBounds | None, timeout: float) -> News:
        """Ask for the largest curvature of each site's loss.

        It is at most the trace of the second moments times the curvature of a row's loss: a larger claim is refused.
        """

        def keep(site: str, reply: Message) -> None:
            found = records.only_metrics(reply.content).get("curvature")
            if not isinstance(found, float) or not 0 < found < LARGEST:
                raise ValueError(f"it is {found!r}")
            if bounds is not None and self.total is not None:
                trace = 1 + float(np.sum(self.second_moments(site, rows[site])))
                most = bounds.curvature * trace + bounds.l2
                if found > most * (1 + 1e-6):
                    raise ValueError(f"it is {found:.3g}, and its moments allow for {most:.3g}")
            self.curvature[site] = found

        questions = {site: {"curvature": True, **self.to_config(site)} for site in nodes}
        return ask_all(grid, nodes, questions, timeout, keep)

    def scaling(self) -> Scaling | None:
        """Return what brings columns to common units."""
        return None if self.total is None else self.total.scaling()

    def to_config(self, site: str) -> dict[str, Any]:
        """Return the moments of all sites, as a question holds them; nothing where columns are not standardised."""
        if self.total is None:
            return {}
        values = {f"moments.{name}": array.tolist() for name, array in self.total._asdict().items()}
        return {**values, "moments.included": site in self.included}

    def second_moments(self, site: str, rows: int) -> np.ndarray:
        """Return (d,) upper bounds of mean squares of a site's scaled columns, centred or not; missing values count as zero."""
        assert self.total is not None
        own, scaling = self.of[site], self.total.scaling()
        centred = np.abs(own.mean - np.nan_to_num(scaling.mean))
        # columns of sparse files are not centred; a column with missing values is not of a sparse file
        offset = np.where(own.present == rows, np.maximum(centred, np.abs(own.mean)), centred)
        return (own.squares + own.present * offset**2) / (rows * scaling.scale**2)

    def odd(self, columns: Sequence[str] | None) -> News:
        """Return the columns in which a site differs from the others as if it used another unit or another code."""
        news: News = []
        for site, own in self.of.items():
            others = [moments for other, moments in self.of.items() if other != site]
            if not others:
                continue
            rest = Moments.merged(others)
            deviation, usual = _deviation(own), _deviation(rest)
            known = np.sum([other.present >= FEW for other in others], axis=0)
            differs = np.sum([_differs(own, other) for other in others], axis=0)  # one false site is no majority
            for j in np.flatnonzero(2 * differs > known).tolist():
                name = columns[j] if columns else f"column {j + 1}"
                here = f"mean {own.mean[j]:.4g} and deviation {deviation[j]:.4g} here"
                news.append((site, f"look at {name}: {here}, {rest.mean[j]:.4g} and {usual[j]:.4g} at the other sites"))
        return news

    def odd_curvatures(self) -> News:
        """Return the sites that make the step size much smaller than the others would."""
        news: News = []
        for site, own in self.curvature.items():
            others = [found for other, found in self.curvature.items() if other != site]
            if others and own > OTHER_UNIT * np.median(others):
                times = own / np.median(others)
                news.append((site, f"suspicious: its curvature is {times:.3g} times the median of the other sites'"))
        return news

    def table(self, rows: Mapping[str, int], columns: Sequence[str] | None) -> pd.DataFrame:
        """Return one line per column: each site's mean and the number of its missing values."""
        width = 0 if self.total is None else self.total.mean.size
        frame = pd.DataFrame({"column": list(columns or (f"column {j + 1}" for j in range(width)))})
        for site, own in sorted(self.of.items()):
            frame[f"{site} mean"] = np.where(own.present > 0, own.mean, np.nan)
            frame[f"{site} missing"] = rows[site] - own.present.astype(int)
        return frame

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        of = {site: [field.tolist() for field in moments] for site, moments in self.of.items()}
        return {"of": of, "included": self.included, "curvature": self.curvature}

    def resume(self, kept: Mapping[str, Any]) -> None:
        """Restore what a checkpoint kept."""
        self.of = {site: Moments(*map(np.asarray, fields)) for site, fields in kept["of"].items()}
        self.included, self.curvature = list(kept["included"]), dict(kept["curvature"])
        if self.included:
            self.total = Moments.merged([self.of[site] for site in self.included])


def ask_all(
    grid: Grid,
    nodes: BySite,
    questions: Mapping[str, dict[str, Any]],
    timeout: float,
    keep: Callable[[str, Message], None],
) -> News:
    """Ask each of these sites a question of plain values, and keep the answers; return which sites gave none, and why."""
    sent = {site: records.query(node, questions[site], timeout + 60) for site, node in sorted(nodes.items())}
    enough = len(sent) - 1  # one that is silent does not keep the others waiting
    received = PollingGrid(grid).receive(sent.values(), timeout, enough)
    replies = {reply.metadata.reply_to_message_id: reply for reply in received}
    news: News = []
    for site, message in sent.items():
        try:
            reply = replies.get(message.metadata.message_id)
            if reply is None or (reply.has_error() and reply.error.code in AWAY):
                raise ValueError("no answer in time")
            if reply.has_error():
                raise ValueError(str(reply.error.reason))
            keep(site, reply)
        except Exception as error:  # whatever is wrong with what another machine sent
            asked = next(iter(questions[site]))
            news.append((site, f"no {asked}: {error}; left out"))
    return news


def _deviation(moments: Moments) -> np.ndarray:
    return np.sqrt(moments.squares / np.maximum(moments.present, 1))


def _differs(own: Moments, other: Moments) -> np.ndarray:
    """Return (d,) True for columns in which two sites seem to use other units or codes. Few values may be close by chance."""
    deviation, usual = _deviation(own), _deviation(other)
    far = np.abs(own.mean - other.mean) > FAR * np.maximum(deviation, usual)
    wide = (usual > 0) & (deviation > OTHER_UNIT * usual)
    narrow = (deviation > 0) & (usual > OTHER_UNIT * deviation) & (own.present >= FEW)
    return (own.present > 0) & (other.present >= FEW) & (far | wide | narrow)


def _checked(reply: Message, rows: int) -> Moments:
    arrays = records.only_arrays(reply.content)
    if set(arrays) != set(Moments._fields) or len({a.shape for a in arrays.values()}) != 1:
        raise ValueError(f"arrays are called {sorted(arrays)}")
    moments = Moments(**{name: np.asarray(a, np.float64) for name, a in arrays.items()})
    if moments.mean.ndim != 1 or not all(np.isfinite(a).all() for a in moments):
        raise ValueError("they are not finite")
    if (moments.present < 0).any() or (moments.squares < 0).any():
        raise ValueError("they are negative")
    if (moments.present > rows).any() or (moments.present % 1 != 0).any():
        raise ValueError(f"they count {moments.present.max():g} values of {rows} rows")
    few = moments.present <= 1
    if (moments.squares[few] != 0).any() or (moments.mean[moments.present == 0] != 0).any():
        raise ValueError("they say something of columns without values")
    if np.abs(moments.mean).max(initial=0) > LARGEST or np.sqrt(moments.squares).max(initial=0) > LARGEST:
        raise ValueError(f"they are beyond {LARGEST:g}; change the unit of the column")
    deviation = _deviation(moments)
    if any(((a > 0) & (a < SMALLEST * MARGIN)).any() for a in (deviation, np.abs(moments.mean))):
        raise ValueError(f"they are below {SMALLEST * MARGIN:g}; change the unit of the column")
    return moments
