"""advise on a shell: from a data set to a table, a figure and a program that runs the choice."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from fedlocal.data import load
from fedlocal.data.files import Examples, feature_columns, read_examples
from fedlocal.data.moments import Moments
from fedlocal.data.sets import CATALOGUE
from fedlocal.engines.checkpoint import check_writable, write_atomically
from fedlocal.federated_data import FederatedData
from fedlocal.problems import LeastSquares, Logistic
from fedlocal.provenance import provenance
from fedlocal.regularizers import L1
from fedlocal.report.tables import table
from fedlocal.theory.advise import Advice, advise

TASKS = {"logistic": Logistic, "least-squares": LeastSquares}


@dataclass(frozen=True)
class Wish:
    """What a user says about data and budget."""

    data: str  # a known data set, or a file
    rounds: int
    task: str = "logistic"
    target: str | None = None
    sites: str | None = None
    clients: int = 10  # that draw from all examples, where the data has no sites
    l2: float = 0.0
    l1: float = 0.0
    local_steps: int | None = None
    batch_size: int = 1
    pilot: bool = False
    seed: int = 0
    standardize: bool | None = None  # columns to mean 0 and variance 1; None: those of files, as `fedlocal deploy` does

    @property
    def is_known(self) -> bool:
        """True for a data set of the catalogue, False for a file."""
        return self.data in CATALOGUE and not Path(self.data).is_file()

    @property
    def standardized(self) -> bool:
        return not self.is_known if self.standardize is None else self.standardize


def advise_data(wish: Wish, directory: Path, console: Console) -> Advice:
    """Print and keep the advice for a data set."""
    check_writable(directory / "run.py", "give --directory a folder that can be written")
    examples = _read(wish)
    problem = TASKS[wish.task](_federated(wish, examples), l2=wish.l2, intercept=not wish.is_known)
    console.print(
        f"{escape(wish.data)}: {problem.data.num_examples:,} examples, {problem.data.arrays[0].shape[1]:,} features, "
        f"{problem.num_clients:,} clients{' with the same examples' if examples.sites is None else ''}",
        highlight=False,
    )
    console.print(f"  {_units(wish, examples)}", highlight=False)
    advice = advise(
        problem,
        rounds=wish.rounds,
        local_steps=wish.local_steps,
        batch_size=wish.batch_size,
        regularizer=L1(wish.l1) if wish.l1 else None,
        pilot=wish.pilot,
        seed=wish.seed,
    )
    program = _program(wish, advice, examples.sites is not None)
    write_atomically(directory / "run.py", program.encode())
    write_atomically(directory / "advice.csv", advice.table().to_csv(index=False).encode())
    record = provenance(**wish.__dict__)
    write_atomically(directory / "provenance.json", json.dumps(record, indent=1).encode())
    constants = [
        {"constant": row.constant.replace("_", " "), "": row.letter, "value": row.value, "how": row.how}
        for row in advice.estimate.rows()
        if row.value is not None
    ]
    console.print(table(pd.DataFrame(constants), "What the theorems know about it", fold=("how",)))
    console.print(table(advice.table(), f"After {wish.rounds} rounds: error above the optimum"))
    console.print(f"  {escape(advice.confidence)}", highlight=False)
    for warning in advice.warnings:
        console.print(f"  [yellow]{escape(warning)}[/]", highlight=False)
    console.print(Syntax(program, "python", background_color="default", word_wrap=True))
    if advice.model is not None:
        advice.figure(directory / "figure.png")
        console.print(f"  figure: {escape(str(directory / 'figure.png'))}", highlight=False)
    console.print(f"  program: {escape(str(directory / 'run.py'))}", highlight=False)
    return advice


def _read(wish: Wish) -> Examples:
    if wish.task not in TASKS:
        raise ValueError(f"advise: --task must be one of {', '.join(TASKS)}, got {wish.task!r}")
    if wish.is_known:
        for option in ("target", "sites"):
            if getattr(wish, option) is not None:
                raise ValueError(f"advise: --{option} names a column of a table; {wish.data} is not one")
        return _in_units(wish, Examples(*load(wish.data), None))
    if not Path(wish.data).is_file():
        raise ValueError(f"advise: {wish.data!r} is neither a file nor one of the data sets {', '.join(CATALOGUE)}")
    return _in_units(wish, read_examples(wish.data, wish.target, wish.sites, missing=True))


def _in_units(wish: Wish, examples: Examples) -> Examples:
    """The examples with the features that a deployed site would fit: standardised, empty cells at the mean; or as they are."""
    if wish.standardized:
        return examples._replace(features=Moments.of(examples.features, at_least=1).scaling().apply(examples.features))
    if not scipy.sparse.issparse(examples.features):
        empty = np.isnan(np.asarray(examples.features, np.float64)).any(axis=0)
        if empty.any():
            names = feature_columns(wish.data, wish.target)
            columns = None if names is None else [name for name in names if name != wish.sites]
            first = int(np.argmax(empty))
            raise ValueError(
                f"advise: column {first if columns is None else repr(columns[first])} of {wish.data} has empty cells; leave out "
                "--no-standardize, which takes them as the mean, or fill them first"
            )
    return examples


def _units(wish: Wish, examples: Examples) -> str:
    """What the step sizes are for, in a sentence."""
    if not wish.standardized:
        return "Step sizes are for the columns in their own units, as after `fedlocal deploy --no-standardize`."
    how = "divided by their deviation" if scipy.sparse.issparse(examples.features) else "of mean 0 and variance 1"
    return (
        f"Step sizes are for standardised columns ({how}), as after `fedlocal deploy`; --no-standardize: as they are."
    )


def _federated(wish: Wish, examples: Examples) -> FederatedData:
    arrays = (examples.features, examples.targets)
    if examples.sites is None:
        return FederatedData.shared(*arrays, num_clients=wish.clients)
    return FederatedData.from_groups(arrays, examples.sites)


def _program(wish: Wish, advice: Advice, has_sites: bool) -> str:
    """A program that runs the choice on the same data."""
    names = {"target": wish.target, "sites": wish.sites}
    given = "".join(f", {name}={value!r}" for name, value in names.items() if value is not None)
    given += ", missing=True" if wish.standardized else ""  # empty cells become the mean
    if wish.is_known:
        read = f"X, y = fl.data.load({wish.data!r})"
    else:
        read = f"X, y, sites = fl.data.read_examples({str(Path(wish.data).resolve())!r}{given})"
    scaled = ["X = fl.data.Moments.of(X, at_least=1).scaling().apply(X)"] if wish.standardized else []
    options = f"l2={wish.l2!r}" + ("" if wish.is_known else ", intercept=True")
    shared = f"fl.FederatedData.shared(X, y, num_clients={wish.clients})"
    lines = [
        "import fedlocal as fl",
        "",
        read,
        *scaled,
        f"data = {'fl.FederatedData.from_groups((X, y), sites)' if has_sites else shared}",
        f"problem = fl.problems.{TASKS[wish.task].__name__}(data, {options})",
        *([f"regularizer = fl.regularizers.L1({wish.l1!r})"] if wish.l1 else []),
        advice.code(),
        "print(result.history.tail())",
        "",
    ]
    return "\n".join(lines)
