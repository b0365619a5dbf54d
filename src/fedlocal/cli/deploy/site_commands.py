"""The command on a site's machine."""

from pathlib import Path
from typing import Annotated

import typer

from fedlocal.cli.deploy.console import FolderArgument, stop

commands = typer.Typer()


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
        stop(error)
    raise typer.Exit(code)
