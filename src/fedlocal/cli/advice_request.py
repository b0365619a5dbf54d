"""What `fedlocal advise` does: reads a data set, prints the advice, and writes a table, a figure and a program."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from fedlocal.data import load
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.files import Examples, feature_columns, read_examples
from fedlocal.data.moments import Moments
from fedlocal.data.registry import CATALOGUE
from fedlocal.problems import LeastSquares, Logistic
from fedlocal.regularizers import L1
from fedlocal.report.tables import table
from fedlocal.theory.advice.advisor import Advice, advise
from fedlocal.util.files import check_writable, write_atomically
from fedlocal.util.provenance import provenance_record

TASKS = {"logistic": Logistic, "least-squares": LeastSquares}


@dataclass(frozen=True)
class AdviceRequest:
    """The data, the model and the budget for which a user asks for advice."""

    data: str  # a data set of the catalogue, or a file
    rounds: int
    task: str = "logistic"
    target: str | None = None
    sites: str | None = None
    clients: int = 10  # number of clients that draw from all examples, if the data has no sites
    l2: float = 0.0
    l1: float = 0.0
    local_steps: int | None = None
    batch_size: int = 1
    pilot: bool = False
    seed: int = 0
    standardize: bool | None = None  # columns to mean 0 and variance 1; None: only those of files

    @property
    def is_known(self) -> bool:
        """True for a data set of the catalogue, False for a file."""
        return self.data in CATALOGUE and not Path(self.data).is_file()

    @property
    def standardized(self) -> bool:
        return not self.is_known if self.standardize is None else self.standardize


def new_folder(asked: Path | None) -> Path:
    """Return the folder that was asked for, or the first of advice, advice-2, ... that holds no earlier advice."""
    if asked is None:
        names = (Path("advice" if number == 1 else f"advice-{number}") for number in itertools.count(1))
        return next(path for path in names if not (path / "run.py").exists())
    if (asked / "run.py").exists():
        raise ValueError(f"advise: {asked} holds an earlier advice; give --directory a new folder")
    return asked


def advise_data(request: AdviceRequest, directory: Path, console: Console) -> Advice:
    """Print the advice for a data set, and write it to a folder.

    Args:
        request: the data, the model and the budget.
        directory: the folder of run.py, advice.csv, provenance.json, figure.png and figure.pdf.
        console: where the advice is printed.
    """
    with _no_empty_folder(directory):
        check_writable(directory / "run.py", "give --directory a folder that can be written")
        return _advise_data(request, directory, console)


def _advise_data(request: AdviceRequest, directory: Path, console: Console) -> Advice:
    examples = _in_units(request, _read(request))
    arrays = (examples.features, examples.targets)
    if examples.sites is None:
        data = FederatedData.shared(*arrays, num_clients=request.clients)
    else:
        data = FederatedData.from_groups(arrays, examples.sites)
    try:
        problem = TASKS[request.task](data, l2=request.l2, intercept=not request.is_known)
    except ValueError as error:
        hint = "; for a target of other numbers give --task least-squares" if "labels must be" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None
    console.print(
        f"{escape(request.data)}: {problem.data.num_examples:,} examples, {problem.data.arrays[0].shape[1]:,} features, "
        f"{problem.num_clients:,} clients{' with the same examples' if examples.sites is None else ''}",
        highlight=False,
    )
    console.print(f"  {_units(request, examples)}", highlight=False)
    options = {name: getattr(request, name) for name in ("rounds", "local_steps", "batch_size", "pilot", "seed")}
    advice = advise(problem, regularizer=L1(request.l1) if request.l1 else None, **options)
    program = _program(request, advice, examples.sites is not None)
    write_atomically(directory / "run.py", program.encode())
    write_atomically(directory / "advice.csv", advice.table().to_csv(index=False).encode())
    record = provenance_record(**request.__dict__)
    write_atomically(directory / "provenance.json", json.dumps(record, indent=1).encode())
    constants = [
        {"constant": row.constant.replace("_", " "), "": row.letter, "value": row.value, "how": row.how}
        for row in advice.estimate.rows()
        if row.value is not None
    ]
    console.print(table(pd.DataFrame(constants), "What the theorems know about it", fold=("how",)))
    console.print(table(advice.table(), f"After {request.rounds} rounds: error above the optimum"))
    console.print(f"  {escape(advice.confidence)}", highlight=False)
    for warning in advice.warnings:
        console.print(f"  [yellow]{escape(warning)}[/]", highlight=False)
    console.print(Syntax(program, "python", background_color="default", word_wrap=True))
    if advice.model is not None:
        advice.figure(directory / "figure")  # as PNG and as PDF
        console.print(f"  figure: {escape(str(directory / 'figure.png'))}", highlight=False)
    console.print(f"  program: {escape(str(directory / 'run.py'))}", highlight=False)
    return advice


@contextmanager
def _no_empty_folder(directory: Path) -> Iterator[None]:
    """Remove the folder afterwards if it was made for nothing."""
    existed = directory.exists()
    try:
        yield
    finally:
        if not existed and directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _read(request: AdviceRequest) -> Examples:
    if request.task not in TASKS:
        raise ValueError(f"advise: --task must be one of {', '.join(TASKS)}, got {request.task!r}")
    if request.is_known:
        for option in ("target", "sites"):
            if getattr(request, option) is not None:
                raise ValueError(f"advise: --{option} names a column of a table; {request.data} is not one")
        return Examples(*load(request.data), None)
    if not Path(request.data).is_file():
        raise ValueError(f"advise: {request.data!r} is neither a file nor one of the data sets {', '.join(CATALOGUE)}")
    return read_examples(request.data, request.target, request.sites, missing=True)


def _in_units(request: AdviceRequest, examples: Examples) -> Examples:
    """Return the examples with standardised features and empty cells at the mean, as a deployed site fits them, or unchanged."""
    if request.standardized:
        return examples._replace(features=Moments.of(examples.features, at_least=1).scaling().apply(examples.features))
    if not scipy.sparse.issparse(examples.features):
        empty = np.isnan(np.asarray(examples.features, np.float64)).any(axis=0)
        if empty.any():
            names = feature_columns(request.data, request.target)
            columns = None if names is None else [name for name in names if name != request.sites]
            first = int(np.argmax(empty))
            column = first if columns is None else repr(columns[first])
            help_ = "leave out --no-standardize, which takes them as the mean, or fill them first"
            raise ValueError(f"advise: column {column} of {request.data} has empty cells; {help_}")
    return examples


def _units(request: AdviceRequest, examples: Examples) -> str:
    """Return one sentence on the units for which the step sizes hold."""
    if not request.standardized:
        return "Step sizes are for the columns in their own units, as after `fedlocal deploy --no-standardize`."
    how = "divided by their deviation" if scipy.sparse.issparse(examples.features) else "of mean 0 and variance 1"
    return (
        f"Step sizes are for standardised columns ({how}), as after `fedlocal deploy`; --no-standardize: as they are."
    )


def _program(request: AdviceRequest, advice: Advice, has_sites: bool) -> str:
    """Return a program that runs the best choice on the same data."""
    names = {"target": request.target, "sites": request.sites}
    given = "".join(f", {name}={value!r}" for name, value in names.items() if value is not None)
    given += ", missing=True" if request.standardized else ""  # empty cells become the mean
    if request.is_known:
        read = f"X, y = fl.data.load({request.data!r})"
    else:
        read = f"X, y, sites = fl.data.read_examples({str(Path(request.data).resolve())!r}{given})"
    scaled = ["X = fl.data.Moments.of(X, at_least=1).scaling().apply(X)"] if request.standardized else []
    options = f"l2={request.l2!r}" + ("" if request.is_known else ", intercept=True")
    shared = f"fl.FederatedData.shared(X, y, num_clients={request.clients})"
    lines = [
        "import fedlocal as fl",
        "",
        read,
        *scaled,
        f"data = {'fl.FederatedData.from_groups((X, y), sites)' if has_sites else shared}",
        f"problem = fl.problems.{TASKS[request.task].__name__}(data, {options})",
        *([f"regularizer = fl.regularizers.L1({request.l1!r})"] if request.l1 else []),
        advice.code(),
        "print(result.history.tail())",
        "",
    ]
    return "\n".join(lines)
