"""An app for sites that have a file each: a linear model of all their rows together."""

import json

from fedlocal.deploy.app import App
from fedlocal.deploy.defaults import EXACT, EXACT_ROUNDS, LOCAL_ROUNDS, LOSSES, METHODS, TOL
from fedlocal.deploy.options import OWNER, DeployOptions
from fedlocal.util import checks

LOCAL_ONLY = ("server_step_size", "local_steps", "local_epochs", "batch_size")


def files_app(options: DeployOptions) -> App:
    """Return the app for these options: task, method and what is averaged."""
    if not options.sites:
        raise ValueError(f"{OWNER}: say with --sites what the sites are called, e.g. --sites north,south")
    task = checks.choice(OWNER, "--task", options.task or "logistic", LOSSES)
    # the method that converges, unless an option is about local steps
    usual = "FedDualAvg" if any(getattr(options, name) is not None for name in LOCAL_ONLY) else EXACT
    method = checks.choice(OWNER, "--method", options.method or usual, METHODS)
    if method == EXACT:
        options.refuse(LOCAL_ONLY, f"is for local methods, not for {EXACT}; give --method FedDualAvg, for example")
    l1, l2 = options.l1 or 0.0, options.l2 or 0.0
    if l1 and method == "FedAvg":
        raise ValueError(f"{OWNER}: FedAvg has no --l1; {EXACT}, FedDualAvg and FedMiD have")
    least = options.least_clients(len(options.sites))
    config: dict[str, str | int | float | bool] = {
        "sites": ",".join(options.sites),
        "rounds": options.rounds or (EXACT_ROUNDS if method == EXACT else LOCAL_ROUNDS),
        "tol": options.tol or TOL,
        "client-step-size": options.client_step_size or 0.0,
        **({} if method == EXACT else {"server-step-size": options.server_step_size or 1.0}),
        **({"l1": l1} if l1 else {}),
        **_work(options, method),
        "weights": options.weights or "examples",
        "aggregate": options.aggregate or "mean",
        "min-clients": least,
        "standardize": options.standardize,
        **options.usual_config(eval_every=10),
    }
    amount = [name for name in ("local-steps", "local-epochs", "batch-size") if name in config]
    return App(
        title=_title(options, task, l1, l2),
        client="client_standardized.py" if options.standardize else "client_plain.py",
        values={
            "target": "None" if options.target is None else json.dumps(options.target, ensure_ascii=False),
            "problem": LOSSES[task].problem,
            "penalty": f", l2={l2!r}" if l2 else "",
        },
        method=method_call(method, l1=bool(l1)),
        sites='config["sites"].split(",")',
        config=config,
        arguments=(
            *(name.replace("-", "_") for name in ("rounds", "tol", *amount, "weights", "aggregate", "seed")),
            *("min_clients", "patience", "eval_every", "standardize"),
        ),
        more=(
            'choose_step_size=config["client-step-size"] == 0,  # then it is 1 / the largest curvature of a site\'s loss',
            f"loss_bounds=LossBounds({LOSSES[task].bounds}, l2={l2!r}),  # with which answers are checked",
        ),
        names=options.sites,
        data=True,
        standardized=options.standardize,
        address=options.address,
        note=f"A round counts with {least} of {len(options.sites)} sites (min-clients), so that no site can stop a run alone.",
    )


def _work(options: DeployOptions, method: str) -> dict[str, int]:
    if options.local_epochs:
        work = {"local-epochs": options.local_epochs}
    else:
        work = {"local-steps": 1 if method == EXACT else options.local_steps or 10}
    return work | ({"batch-size": options.batch_size} if options.batch_size else {})


def method_call(method: str, l1: bool) -> str:
    """Return the Python expression of a method."""
    psi = '\n    regularizer=fl.regularizers.L1(config["l1"]),' if l1 else ""
    size = 'config["client-step-size"] or 1.0,  # 0: chosen from the data'
    if method == EXACT:
        return f"fl.methods.{method}(\n    step_size={size}{psi}\n)"
    server = 'server_step_size=config["server-step-size"],'
    return f"fl.methods.{method}(\n    client_step_size={size}\n    {server}{psi}\n)"


def _title(options: DeployOptions, task: str, l1: float, l2: float) -> str:
    penalties = [f"{name} {value:g}" for name, value in (("l1", l1), ("l2", l2)) if value]
    what = "logistic regression" if task == "logistic" else "least squares"
    return f"{what}{' with ' + ' and '.join(penalties) if penalties else ''} over {len(options.sites or ())} sites"
