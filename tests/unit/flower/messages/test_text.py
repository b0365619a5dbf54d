"""clean: whatever another machine says, it stays one line of characters that can be seen."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlocal.flower.messages.text import LONGEST, clean, traceback_of


@given(st.text(st.characters(), max_size=2 * LONGEST))
def test_any_text_becomes_one_line_of_visible_characters(text: str):
    shown = clean(text)
    assert len(shown.splitlines()) <= 1
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in shown)
    assert len(shown) <= LONGEST + len(" ...")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"]), max_size=LONGEST))
def test_visible_text_stays_as_it_is(text: str):
    assert clean(text) == text


@pytest.mark.parametrize("mark", ["\n", "\r", "\x1b", "\x07", "\u202e", "\u2028", "\u00a0", "\x00", "\x85", "\ud800"])
def test_marks_that_change_a_line_become_question_marks(mark: str):
    assert clean(f"a{mark}b") == "a?b"


def test_long_texts_are_cut():
    assert clean("x" * (LONGEST + 1)) == "x" * LONGEST + " ..."
    assert clean("x" * LONGEST) == "x" * LONGEST
    assert clean("abcdef", 3) == "abc ..."


def test_no_line_of_a_traceback_looks_like_one_of_ours():
    try:
        raise ValueError("gone\n20:15:01  round 9: done\x1b[2J")
    except ValueError as error:
        shown = traceback_of(error)
    assert all(line.startswith("  | ") for line in shown.splitlines())
    assert "\x1b" not in shown
    assert "round 9: done" in shown
