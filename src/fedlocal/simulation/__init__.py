"""Engines run a method on a problem: `simulate` fast, `sweep` many at once, `loop` in plain Python.

Nothing is imported here: a site needs the sampling of a round, and neither the engines nor their compiled loops.
"""
