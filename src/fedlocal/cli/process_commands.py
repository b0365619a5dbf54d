"""The commands that make keys and run a deployment: keys, coordinator, start and site."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from fedlocal.cli.app_commands import FolderArgument
from fedlocal.cli.output import reported, say

commands = Typer()


@commands.command(
    epilog="Examples:  fedlocal keys keys --host coordinator.example.org   (the coordinator)   |   "
    "fedlocal keys keys --sites cleveland   (each site)"
)
def keys(
    folder: Annotated[Path, Argument(help="Where they go; not into an app's folder.")],
    host: Annotated[
        list[str] | None, Option(help="The coordinator's name or address, for a certificate; can be repeated.")
    ] = None,
    sites: Annotated[str | None, Option(help="Make a key pair for each of these sites.")] = None,
) -> None:
    """Make the coordinator's certificate (ca.pem, server.pem), or the key pair of a site (SITE.key, SITE.pub)."""
    from fedlocal.deploy.keys import write_certificates, write_key
    from fedlocal.deploy.options import site_names

    with reported():
        if not host and sites is None:
            raise ValueError("keys: give --host for the coordinator's certificate, or --sites for keys of sites")
        files = write_certificates(folder, host) if host else []
        for site in site_names("keys", sites) if sites else ():
            files += write_key(folder, site)
    for file in files:
        say(f"wrote {file}{', which stays secret' if file.suffix == '.key' else ''}")


@commands.command(
    epilog="Examples:  fedlocal coordinator heart --keys keys   |   fedlocal coordinator heart --insecure   (all on this machine)"
)
def coordinator(
    folder: FolderArgument,
    keys: Annotated[
        Path | None,
        Option(help="Folder with ca.pem, server.pem, server.key and SITE.pub of the sites, which may come later."),
    ] = None,
    host: Annotated[
        str | None, Option(help="Address at which sites reach the coordinator; all of this machine's if left out.")
    ] = None,
    port: Annotated[
        int | None, Option(min=1, max=65535, help="Port for sites; the one of the app's address if left out.")
    ] = None,
    control_port: Annotated[
        int, Option(min=1, max=65535, help="Port for `fedlocal start`, on this machine only.")
    ] = 9093,
    insecure: Annotated[bool, Option("--insecure", help="No keys and no encryption, for one machine alone.")] = False,
) -> None:
    """Let sites connect and runs be started, until Ctrl-C; what is kept is kept in the working folder."""
    from fedlocal.deploy.coordinator.server import Listeners, run

    with reported():
        code = run(folder, Listeners.of(folder, keys, insecure, host, port, control_port))
    raise Exit(code)


@commands.command(epilog="Example:  fedlocal start heart --run-config 'rounds=200 results=\"results-2\"'")
def start(
    folder: FolderArgument,
    run_config: Annotated[
        list[str] | None, Option(help="Changes of the app's numbers for this run; can be repeated.")
    ] = None,
) -> None:
    """Run the app on the coordinator that was started in this working folder; exit code 0 when the run completed."""
    from fedlocal.deploy.submission import start as run

    with reported():
        code = run(folder, run_config or [], say=say, show=lambda text: print(text, end="", flush=True))
    raise Exit(code)


@commands.command(
    epilog="Example:  fedlocal site heart --site cleveland --data cleveland.csv --superlink coordinator.example.org:8000 "
    "--root-certificates keys/ca.pem --key keys/cleveland.key"
)
def site(
    folder: FolderArgument,
    superlink: Annotated[str, Option(help="HOST:PORT of the coordinator.")],
    name: Annotated[str | None, Option("--site", help="What this site is called.")] = None,
    data: Annotated[Path | None, Option(help="The site's file, which stays here.")] = None,
    partition: Annotated[int | None, Option(min=0, help="Or the site's number, for an experiment's app.")] = None,
    root_certificates: Annotated[Path | None, Option(help="The coordinator's ca.pem.")] = None,
    key: Annotated[Path | None, Option(help="This site's private key.")] = None,
    policy: Annotated[
        Path | None, Option(help="What this site answers, a TOML file; policy.toml beside the data if there is one.")
    ] = None,
    record: Annotated[
        Path | None,
        Option(help="Where this site writes what it is asked; DATA.record.jsonl beside the data if left out."),
    ] = None,
    insecure: Annotated[bool, Option("--insecure", help="No encryption, for one machine alone.")] = False,
) -> None:
    """Take part in a deployment: answer the coordinator with this copy of the app, until Ctrl-C."""
    from fedlocal.deploy.site import Connection, node_values, run

    with reported():
        connection = Connection(superlink, root_certificates, key, insecure)
        code = run(folder, node_values(name, data, partition, policy, record), connection)
    raise Exit(code)
