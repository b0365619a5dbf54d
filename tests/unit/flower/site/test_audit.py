"""SiteRecord: budgets over restarts, files that are cut off, damaged, shared or not writable, and the site's secret."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedlocal.flower.site.audit import EVALUATE, HELLO, MOMENTS, TRAIN, SiteRecord
from fedlocal.flower.site.policy import Policy, Refused

ROWS = 1000
POLICY = Policy(most_rounds=2, most_evaluations=1, most_answers=6)


@contextmanager
def opened(path: Path) -> Iterator[SiteRecord]:
    record = SiteRecord(path)
    try:
        yield record
    finally:
        record.close()


def spend(record: SiteRecord, kind: str, state: str | None = None) -> None:
    record.check(POLICY, kind, ROWS, state)
    record.note(kind, 7, 0, state)


def test_budgets_are_counted_over_restarts(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    with opened(path) as record:
        spend(record, TRAIN, "s")
        spend(record, TRAIN, "s")  # the same state again costs no round
    with opened(path) as record:
        spend(record, TRAIN, "t")
        with pytest.raises(Refused, match="most_rounds = 2 of the policy are spent"):
            record.check(POLICY, TRAIN, ROWS, "u")
        spend(record, EVALUATE, "s")
    with opened(path) as record:
        with pytest.raises(Refused, match="most_evaluations = 1 of the policy are spent"):
            record.check(POLICY, EVALUATE, ROWS, "t")
        spend(record, MOMENTS)
        spend(record, HELLO)  # the sixth answer
    with opened(path) as record, pytest.raises(Refused, match="most_answers = 6 of the policy are spent"):
        record.check(POLICY, TRAIN, ROWS, "s")


def test_refusals_count_and_end(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    with opened(path) as record:
        for _ in range(20):
            record.note_refusal(POLICY, TRAIN, 7, "why")
    assert sum("refused" in json.loads(line) for line in path.read_text().splitlines()) == POLICY.most_answers
    with opened(path) as record, pytest.raises(Refused, match="most_answers"):
        record.check(POLICY, HELLO, ROWS)


def test_without_a_file_budgets_are_counted_too():
    record = SiteRecord()
    spend(record, TRAIN, "s")
    spend(record, TRAIN, "t")
    with pytest.raises(Refused, match="most_rounds"):
        record.check(POLICY, TRAIN, ROWS, "u")
    assert record.fingerprint("data") == ""


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path):
    """A site that is killed while it writes has not answered yet. Whatever of the line was written, it starts again."""
    path = tmp_path / "record.jsonl"
    with opened(path) as record:
        spend(record, TRAIN, "s")
        secret = record.fingerprint("data")
    whole = path.read_bytes()
    last = whole.splitlines()[-1]
    for length in (1, 2, len(last) // 2, len(last) - 1):
        path.write_bytes(whole + last[:length])
        for state in ("t", "t"):  # two starts
            with opened(path) as record:
                spend(record, TRAIN, state)
                assert record.fingerprint("data") == secret
        with opened(path) as record, pytest.raises(Refused, match="most_rounds"):
            record.check(POLICY, TRAIN, ROWS, "u")


@pytest.mark.parametrize("line", ["", "nonsense", "{}}", '{"question": "train"}', '["question"]', "3"])
def test_a_damaged_line_is_named_and_nothing_is_answered(tmp_path: Path, line: str):
    path = tmp_path / "record.jsonl"
    with opened(path) as record:
        spend(record, TRAIN, "s")
    path.write_text(path.read_text() + f"{line}\n")
    with pytest.raises(ValueError, match=rf"line 3 of {path} is damaged; .* Move the file away"):
        SiteRecord(path)


def test_two_processes_do_not_share_a_record(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    program = f"from fedlocal.flower.site.audit import SiteRecord\nSiteRecord({str(path)!r})"
    with opened(path):
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert f"site: another process takes part with these data; it holds {path}" in other.stderr
    with opened(path):  # once the first has closed it
        pass


def test_a_record_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"site: the record .*file/record.jsonl cannot be written: "):
        SiteRecord(tmp_path / "file" / "record.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_on_a_full_disk_nothing_is_answered(tmp_path: Path):
    with opened(tmp_path / "record.jsonl") as record:
        record._file.close()
        record._file = os.fdopen(os.open("/dev/full", os.O_RDWR), "r+b", buffering=0)
        with pytest.raises(Refused, match="cannot be written: No space left on device") as caught:
            record.note(TRAIN, 7, 0, "s")
        assert caught.value.code == "record"


def test_a_line_of_which_only_a_part_was_written_is_not_answered(tmp_path: Path):
    """As on a disk that becomes full in the middle of it."""

    class Nearly:
        def __init__(self, file):
            self.file = file

        def write(self, content: bytes) -> int:
            return self.file.write(content[:5])

        def __getattr__(self, name: str):
            return getattr(self.file, name)

    with opened(tmp_path / "record.jsonl") as record:
        record._file = Nearly(record._file)
        with pytest.raises(Refused, match="cannot be written"):
            record.note(TRAIN, 7, 0, "s")


def test_the_secret_stays_and_is_for_the_owner_alone(tmp_path: Path):
    path = tmp_path / "new folder" / "record.jsonl"
    with opened(path) as record:
        names = [record.fingerprint(content) for content in ("data", "data", "other")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names[0] == names[1] != names[2]
    with opened(path) as record:
        assert record.fingerprint("data") == names[0]
    with opened(tmp_path / "another.jsonl") as record:
        assert record.fingerprint("data") != names[0]
    secrets = [json.loads(line)["secret"] for line in path.read_text().splitlines() if "secret" in line]
    assert len(secrets) == 1
    assert names[0] not in path.read_text()
