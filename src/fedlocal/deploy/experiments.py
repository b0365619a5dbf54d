"""An app for an experiment of the text: every site has its part of the experiment's data, by number."""

from typing import Any

from fedlocal.deploy.app import App
from fedlocal.deploy.options import OWNER, DeployOptions
from fedlocal.experiments import load, names, problem_of, regularizer_of
from fedlocal.experiments.studies.recovery.settings import RecoverySettings
from fedlocal.experiments.studies.speedup.settings import SpeedupSettings
from fedlocal.util import checks

FILES_ONLY = ("target", "task", "l2", "weights", "local_epochs", "batch_size", "tol", "aggregate")
ALWAYS = ("rounds", "weights", "seed", "min_clients", "patience", "eval_every")
BETTER = {("lasso-1", "FedDualAvg"): (0.001, 1.0)}  # where those of the text diverge; docs/errata.md


def supported() -> list[str]:
    """The experiments that can be deployed: recovery and speed-up studies, whose problems are made by one function."""
    return [name for name in names() if type(load(name)) in (RecoverySettings, SpeedupSettings)]


def experiment_app(name: str, wish: DeployOptions) -> App:
    """The app for an experiment at the text's size, with what the wish says of method and step sizes."""
    checks.choice(OWNER, "--experiment", name, supported())
    wish.refuse(FILES_ONLY, f"is set by the experiment {name}")
    if not wish.standardize:
        raise ValueError(f"{OWNER}: --no-standardize is for files; the columns of {name} are never standardised")
    settings = load(name, "paper")
    if isinstance(settings, RecoverySettings):
        return _recovery(settings, wish)
    assert isinstance(settings, SpeedupSettings)
    return _speedup(settings, wish)


def _recovery(settings: RecoverySettings, wish: DeployOptions) -> App:
    """The tuned method of the text, unless the wish says otherwise."""
    wish.refuse(("sites", "local_steps"), f"is set by the experiment {settings.name}")
    method = checks.choice(OWNER, "--method", wish.method or settings.methods[0], settings.methods)
    sites = problem_of(settings.name, seed=wish.seed).num_clients
    low_rank = settings.data.generator == "synthetic_low_rank"
    if wish.l1 is not None and low_rank:
        raise ValueError(f"{OWNER}: --l1 is for lasso experiments; {settings.name} has a nuclear norm")
    text = next((c.step_sizes for c in settings.claims if c.method == method and c.step_sizes), None)
    tuned = BETTER.get((settings.name, method), text)
    given = zip((wish.client_step_size, wish.server_step_size), tuned or (None, None), strict=True)
    client_step_size, server_step_size = (own if own is not None else usual for own, usual in given)
    if client_step_size is None:
        instead = f"give --client-step-size, e.g. one that `fedlocal run {settings.name}` finds"
        raise ValueError(f"{OWNER}: the text names no step sizes for {method} on {settings.name}; {instead}")
    strength = wish.l1
    if strength is None:
        strength = float(regularizer_of(settings.name, seed=wish.seed).strengths()[0])
    changed = tuned != text and wish.client_step_size is None
    part = settings.clients_per_round
    config = {
        "sites": sites,
        "rounds": wish.rounds or settings.rounds,
        "client-step-size": client_step_size,
        "server-step-size": 1.0 if server_step_size is None else server_step_size,
        "strength": strength,
        "local-epochs": settings.local_epochs,
        "batch-size": settings.batch_size,
        "clients-per-round": part,
        "weights": settings.weights,
        **wish.usual_config(settings.eval_every),
        "min-clients": wish.least_clients(part),
    }
    psi = f'fl.regularizers.{"Nuclear" if low_rank else "L1"}(config["strength"])'
    return _numbered(
        settings.title,
        wish,
        config,
        client="client_recovery.py",
        values={"experiment": settings.name, "seed": str(wish.seed)},
        method=(
            f'composite_method(\n    "{method}",\n    {psi},\n    config["client-step-size"],\n    config["server-step-size"],\n)'
        ),
        arguments=(*ALWAYS, "local_epochs", "batch_size", "clients_per_round"),
        imports="from fedlocal.experiments import composite_method\n",
        note=f"The step sizes are not the text's {text}, with which {method} diverges here." if changed else "",
    )


def _speedup(settings: SpeedupSettings, wish: DeployOptions) -> App:
    """One run of the study: a method, a step size, a number of sites and of local steps."""
    wish.refuse(("l1", "server_step_size"), f"does not belong to the experiment {settings.name}")
    method = checks.choice(OWNER, "--method", wish.method or settings.methods[0], settings.methods)
    if wish.client_step_size is None or wish.sites is None or wish.local_steps is None:
        needed = "--sites NUMBER, --local-steps and --client-step-size"
        raise ValueError(f"{OWNER}: {settings.name} is a study of many runs; say which with {needed}")
    number = wish.sites[0] if len(wish.sites) == 1 else ""
    if not number.isdigit():
        raise ValueError(f"{OWNER}: --sites must be a number for {settings.name}, got {','.join(wish.sites)!r}")
    sites = checks.whole(OWNER, "--sites", int(number))
    config = {
        "sites": sites,
        "rounds": wish.rounds or max(1, settings.steps // wish.local_steps),
        "client-step-size": wish.client_step_size,
        "local-steps": wish.local_steps,
        "batch-size": 1,
        "weights": "uniform",
        **wish.usual_config(max(1, settings.eval_steps // wish.local_steps)),
        "min-clients": wish.least_clients(sites),
    }
    return _numbered(
        settings.title,
        wish,
        config,
        client="client_speedup.py",
        values={"experiment": settings.name, "sites": str(sites)},
        method=f'smooth_method("{method}", config["client-step-size"], {settings.l2!r}, config["local-steps"])',
        arguments=(*ALWAYS, "local_steps", "batch_size"),
        imports="from fedlocal.experiments import smooth_method\n",
        server_imports="from fedlocal.experiments import start_of\n",
        more=(f'x0=start_of("{settings.name}"),',),
    )


def _numbered(title: str, wish: DeployOptions, config: dict[str, Any], **parts: Any) -> App:
    """Return an app whose sites have numbers for names and make their data themselves."""
    sites, names = '[str(number) for number in range(config["sites"])]', tuple(map(str, range(config["sites"])))
    return App(title=title, sites=sites, config=config, names=names, data=False, address=wish.address, **parts)
