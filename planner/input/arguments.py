"""Are the arguments of a Python call valid? A seed, a path, a function ..., or else an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path

from planner.input.problems import shown
from simulator.argument_names import Argument
from simulator.errors import InputError, Problem

LARGEST_SEED = 2**32 - 1


def check_seed(seed: object) -> None:
    """Raises `InputError` if a value is not a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        way_out = "; write int(seed)" if isinstance(seed, Integral) and not isinstance(seed, int) else ""
        raise refused("seed", seed, f"must be a whole number from 0 to {LARGEST_SEED}{way_out}")


def check_count(value: object, name: str) -> None:
    """Raises `InputError` if a value is not a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refused(name, value, "must be a whole number, at least 1")


def check_mapping(value: object, name: str, rule: str) -> None:
    """Raises `InputError` with a rule if a value is not a mapping, for example text."""
    if not isinstance(value, Mapping):
        raise refused(name, value, rule)


def path_given(path: object, name: str = "path", of: str = "a file") -> Path:
    """Returns the path of a file, or of what `of` names; raises `InputError` if it is not a path."""
    if not isinstance(path, (str, PathLike)):
        raise refused(name, path, f"must be the path of {of}")
    return Path(path)


def check_kind(value: object, name: str, kind: type, rule: str) -> None:
    """Raises `InputError` with a rule if a value is not of a kind."""
    if not isinstance(value, kind):
        raise refused(name, value, rule)


def check_text(value: object, name: str) -> None:
    """Raises `InputError` if a value is not text."""
    check_kind(value, name, str, "must be text")


def check_choice(value: object, name: str, choices: Sequence[str]) -> None:
    """Raises `InputError` if a value is not one of some texts."""
    if value not in list(choices):
        raise refused(name, value, f"must be {' or '.join(map(repr, choices))}")


def check_functions(**given: object) -> None:
    """Raises `InputError` for the first of some arguments, given by name, that is not callable."""
    for name, value in given.items():
        if not callable(value):
            raise refused(name, value, "must be a function")


def check_switches(**given: object) -> None:
    """Raises `InputError` for the first of some arguments, given by name, that is neither true nor false: no text counts."""
    for name, value in given.items():
        check_kind(value, name, bool, "must be True or False")


def refused(name: str, value: object, rule: str) -> InputError:
    """Returns the error for an argument that breaks a rule."""
    return InputError([Problem(path=Argument(name), value=shown(value) or repr(value), rule=rule)])
