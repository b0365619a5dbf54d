"""HTML of what a notebook shows. All text is escaped: names of columns and classes come from users."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

WIDTH, HEIGHT = 260, 70  # of a curve, in pixels


def section(title: str, *parts: str) -> str:
    """Return parts, which are HTML, below a title, which is text."""
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Return text with its line breaks, in letters of one width."""
    return f"<pre>{escape(text)}</pre>"


def facts(rows: Mapping[str, Any]) -> str:
    """Return a table of names and values; numbers are rounded to six digits.

    >>> facts({"a<b": 0.12345678})
    '<table><tr><th style="text-align:left">a&lt;b</th><td>0.123457</td></tr></table>'
    """
    cells = ((escape(name), escape(_shown(value))) for name, value in rows.items())
    lines = (f'<tr><th style="text-align:left">{name}</th><td>{value}</td></tr>' for name, value in cells)
    return f"<table>{''.join(lines)}</table>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table with a head."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_shown(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def curve(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> str:
    """Return a small picture of y over x (SVG), logarithmic where y is positive and spans more than a decade."""
    points = np.array([x, y], float)
    points = points[:, np.isfinite(points).all(axis=0)]
    if points.shape[1] < 2:
        return ""
    if points[1].min() > 0 and points[1].max() > 10 * points[1].min():
        points[1] = np.log(points[1])
    low, high = points.min(axis=1, keepdims=True), points.max(axis=1, keepdims=True)
    across, up = (points - low) / np.where(high > low, high - low, 1)
    places = " ".join(
        f"{3 + a * (WIDTH - 6):.1f},{3 + (1 - b) * (HEIGHT - 6):.1f}" for a, b in zip(across, up, strict=True)
    )
    line = f'<polyline points="{places}" fill="none" stroke="#0072b2" stroke-width="2"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">{line}</svg>'


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
