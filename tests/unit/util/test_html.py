"""HTML of notebooks: escaped, well-formed, and a curve that shows the numbers."""

import re

import numpy as np
import pytest

from fedlocal.util import html


@pytest.mark.parametrize(
    "made",
    [
        html.section("<b>", html.paragraph("<b>")),
        html.code("<b>"),
        html.facts({"<b>": "<b>"}),
        html.table(["<b>"], [["<b>"]]),
    ],
)
def test_text_is_escaped(made: str):
    assert "<b>" not in made
    assert "&lt;b&gt;" in made


def test_numbers_are_rounded_and_whole_ones_are_not():
    assert "<td>0.333333</td><td>12345678</td>" in html.table(["a", "b"], [[1 / 3, 12345678]])


def points(picture: str) -> np.ndarray:
    (places,) = re.findall(r'points="([^"]*)"', picture)
    return np.array([[float(number) for number in place.split(",")] for place in places.split()])


def test_a_curve_goes_from_left_to_right_and_large_values_are_on_top():
    drawn = points(html.curve([0, 1, 2], [3.0, 1.0, 2.0]))
    np.testing.assert_allclose(drawn[:, 0], [3, html.WIDTH / 2, html.WIDTH - 3], atol=0.1)
    np.testing.assert_allclose(drawn[:, 1], [3, html.HEIGHT - 3, html.HEIGHT / 2], atol=0.1)


def test_a_curve_over_decades_is_logarithmic():
    drawn = points(html.curve([0, 1, 2], [100.0, 10.0, 1.0]))
    np.testing.assert_allclose(drawn[:, 1], [3, html.HEIGHT / 2, html.HEIGHT - 3], atol=0.1)


def test_a_curve_leaves_out_what_is_not_finite():
    assert len(points(html.curve([0, 1, 2, 3], [1.0, np.nan, np.inf, 2.0]))) == 2
    assert html.curve([0, 1], [1.0, np.nan]) == ""
    np.testing.assert_allclose(points(html.curve([0, 1], [1.0, 1.0]))[:, 1], html.HEIGHT - 3)
