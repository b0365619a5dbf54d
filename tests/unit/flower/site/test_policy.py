"""Policy: what a site's file may say, and what is said of a file that is wrong."""

from pathlib import Path

import pytest

from fedlocal.flower.site.policy import Policy, Refused


def read(folder: Path, text: str) -> Policy:
    (folder / "policy.toml").write_text(text)
    return Policy.read(folder / "policy.toml")


def test_what_a_file_does_not_name_has_its_default(tmp_path: Path):
    found = read(tmp_path, 'fewest_rows = 25\ncertificate = false\nallow = {seed = [0, 9], weights = ["uniform"]}\n')
    assert found == Policy(fewest_rows=25, certificate=False, allow={"seed": (0, 9), "weights": ["uniform"]})
    assert found.smallest_cell == Policy().smallest_cell
    assert read(tmp_path, "") == Policy()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("fewest_rows = 0", "fewest_rows", "0"),
        ("fewest_rows = 2.5", "fewest_rows", "2.5"),
        ('smallest_share = "all"', "smallest_share", "'all'"),
        ("most_seconds = -1.0", "most_seconds", "-1.0"),
        ("most_round = 5", "most_round", "5"),
        ("[allow]\nseed = 3", "allow.seed", "3"),
    ],
)
def test_wrong_values_are_named_with_file_and_field(tmp_path: Path, text: str, field: str, value: str):
    with pytest.raises(ValueError, match="policy") as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"policy: {tmp_path / 'policy.toml'}: {field}")
    assert f"got {value}" in said
    assert "fewest_rows, smallest_share" in said  # what there is


@pytest.mark.parametrize("content", [None, b"fewest_rows = ", b"\xff\xfe"])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "policy.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"policy: .*policy.toml cannot be read: "):
        Policy.read(tmp_path / "policy.toml")


def test_every_rule_is_described_with_its_value():
    lines = Policy(fewest_rows=17, allow={"seed": (0, 9)}, certificate=False).describe()
    assert [line.split(" = ")[0] for line in lines] == list(Policy.model_fields)
    assert any(line.startswith("fewest_rows = 17: ") for line in lines)
    assert any(line.startswith("certificate = false: ") for line in lines)
    assert any(line.startswith("allow = {'seed': (0.0, 9.0)}: ") for line in lines)
    assert any(line.startswith("allow = nothing: ") for line in Policy().describe())


def test_a_zero_is_shown_as_a_zero():
    assert any(line.startswith("most_evaluations = 0: ") for line in Policy(most_evaluations=0).describe())


def test_a_refusal_with_a_code_tells_the_coordinator_the_code_alone():
    assert (
        Refused("9 rows of patients; 10 are needed", "fewest_rows").reason()
        == "refused by the site's policy: fewest_rows"
    )
    assert Refused("the question has no proper moments").reason() == "the question has no proper moments"
