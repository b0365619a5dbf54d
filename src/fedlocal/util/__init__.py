"""Helpers of all parts: checks of arguments, atomic files, serialisation, eigenvalues, progress, provenance, optional imports."""
