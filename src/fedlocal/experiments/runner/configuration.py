"""Configurations: the TOML files of all studies, at a scale and a grid, with overrides."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from fedlocal.experiments.runner.settings import StudySettings, TunedStudySettings, TuningName
from fedlocal.experiments.studies import KINDS

Scale = Literal["quick", "paper"]
GridName = Literal["text", "wide"]
# every experiment has these: without a table of its own, a variant is the settings themselves
ALWAYS: dict[str, tuple[str, ...]] = {"scales": get_args(Scale), "grids": ("text",)}


def names() -> list[str]:
    """Return the names of all experiments, sorted."""
    return sorted(_files())


def _files() -> dict[str, Traversable]:
    """Return the TOML file of every experiment; it lies in the folder of its kind."""
    folders = [resources.files(f"fedlocal.experiments.studies.{kind}") for kind in KINDS]
    return {f.name.removesuffix(".toml"): f for folder in folders for f in folder.iterdir() if f.name.endswith(".toml")}


def load(
    name: str,
    scale: Scale = "quick",
    grid: GridName = "text",
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    tuning: TuningName = "all",
) -> StudySettings:
    """Return the settings of an experiment.

    Args:
        name: one of `names()`.
        scale: "quick" is a small version and takes seconds to two minutes; "paper" is as in the text.
        grid: "text" has the text's step sizes; "wide" has smaller client step sizes too.
        overrides: values that replace those of the file, such as "rounds=100" or "score.window=50".
        seeds: seeds that replace those of the file.
        tuning: "all" runs all pairs of step sizes to the end; "halving" drops the worse ones on the way, in studies that tune
            pairs.
    """
    if name not in names():
        raise ValueError(f"run: there is no experiment {name!r}; there are: {', '.join(names())}")
    raw = _read(name)
    kind = raw["kind"]
    for group, wanted in {"scales": scale, "grids": grid}.items():
        variants = raw.pop(group, {})
        if wanted in variants:
            raw = _merge(raw, variants[wanted])
        elif wanted not in ALWAYS[group]:
            known = ", ".join(sorted({*variants, *ALWAYS[group]}))
            raise ValueError(f"run: {name} has no {group.removesuffix('s')} {wanted!r}; it has: {known}")
    if tuning != "all":
        if not issubclass(KINDS[kind], TunedStudySettings):
            having = ", ".join(each for each in KINDS if issubclass(KINDS[each], TunedStudySettings))
            raise ValueError(f"run: {name} does not tune pairs of step sizes; --tuning is for studies of {having}")
        raw = _merge(raw, {"tuning": {"search": tuning}})
    for override in overrides:
        raw = _merge(raw, _assignment(override))
    if (raw["name"], raw["kind"]) != (name, kind):
        raise ValueError("run: name and kind of an experiment cannot be overridden")
    if seeds is not None:
        raw["seeds"] = list(seeds)
    try:
        return KINDS[kind].model_validate(raw)
    except ValidationError as error:
        raise ValueError(f"run: {name}: {_sentence(error, KINDS[kind])}") from None


def same_options(name: str, configuration: Mapping[str, Any]) -> StudySettings:
    """Return the settings of an experiment with the scale, grid, seeds and tuning of a recorded configuration.

    Args:
        name: one of `names()`.
        configuration: what `recorded` returned for a run, perhaps of another experiment.
    """
    tuning = configuration.get("tuning", {}).get("search", "all")
    return load(name, configuration["scale"], configuration["grid_name"], (), configuration["seeds"], tuning)


def recorded(settings: StudySettings, scale: str, grid: str) -> dict[str, Any]:
    """Return the configuration of a run as its provenance file records it."""
    return {**settings.model_dump(mode="json"), "scale": scale, "grid_name": grid}


def _read(name: str) -> dict[str, Any]:
    raw = tomllib.loads(_files()[name].read_text())
    base = raw.pop("base", None)
    return _merge(_read(base), raw) if base else raw


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key; any other value replaces the one below it."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged


def _assignment(text: str) -> dict[str, Any]:
    """Parse "a.b=3" to {"a": {"b": 3}}. The value is read as TOML, and taken as a string if it is not TOML."""
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


def _keys(settings: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the keys of a table of settings."""
    for part in place:
        held = settings.model_fields[str(part)].annotation if str(part) in settings.model_fields else None
        kinds = [kind for kind in (held, *get_args(held)) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if kinds:  # a list of tables has a number next
            settings = kinds[0]
    return [name for name in settings.model_fields if name not in ("name", "kind") or place]


def _sentence(error: ValidationError, settings: type[BaseModel]) -> str:
    """Return the first error as one sentence: the key, the error, the value that was given; or what keys there are."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    place = ".".join(str(part) for part in first["loc"]) or "configuration"
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; there are: {', '.join(_keys(settings, first['loc'][:-1]))}"
    if first["type"] == "value_error":
        return said
    return f"{place}: {said[0].lower()}{said[1:]}, got {first['input']!r}"
