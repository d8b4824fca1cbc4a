"""How does a command receive options that belong together? As one value instead of an argument for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What `click.option` and `click.argument` return."""


def with_options(*options: Option) -> Callable[[Command], Command]:
    """Returns the decorator that adds options and arguments to a command; its help shows them in this order."""

    def add(command: Command) -> Command:
        made: Callable[..., Any] = command
        for option in reversed(options):
            made = option(made)
        return cast(Command, made)

    return add


def gathered(options: Sequence[Option], name: str, kind: type[Any]) -> Callable[[Command], Command]:
    """Returns the decorator that adds options to a command, which receives their values as one record.

    Args:
        options: the options, in the order in which they are shown.
        name: argument of the command that receives the record.
        kind: dataclass of the record; its fields have the names of the options' parameters.
    """

    def add(command: Command) -> Command:
        @wraps(command)
        def begin(**given: object) -> object:
            values = {field.name: given.pop(field.name) for field in fields(kind)}
            return command(**given, **{name: kind(**values)})

        return with_options(*options)(cast(Command, begin))

    return add
