"""An app's folder: what Flower runs, short enough to be read by those who have to allow it."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from fedlocal.util.files import write_atomically

SEEN = "models, losses, gradients and numbers of rows"
SEEN_OF_COLUMNS = ", what the columns are called"
SEEN_OF_MOMENTS = ", and once, of every column, a site's count, mean and sum of squares"
MODEL = "`model.npz` (the model)"
MODEL_OF_FILES = """`coefficients.csv` (weights by column, as fitted and in the columns' units, where the files are tables),
`model.npz` (the model as fitted, in arrays: x/weights, x/intercept)"""
SCALING = """
In `model.npz` are the columns' scaling/mean and scaling/scale, too. The model is one of (column - mean) / scale, or of
column / scale where the files are LIBSVM's: they stay sparse. To predict: the sum of in_units times column, plus the
intercept, with the mean in place of a missing value; 1 / (1 + exp(-score)) is a probability.
"""
TEMPLATES = resources.files("fedlocal.deploy") / "templates"


@dataclass(frozen=True)
class App:
    """What differs from one app to another."""

    title: str  # one line
    client: str  # template of client_app.py
    values: Mapping[str, str]  # that fill the template
    method: str  # a Python expression of `config`
    sites: str  # a Python expression of `config`
    config: Mapping[str, str | int | float | bool]  # of a run, by their names in pyproject.toml
    arguments: tuple[str, ...]  # of Strategy that `config` holds
    names: tuple[str, ...]  # of the sites
    data: bool  # True if sites have files
    address: str  # of the coordinator
    imports: str = ""  # further ones of method.py
    server_imports: str = ""  # further ones of server_app.py
    more: tuple[str, ...] = ()  # further arguments of Strategy, as Python
    standardized: bool = False  # True if columns are brought to common units
    note: str = ""  # what a user should know of the numbers of a run


def write_app(folder: Path, app: App) -> list[Path]:
    """Write pyproject.toml, README.md and a package with method.py, server_app.py and client_app.py; return the files."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"deploy: {folder} is not empty; give another folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"
    package = f"{re.sub('^(?=[0-9])', 'n', name.replace('-', '_'))}_app"
    config = "\n".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in app.config.items())
    ours, method = "import fedlocal as fl\n" if "fl." in app.method else "", app.method.replace("\n", "\n    ")
    files = {
        "pyproject.toml": fill(
            "pyproject.toml", name=name, package=package, title=app.title, config=config, address=app.address
        ),
        "README.md": readme(app, folder.resolve().name, name, package),
        f"{package}/__init__.py": f'"""{app.title}."""\n',
        f"{package}/method.py": fill("method.py", ours=ours, imports=app.imports, method=method),
        f"{package}/server_app.py": _server(app, package),
        f"{package}/client_app.py": fill(app.client, package=package, **app.values),
    }
    for path, text in files.items():
        write_atomically(folder / path, text.encode())
    return [folder / path for path in files]


def readme(app: App, folder: str, name: str, package: str) -> str:
    """Return the README with the commands in order."""
    first, *_, last = (*app.names[:1], *app.names)
    who = f"--site {first} --data {first}.csv" if app.data else f"--partition {first}"
    files = "".join(f" --data {site}.csv" for site in app.names)
    host, port = app.address.split(":")
    return fill(
        "README.md",
        title=app.title,
        folder=shlex.quote(folder),
        name=name,
        package=package,
        note=f"\n{app.note}\n" if app.note else "",
        seen=SEEN + (SEEN_OF_COLUMNS if app.data else "") + (SEEN_OF_MOMENTS if app.standardized else ""),
        model=MODEL_OF_FILES if app.data else MODEL,
        scaling=SCALING if app.standardized else "",
        sites=", ".join(app.names) if app.data else f"partitions {first} to {last} of the experiment's data",
        first=first,
        who=who,
        rehearse=files if app.data else "",
        host=host,
        port=port,
        needs="data file" if app.data else "part of the data",
    )


def _server(app: App, package: str) -> str:
    lines = [f"{name}=config[{name.replace('_', '-')!r}],".replace("'", '"') for name in app.arguments]
    bounds = "LossBounds, " if any("LossBounds(" in line for line in app.more) else ""
    return fill(
        "server_app.py",
        flower=f"{bounds}Outcome, Strategy, start",
        title=app.title,
        package=package,
        imports=app.server_imports,
        sites=app.sites,
        arguments="\n        ".join([*lines, *app.more]),
    )


def fill(template: str, **values: str) -> str:
    """Return a template with its gaps filled."""
    return Template((TEMPLATES / f"{template}.template").read_text(encoding="utf-8")).substitute(values)
