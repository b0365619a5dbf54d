"""The commands of a deployment. Parse, call, print."""

import typer

from fedlocal.cli.deploy import app_commands, coordinator_commands, site_commands

commands = typer.Typer()
for group in (app_commands, coordinator_commands, site_commands):
    commands.add_typer(group.commands)
