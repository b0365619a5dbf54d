"""Chart: the figure that the functions of this package return, and how they label and scale its axes."""

import io
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedlocal.report.figures import STYLE

# of Okabe and Ito: readers with colour-blindness tell them apart
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
AXIS_LABELS = {
    "seconds": "time (seconds)",
    "numbers_up": "numbers sent by all clients",
    "numbers_down": "numbers received by all clients",
}
DECADES = 1.3  # of an axis that gets a logarithmic scale


class Chart(Figure):
    """A figure that a notebook shows, whether pyplot is in use or not."""

    def __init__(self, width: float, height: float):
        super().__init__(figsize=(width, height), layout="constrained", dpi=STYLE["figure.dpi"])

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.savefig(picture, format="png")
        return picture.getvalue()


def axis_label(name: str) -> str:
    """Return what stands beside the axis of a column: "time (seconds)" for "seconds"."""
    return AXIS_LABELS.get(name, name.replace("_", " ").replace(".", " "))


def is_wide(values: Any) -> bool:
    """Return True if all finite values are positive and they span more than a decade, so that their scale is logarithmic."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    return finite.size > 1 and bool(finite.min() > 0 and np.log10(finite.max()) - np.log10(finite.min()) > DECADES)
