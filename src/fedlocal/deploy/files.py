"""An app for sites that have a file each: a linear model of all their rows together."""

import json

from fedlocal import checks
from fedlocal.deploy.app import App, fill
from fedlocal.deploy.choices import METHODS, TASKS, safe_step_size
from fedlocal.deploy.wish import OWNER, Wish


def files_app(wish: Wish) -> App:
    """The app for a wish: task, method and what is averaged."""
    if not wish.sites:
        raise ValueError(f"{OWNER}: say with --sites what the sites are called, e.g. --sites north,south")
    task = checks.choice(OWNER, "--task", wish.task or "logistic", TASKS)
    method = checks.choice(OWNER, "--method", wish.method or "FedDualAvg", METHODS)
    l1, l2 = wish.l1 or 0.0, wish.l2 or 0.0
    if l1 and method == "FedAvg":
        raise ValueError(f"{OWNER}: FedAvg has no --l1; FedDualAvg and FedMiD have")
    if wish.client_step_size is None and not wish.standardize:
        raise ValueError(
            f"{OWNER}: with --no-standardize give --client-step-size: which one is right depends on the units of the columns; "
            "`fedlocal advise` finds one"
        )
    amount = {"local-epochs": wish.local_epochs} if wish.local_epochs else {"local-steps": wish.local_steps or 10}
    batches = {"batch-size": wish.batch_size} if wish.batch_size else {}
    least = checks.whole(OWNER, "--min-clients", wish.min_clients or len(wish.sites), at_most=len(wish.sites))
    config = {
        "sites": ",".join(wish.sites),
        "rounds": wish.rounds or 100,
        "client-step-size": wish.client_step_size or safe_step_size(task, l2),
        "server-step-size": wish.server_step_size or 1.0,
        **({"l1": l1} if l1 else {}),
        **amount,
        **batches,
        "weights": wish.weights or "examples",
        "min-clients": least,
        "standardize": wish.standardize,
        "eval-every": 10,
        "seed": wish.seed,
        "patience": 600.0,
        "timeout": 3600.0,
        "results": "results",
    }
    return App(
        title=_title(wish, task, l1, l2),
        client=_client(wish, task, l2),
        method=method_call(method, l1=bool(l1)),
        sites='config["sites"].split(",")',
        config=config,
        arguments=(
            *(name.replace("-", "_") for name in ("rounds", *amount, *batches, "weights", "seed")),
            *("min_clients", "patience", "eval_every", "standardize"),
        ),
        names=wish.sites,
        data=True,
        standardized=wish.standardize,
        address=wish.address,
    )


def method_call(method: str, l1: bool) -> str:
    """The Python expression of a method with two step sizes."""
    psi = '\n    regularizer=fl.regularizers.L1(config["l1"]),' if l1 else ""
    return (
        f'fl.methods.{method}(\n    client_step_size=config["client-step-size"],\n'
        f'    server_step_size=config["server-step-size"],{psi}\n)'
    )


def _title(wish: Wish, task: str, l1: float, l2: float) -> str:
    penalties = [f"{name} {value:g}" for name, value in (("l1", l1), ("l2", l2)) if value]
    what = "logistic regression" if task == "logistic" else "least squares"
    return f"{what}{' with ' + ' and '.join(penalties) if penalties else ''} over {len(wish.sites or ())} sites"


def _client(wish: Wish, task: str, l2: float) -> str:
    return fill(
        "client_standardized.py" if wish.standardize else "client_plain.py",
        target="None" if wish.target is None else json.dumps(wish.target, ensure_ascii=False),
        problem=TASKS[task],
        penalty=f", l2={l2!r}" if l2 else "",
    )
