"""The commands about an app's folder: deploy writes it, rehearse runs it in this process."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from fedlocal.cli.output import console, reported, say, stop
from fedlocal.deploy.defaults import AGGREGATES, EXACT, EXACT_ROUNDS, LOCAL_ROUNDS, LOSSES, METHODS, TOL

commands = Typer()
FolderArgument = Annotated[Path, Argument(help="The app's folder, as `fedlocal deploy` wrote it.")]
BADLY = "the rehearsal did not go well"
MethodOption = Annotated[
    str | None,
    Option(
        help=f"One of {', '.join(METHODS)}, or one of the experiment's. {EXACT} if left out, which converges to the fit of "
        "all rows; FedDualAvg with options about local steps."
    ),
]
StepSizeOption = Annotated[
    float | None,
    Option(
        help="Step size. If left out, the coordinator takes 1 / the largest curvature that a site finds in its loss. "
        "Experiments have their own where the text names some."
    ),
]


@commands.command(
    epilog="Examples:  fedlocal deploy heart --sites cleveland,hungarian,va --target disease --l1 0.01   |   "
    "fedlocal deploy recovery --experiment lasso-1 --l1 0.19   |   "
    "fedlocal deploy speed --experiment a9a-1e-3 --sites 4 --local-steps 64 --client-step-size 0.1"
)
def deploy(
    folder: Annotated[Path, Argument(help="Where the app goes; a new or empty folder.")],
    sites: Annotated[
        str | None, Option(help="What the sites are called, e.g. north,south; a number for some experiments.")
    ] = None,
    target: Annotated[
        str | None, Option(help="The column to predict, in tables; leave it out for LIBSVM and npz files.")
    ] = None,
    task: Annotated[str | None, Option(help=f"{' or '.join(LOSSES)}; logistic if left out.")] = None,
    experiment: Annotated[
        str | None, Option(help="An experiment of the text instead of files: lasso, nuclear, a9a and epsilon ones.")
    ] = None,
    method: MethodOption = None,
    client_step_size: StepSizeOption = None,
    server_step_size: Annotated[
        float | None, Option(help="Of the coordinator; 1, or the experiment's, if left out.")
    ] = None,
    l1: Annotated[
        float | None, Option(help="Strength of an l1 penalty; 0 if left out, or found by the text's rule (a minute).")
    ] = None,
    l2: Annotated[float | None, Option(help="Strength of an l2 penalty; 0 if left out.")] = None,
    rounds: Annotated[
        int | None,
        Option(
            help=f"Exchanges at most; {EXACT_ROUNDS}, {LOCAL_ROUNDS} for local methods, or the experiment's, if left out."
        ),
    ] = None,
    local_steps: Annotated[int | None, Option(help="Steps of a site in a round; 10 for files if left out.")] = None,
    local_epochs: Annotated[int | None, Option(help="Or passes of a site over its rows in a round.")] = None,
    batch_size: Annotated[int | None, Option(help="Rows per step; all of the site's if left out.")] = None,
    weights: Annotated[str | None, Option(help="examples: sites count by their rows; uniform: equally.")] = None,
    min_clients: Annotated[
        int | None, Option(help="A round counts if so many sites answer; all but one if left out.")
    ] = None,
    tol: Annotated[
        float | None,
        Option(help=f"Stop when the KKT residual, or the duality gap as a share of the objective, is this; {TOL:g}."),
    ] = None,
    aggregate: Annotated[
        str | None, Option(help=f"How answers become one: {', '.join(AGGREGATES)}; all but mean bear one false site.")
    ] = None,
    standardize: Annotated[bool, Option(help="Bring columns of files to mean 0 and variance 1 over all sites.")] = True,
    seed: Annotated[int, Option(min=0, help="Everything random is a function of this number.")] = 0,
    address: Annotated[str, Option(help="Where sites will find the coordinator.")] = "coordinator.example.org:8000",
) -> None:
    """Write a Flower app that fits a model over sites that keep their data, with a README of all commands."""
    options = {name: value for name, value in locals().items() if name not in ("folder", "experiment", "sites")}
    from fedlocal.deploy.app import write_app
    from fedlocal.deploy.options import DeployOptions, site_names

    with reported((ValueError, TypeError, OSError)):
        given = DeployOptions(sites=None if sites is None else site_names("deploy", sites), **options)
        if experiment is None:
            from fedlocal.deploy.files import files_app

            app = files_app(given)
        else:
            from fedlocal.deploy.experiments import experiment_app

            app = experiment_app(experiment, given)
        files = write_app(folder, app)
    for file in files:
        say(f"wrote {file}")
    if app.note:
        say(app.note)
    say(f"next: read {folder / 'README.md'}; it has the commands in order, a rehearsal first")


@commands.command(epilog="Example:  fedlocal rehearse heart --data cleveland.csv --data hungarian.csv --data va.csv")
def rehearse(
    folder: FolderArgument,
    data: Annotated[
        list[Path] | None, Option(help="A site's file, in the order of the sites; or one that plays all of them.")
    ] = None,
    rounds: Annotated[int | None, Option(min=1, help="Fewer rounds than the app's.")] = None,
) -> None:
    """Run the whole app in this process, to see that files and columns fit; nothing is sent, nothing is kept."""
    from fedlocal.deploy.rehearsal import rehearse as run
    from fedlocal.flower import TooFewSites
    from fedlocal.report.tables import table

    with reported((ValueError, TypeError, OSError), interrupted="stopped"):
        try:
            rehearsal = run(folder, data or [], rounds)
        except TooFewSites:
            stop(f"{BADLY}: too few sites answered; why not is said above", code=1)
        except FloatingPointError as error:
            stop(f"{BADLY}: {error}", code=1)
    console.print(table(rehearsal.history, "What the sites' losses came to"))
    console.print(table(rehearsal.events, "What happened"))
    if troubles := rehearsal.troubles():
        stop(f"{BADLY}: {'; '.join(troubles)}", code=1)
    say(f"the rehearsal ran through; {rehearsal.distance()}. Nothing was kept")
