"""Runs in this process are quiet and do not wait long."""

from quiet_flower import _quiet_and_quick  # noqa: F401  (around every test)
