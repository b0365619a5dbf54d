"""SiteRecord: what a site was asked and what it answered, on its own disk. Budgets are counted from it over restarts."""

import errno
import hmac
import json
import os
import secrets
from collections.abc import Hashable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedlocal.flower.site.policy import Policy, Refused
from fedlocal.util.files import lock

TRAIN, EVALUATE, MOMENTS, CURVATURE, HELLO = "train", "evaluate", "moments", "curvature", "hello"


class SiteRecord:
    """An append-only file of JSON lines, readable by its owner alone. Without a path it is kept in memory.

    The first line holds a secret of the site, with which it makes fingerprints of its data that tell others nothing.
    A line is written before a question is answered, and is on the disk before the answer leaves.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self._file: Any = None
        self._key = b""
        self._draws_key = secrets.token_bytes(32)  # that of the file, where there is one
        self._answers = 0
        self._states: dict[str, set[Hashable]] = {TRAIN: set(), EVALUATE: set()}
        self._data: tuple[str, int] | None = None  # those that are in use: a keyed hash, and the number of rows
        self._versions: dict[str, int] = {}  # of the data that questions were answered about, with their rows
        self._means: dict[int, float] = {}  # of columns with a few missing values
        if self.path is not None:
            try:
                self._open(self.path)
            except ValueError:
                self.close()
                raise

    def use_data(self, policy: Policy, content: str, rows: int) -> None:
        """Refuse data that may differ in a few rows from data which were asked about before.

        The same question before and after would tell these rows. Data that differ by so many rows differ in at least as many.
        """
        version = hmac.new(self._draws_key, content.encode(), "blake2b").hexdigest()[:32]
        for known, before in self._versions.items():
            if policy.fewest_rows > 1 and known != version and abs(rows - before) < policy.fewest_rows:
                what = f"the data changed: questions were answered about {before} rows, and now there are {rows} others"
                more = ". Answers before and after would tell the rows that changed; with the old file this site takes part"
                raise policy.refusal(what, "fewest_rows", "data", more)
        self._data = (version, rows)

    def has_other_mean(self, column: int, mean: float) -> bool:
        """Return True if this column was scaled with another mean before, in any run; the first one is written down."""
        if column not in self._means:
            self._write({"column": column, "mean": mean})
            self._means[column] = mean
        return self._means[column] != mean

    def states_left(self, policy: Policy, rows: int) -> int:
        """Return how many questions at new states the site still answers."""
        most = min(policy.most_states_per_row * max(rows, 1), policy.most_rounds + policy.most_evaluations)
        return max(0, int(most) - self._asked())

    def _asked(self) -> int:
        return sum(map(len, self._states.values()))

    def check(self, policy: Policy, kind: str, rows: int, state: str | None = None) -> None:
        """Refuse a question for which the budget is spent. A state that was asked before costs nothing of its kind."""
        new = kind in self._states and state not in self._states[kind]
        if new and self._asked() + 1 > policy.most_states_per_row * max(rows, 1):
            what = f"{self._asked()} questions were answered about {rows} rows"
            raise policy.refusal(what, "most_states_per_row", more=". A larger one trusts the coordinator more")
        spent = {"most_answers": self._answers}
        if new:
            spent = {"most_rounds" if kind == TRAIN else "most_evaluations": len(self._states[kind]), **spent}
        for name, count in spent.items():
            if count >= getattr(policy, name):
                raise Refused(f"{name} = {getattr(policy, name)} of the policy are spent", name)

    def note(self, kind: str, run: int, round_: int | None = None, state: str | None = None) -> None:
        """Write down a question that is about to be answered."""
        if self._data is not None and self._data[0] not in self._versions:
            version, rows = self._data
            self._write({"data": version, "rows": rows})
            self._versions[version] = rows
        self._write({"question": kind, "run": run, "round": round_, "state": state})
        self._count(kind, state)

    def note_refusal(self, policy: Policy, kind: str, run: int, why: str) -> None:
        """Write down a question that is not answered. It counts as an answer: refusals must not fill the disk."""
        if self._answers < policy.most_answers:
            self._write({"refused": kind, "run": run, "why": why})
            self._answers += 1

    def fingerprint(self, content: str) -> str:
        """Return a keyed hash of the data that only this site can make; empty without a file to keep the key in."""
        return hmac.new(self._key, content.encode(), "blake2b").hexdigest()[:32] if self._key else ""

    def draw_numbers(self, seed: int, client: int) -> tuple[int, int]:
        """Return a seed and a client's number in place of these, below 2^31 each: always the same, known to this site alone."""
        digest = hmac.new(self._draws_key, f"draws {seed} {client}".encode(), "blake2b").digest()
        return int.from_bytes(digest[:4]) >> 1, int.from_bytes(digest[4:8]) >> 1

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ValueError(f"site: the record {path} cannot be written: {error.strerror}") from None
        self._file = os.fdopen(handle, "r+b", buffering=0)
        # each of two processes would spend the whole budget
        lock(self._file, f"site: another process takes part with these data; it holds {path}")
        self._load(self._file.read())
        if not self._key:
            self._key = secrets.token_bytes(32)
            self._write({"secret": self._key.hex()})
        self._draws_key = self._key

    def _load(self, content: bytes) -> None:
        lines = content.split(b"\n")
        if lines[-1]:  # cut off when the site was killed while it wrote: nothing had left yet
            self._file.write(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            try:
                entry = json.loads(line)
                if "secret" in entry:
                    self._key = bytes.fromhex(entry["secret"])
                elif "question" in entry:
                    self._count(entry["question"], entry["state"])
                elif "data" in entry:
                    self._versions[str(entry["data"])] = int(entry["rows"])
                elif "column" in entry:
                    self._means[int(entry["column"])] = float(entry["mean"])
                elif "refused" in entry:
                    self._answers += 1
            except (ValueError, KeyError, TypeError):
                if line.startswith(b"{") and not line.endswith(b"}"):
                    continue  # the cut-off line of an earlier start
                why = "the site's budget cannot be told from it. Move the file away to begin with a new budget"
                raise ValueError(f"site: line {number} of {self.path} is damaged; {why}") from None

    def _count(self, kind: str, state: str | None) -> None:
        self._answers += 1
        if kind in self._states:
            self._states[kind].add(state)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            return
        entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
        line = json.dumps(entry).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Refused(f"the record {self.path} cannot be written: {error.strerror}", "record") from None

    def close(self) -> None:
        """Close the file, so that another process may use it."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def __del__(self) -> None:
        self.close()
