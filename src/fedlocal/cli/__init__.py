"""The command line: one file per group of commands."""

from fedlocal.cli.main import app

__all__ = ["app"]
