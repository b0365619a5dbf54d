"""Configurations: those in `configs/`, at a scale and a grid, with overrides."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedlocal.experiments.settings import Settings

CONFIGS = resources.files("fedlocal.experiments") / "configs"
SCALES = ("quick", "paper")
GRIDS = ("text", "wide")


def names() -> list[str]:
    """The experiments there are."""
    return sorted(path.name.removesuffix(".toml") for path in CONFIGS.iterdir() if path.name.endswith(".toml"))


def load(
    name: str,
    scale: str = "quick",
    grid: str = "text",
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> Settings:
    """The settings of an experiment at a scale, with overrides such as "rounds=100" or "score.window=50"."""
    if name not in names():
        raise ValueError(f"run: there is no experiment {name!r}; there are: {', '.join(names())}")
    raw = _read(name)
    kind = raw["kind"]
    variants = {"scales": scale, "grids": grid}
    for group, wanted in variants.items():
        there = raw.pop(group, {})
        if wanted in there:
            raw = _merge(raw, there[wanted])
        elif wanted not in (SCALES if group == "scales" else GRIDS[:1]):
            known = ", ".join(sorted({*there, *(SCALES if group == "scales" else GRIDS[:1])}))
            raise ValueError(f"run: {name} has no {group.removesuffix('s')} {wanted!r}; it has: {known}")
    for override in overrides:
        raw = _merge(raw, _assignment(override))
    if (raw["name"], raw["kind"]) != (name, kind):
        raise ValueError("run: name and kind of an experiment cannot be overridden")
    if seeds is not None:
        raw["seeds"] = list(seeds)
    try:
        return TypeAdapter(Settings).validate_python(raw)
    except ValidationError as error:
        raise ValueError(f"run: {name}: {_sentence(error)}") from None


def _read(name: str) -> dict[str, Any]:
    raw = tomllib.loads((CONFIGS / f"{name}.toml").read_text())
    base = raw.pop("base", None)
    return _merge(_read(base), raw) if base else raw


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged


def _assignment(text: str) -> dict[str, Any]:
    """ "a.b=3" as {"a": {"b": 3}}; the value is TOML, or a string where it is not."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ValueError(f"run: an override must be name=value, e.g. rounds=100, got {text!r}")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    for key in reversed(name.strip().split(".")):
        parsed = {key: parsed}
    return parsed


def _sentence(error: ValidationError) -> str:
    """The first mistake in one sentence: where, what it is, what was given."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    place = ".".join(str(part) for part in first["loc"][1:]) or "configuration"
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}"
    if first["type"] == "value_error":
        return said
    return f"{place}: {said[0].lower()}{said[1:]}, got {first['input']!r}"
