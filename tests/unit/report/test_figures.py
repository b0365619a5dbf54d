"""Panels are written in the format of their ending, or as PNG and PDF."""

from pathlib import Path

import pytest

from fedlocal.report.figures import panels

STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def draw(path: Path) -> None:
    with panels(2, path, "a title") as axes:
        for axis in axes:
            axis.plot([1, 2], [3, 4])


@pytest.mark.parametrize("kind", STARTS)
def test_an_ending_says_the_format(kind: str, tmp_path: Path):
    draw(tmp_path / f"new-0.5.{kind}")
    (written,) = tmp_path.iterdir()
    assert written.name == f"new-0.5.{kind}"
    assert written.read_bytes().startswith(STARTS[kind])


def test_without_an_ending_png_and_pdf_are_written_the_same_every_time(tmp_path: Path):
    draw(tmp_path / "a")
    draw(tmp_path / "b")
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "a.pdf", "b.png", "b.pdf"}
    for kind in ("png", "pdf"):
        first = (tmp_path / f"a.{kind}").read_bytes()
        assert first.startswith(STARTS[kind])
        assert first == (tmp_path / f"b.{kind}").read_bytes()
    draw(tmp_path / "alone.png")
    assert (tmp_path / "alone.png").read_bytes() == (tmp_path / "a.png").read_bytes()


def test_another_ending_is_told(tmp_path: Path):
    with pytest.raises(ValueError, match=r"save: the path must end in \.png, \.pdf, \.svg, got '.*a\.jpg'"):
        draw(tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []
