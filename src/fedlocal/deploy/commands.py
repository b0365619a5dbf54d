"""The commands of a deployment: deploy, keys, rehearse, coordinator, site, start. Parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from fedlocal.deploy.choices import AGGREGATES, EXACT, EXACT_ROUNDS, LOCAL_ROUNDS, METHODS, TASKS, TOL

if TYPE_CHECKING:
    from fedlocal.deploy.app import App
    from fedlocal.deploy.wish import Wish

commands = typer.Typer()
console = Console()
BADLY = "the rehearsal did not go well"
FolderArgument = Annotated[Path, typer.Argument(help="The app's folder, as `fedlocal deploy` wrote it.")]


@commands.command(
    epilog="Examples:  fedlocal deploy heart --sites cleveland,hungarian,va --target disease --l1 0.01   |   "
    "fedlocal deploy recovery --experiment lasso-1 --l1 0.19   |   "
    "fedlocal deploy speed --experiment a9a-1e-3 --sites 4 --local-steps 64 --client-step-size 0.1"
)
def deploy(
    folder: Annotated[Path, typer.Argument(help="Where the app goes; a new or empty folder.")],
    sites: Annotated[
        str | None, typer.Option(help="What the sites are called, e.g. north,south; a number for some experiments.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column to predict, in tables; leave it out for LIBSVM and npz files.")
    ] = None,
    task: Annotated[str | None, typer.Option(help=f"{' or '.join(TASKS)}; logistic if left out.")] = None,
    experiment: Annotated[
        str | None,
        typer.Option(help="An experiment of the text instead of files: lasso, nuclear, a9a and epsilon ones."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(METHODS)}, or one of the experiment's. {EXACT} if left out, which converges to the fit of "
            "all rows; FedDualAvg with options about local steps."
        ),
    ] = None,
    client_step_size: Annotated[
        float | None,
        typer.Option(
            help="Step size. If left out, the coordinator takes 1 / the largest curvature that a site finds in its loss. "
            "Experiments have their own where the text names some."
        ),
    ] = None,
    server_step_size: Annotated[
        float | None, typer.Option(help="Of the coordinator; 1, or the experiment's, if left out.")
    ] = None,
    l1: Annotated[
        float | None,
        typer.Option(help="Strength of an l1 penalty; 0 if left out, or found by the text's rule (a minute)."),
    ] = None,
    l2: Annotated[float | None, typer.Option(help="Strength of an l2 penalty; 0 if left out.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help=f"Exchanges at most; {EXACT_ROUNDS}, {LOCAL_ROUNDS} for local methods, or the experiment's, if left out."
        ),
    ] = None,
    local_steps: Annotated[
        int | None, typer.Option(help="Steps of a site in a round; 10 for files if left out.")
    ] = None,
    local_epochs: Annotated[int | None, typer.Option(help="Or passes of a site over its rows in a round.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step; all of the site's if left out.")] = None,
    weights: Annotated[str | None, typer.Option(help="examples: sites count by their rows; uniform: equally.")] = None,
    min_clients: Annotated[
        int | None, typer.Option(help="A round counts if so many sites answer; all but one if left out.")
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(help=f"Stop when the duality gap is this share of the objective; {TOL:g} if left out."),
    ] = None,
    aggregate: Annotated[
        str | None,
        typer.Option(help=f"How answers become one: {', '.join(AGGREGATES)}; all but mean bear one false site."),
    ] = None,
    standardize: Annotated[
        bool, typer.Option(help="Bring columns of files to mean 0 and variance 1 over all sites.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Everything random is a function of this number.")] = 0,
    address: Annotated[
        str, typer.Option(help="Where sites will find the coordinator.")
    ] = "coordinator.example.org:8000",
) -> None:
    """Write a Flower app that fits a model over sites that keep their data, with a README of all commands."""
    options = {name: value for name, value in locals().items() if name not in ("folder", "experiment", "sites")}
    from fedlocal.deploy.app import write_app
    from fedlocal.deploy.wish import Wish, site_names

    try:
        wish = Wish(sites=None if sites is None else site_names("deploy", sites), **options)
        app = _app(wish, experiment)
        files = write_app(folder, app)
    except (ValueError, TypeError, OSError) as error:
        _say_and_stop(error)
    for file in files:
        _say(f"wrote {file}")
    if app.note:
        _say(app.note)
    _say(f"next: read {folder / 'README.md'}; it has the commands in order, a rehearsal first")


@commands.command(
    epilog="Examples:  fedlocal keys keys --host coordinator.example.org   (the coordinator)   |   "
    "fedlocal keys keys --sites cleveland   (each site)"
)
def keys(
    folder: Annotated[Path, typer.Argument(help="Where they go; not into an app's folder.")],
    host: Annotated[
        list[str] | None, typer.Option(help="The coordinator's name or address, for a certificate; can be repeated.")
    ] = None,
    sites: Annotated[str | None, typer.Option(help="Make a key pair for each of these sites.")] = None,
) -> None:
    """Make the coordinator's certificate (ca.pem, server.pem), or the key pair of a site (SITE.key, SITE.pub)."""
    from fedlocal.deploy.keys import write_certificates, write_key
    from fedlocal.deploy.wish import site_names

    try:
        if not host and sites is None:
            raise ValueError("keys: give --host for the coordinator's certificate, or --sites for keys of sites")
        files = write_certificates(folder, host) if host else []
        for site in site_names("keys", sites) if sites else ():
            files += write_key(folder, site)
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    for file in files:
        _say(f"wrote {file}{', which stays secret' if file.suffix == '.key' else ''}")


@commands.command(epilog="Example:  fedlocal rehearse heart --data cleveland.csv --data hungarian.csv --data va.csv")
def rehearse(
    folder: FolderArgument,
    data: Annotated[
        list[Path] | None, typer.Option(help="A site's file, in the order of the sites; or one that plays all of them.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds than the app's.")] = None,
) -> None:
    """Run the whole app in this process, to see that files and columns fit; nothing is sent, nothing is kept."""
    from fedlocal.deploy.rehearse import rehearse as run
    from fedlocal.engines.flower import TooFewSites
    from fedlocal.report.tables import table

    try:
        rehearsal = run(folder, data or [], rounds)
    except (ValueError, TypeError, OSError) as error:
        _say_and_stop(error)
    except TooFewSites:
        _say_and_stop(f"{BADLY}: too few sites answered; why not is said above", code=1)
    except FloatingPointError as error:
        _say_and_stop(f"{BADLY}: {error}", code=1)
    except KeyboardInterrupt:
        _say("stopped")
        raise typer.Exit(130) from None
    console.print(table(rehearsal.history, "What the sites' losses came to"))
    console.print(table(rehearsal.events, "What happened"))
    if troubles := rehearsal.troubles():
        _say_and_stop(f"{BADLY}: {'; '.join(troubles)}", code=1)
    _say(f"the rehearsal ran through; {rehearsal.distance()}. Nothing was kept")


@commands.command(
    epilog="Examples:  fedlocal coordinator heart --keys keys   |   fedlocal coordinator heart --insecure   (all on this machine)"
)
def coordinator(
    folder: FolderArgument,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder with ca.pem, server.pem, server.key and SITE.pub of the sites, which may come later."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address at which sites reach the coordinator; all of this machine's if left out."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port for sites; the one of the app's address if left out.")
    ] = None,
    control_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port for `fedlocal start`, on this machine only.")
    ] = 9093,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys and no encryption, for one machine alone.")
    ] = False,
) -> None:
    """Let sites connect and runs be started, until Ctrl-C; what is kept is kept in the working folder."""
    from fedlocal.deploy.coordinator import Listeners, run

    try:
        code = run(folder, Listeners.of(folder, keys, insecure, host, port, control_port))
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    raise typer.Exit(code)


@commands.command(epilog="Example:  fedlocal start heart --run-config 'rounds=200 results=\"results-2\"'")
def start(
    folder: FolderArgument,
    run_config: Annotated[
        list[str] | None, typer.Option(help="Changes of the app's numbers for this run; can be repeated.")
    ] = None,
) -> None:
    """Run the app on the coordinator that was started in this working folder; exit code 0 when the run completed."""
    from fedlocal.deploy.start import start as run

    try:
        code = run(folder, run_config or [], say=_say, show=lambda text: print(text, end="", flush=True))
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    raise typer.Exit(code)


@commands.command(
    epilog="Example:  fedlocal site heart --site cleveland --data cleveland.csv --superlink coordinator.example.org:8000 "
    "--root-certificates keys/ca.pem --key keys/cleveland.key"
)
def site(
    folder: FolderArgument,
    superlink: Annotated[str, typer.Option(help="HOST:PORT of the coordinator.")],
    name: Annotated[str | None, typer.Option("--site", help="What this site is called.")] = None,
    data: Annotated[Path | None, typer.Option(help="The site's file, which stays here.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Or the site's number, for an experiment's app.")] = None,
    root_certificates: Annotated[Path | None, typer.Option(help="The coordinator's ca.pem.")] = None,
    key: Annotated[Path | None, typer.Option(help="This site's private key.")] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="What this site answers, a TOML file; policy.toml beside the data if there is one."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Where this site writes what it is asked; DATA.record.jsonl beside the data if left out."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="No encryption, for one machine alone.")] = False,
) -> None:
    """Take part in a deployment: answer the coordinator with this copy of the app, until Ctrl-C."""
    from fedlocal.deploy.site import Connection, node_values, run

    try:
        connection = Connection(superlink, root_certificates, key, insecure)
        code = run(folder, node_values(name, data, partition, policy, record), connection)
    except (ValueError, OSError) as error:
        _say_and_stop(error)
    raise typer.Exit(code)


def _app(wish: "Wish", experiment: str | None) -> "App":
    if experiment is None:
        from fedlocal.deploy.files import files_app

        return files_app(wish)
    from fedlocal.deploy.experiments import experiment_app

    return experiment_app(experiment, wish)


def _say(text: Any) -> None:
    console.print(escape(str(text)), highlight=False, soft_wrap=True)


def _say_and_stop(error: Exception | str, code: int = 2) -> NoReturn:
    console.print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
    raise typer.Exit(code)
