"""An app for sites that have a file each: a linear model of all their rows together."""

import json

from fedlocal import checks
from fedlocal.deploy.app import App
from fedlocal.deploy.choices import EXACT, EXACT_ROUNDS, LOCAL_ROUNDS, METHODS, TASKS, TOL
from fedlocal.deploy.wish import OWNER, Wish

LOCAL_ONLY = ("server_step_size", "local_steps", "local_epochs", "batch_size")


def files_app(wish: Wish) -> App:
    """The app for a wish: task, method and what is averaged."""
    if not wish.sites:
        raise ValueError(f"{OWNER}: say with --sites what the sites are called, e.g. --sites north,south")
    task = checks.choice(OWNER, "--task", wish.task or "logistic", TASKS)
    method = checks.choice(OWNER, "--method", wish.method or _usual_method(wish), METHODS)
    if method == EXACT:
        wish.refuse(LOCAL_ONLY, f"is for local methods, not for {EXACT}; give --method FedDualAvg, for example")
    l1, l2 = wish.l1 or 0.0, wish.l2 or 0.0
    if l1 and method == "FedAvg":
        raise ValueError(f"{OWNER}: FedAvg has no --l1; {EXACT}, FedDualAvg and FedMiD have")
    least = wish.min_clients or max(1, len(wish.sites) - 1)
    config: dict[str, str | int | float | bool] = {
        "sites": ",".join(wish.sites),
        "rounds": wish.rounds or (EXACT_ROUNDS if method == EXACT else LOCAL_ROUNDS),
        "tol": wish.tol or TOL,
        "client-step-size": wish.client_step_size or 0.0,
        **({} if method == EXACT else {"server-step-size": wish.server_step_size or 1.0}),
        **({"l1": l1} if l1 else {}),
        **_work(wish, method),
        "weights": wish.weights or "examples",
        "aggregate": wish.aggregate or "mean",
        "min-clients": checks.whole(OWNER, "--min-clients", least, at_most=len(wish.sites)),
        "standardize": wish.standardize,
        "eval-every": 10,
        "seed": wish.seed,
        "patience": 600.0,
        "timeout": 3600.0,
        "results": "results",
    }
    amount = [name for name in ("local-steps", "local-epochs", "batch-size") if name in config]
    return App(
        title=_title(wish, task, l1, l2),
        client="client_standardized.py" if wish.standardize else "client_plain.py",
        values=_values(wish, task, l2),
        method=method_call(method, l1=bool(l1)),
        sites='config["sites"].split(",")',
        config=config,
        arguments=(
            *(name.replace("-", "_") for name in ("rounds", "tol", *amount, "weights", "aggregate", "seed")),
            *("min_clients", "patience", "eval_every", "standardize"),
        ),
        server_imports="from fedlocal.engines.flower.loss_bounds import LossBounds\n",
        more=(
            'choose_step_size=config["client-step-size"] == 0,  # then it is 1 / the largest curvature of a site\'s loss',
            f"loss_bounds=LossBounds({TASKS[task].bounds}, l2={l2!r}),  # with which answers are checked",
        ),
        names=wish.sites,
        data=True,
        standardized=wish.standardize,
        address=wish.address,
        note=f"A round counts with {least} of {len(wish.sites)} sites (min-clients), so that no site can stop a run alone.",
    )


def _usual_method(wish: Wish) -> str:
    """The one that converges, unless an option is about local steps."""
    return "FedDualAvg" if any(getattr(wish, name) is not None for name in LOCAL_ONLY) else EXACT


def _work(wish: Wish, method: str) -> dict[str, int]:
    """What a site does in a round."""
    if wish.local_epochs:
        work = {"local-epochs": wish.local_epochs}
    else:
        work = {"local-steps": 1 if method == EXACT else wish.local_steps or 10}
    return work | ({"batch-size": wish.batch_size} if wish.batch_size else {})


def method_call(method: str, l1: bool) -> str:
    """The Python expression of a method."""
    psi = '\n    regularizer=fl.regularizers.L1(config["l1"]),' if l1 else ""
    size = 'config["client-step-size"] or 1.0,  # 0: chosen from the data'
    if method == EXACT:
        return f"fl.methods.{method}(\n    step_size={size}{psi}\n)"
    server = 'server_step_size=config["server-step-size"],'
    return f"fl.methods.{method}(\n    client_step_size={size}\n    {server}{psi}\n)"


def _title(wish: Wish, task: str, l1: float, l2: float) -> str:
    penalties = [f"{name} {value:g}" for name, value in (("l1", l1), ("l2", l2)) if value]
    what = "logistic regression" if task == "logistic" else "least squares"
    return f"{what}{' with ' + ' and '.join(penalties) if penalties else ''} over {len(wish.sites or ())} sites"


def _values(wish: Wish, task: str, l2: float) -> dict[str, str]:
    return {
        "target": "None" if wish.target is None else json.dumps(wish.target, ensure_ascii=False),
        "problem": TASKS[task].problem,
        "penalty": f", l2={l2!r}" if l2 else "",
    }
