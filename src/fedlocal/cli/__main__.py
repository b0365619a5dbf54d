"""`python -m fedlocal.cli` is the command `fedlocal`."""

from fedlocal.cli.main import app

app()
