"""What is one argument of a training script, and a group of them?"""

from __future__ import annotations

from simulator.record import Record


class LaunchArgument(Record):
    """One argument, as a command line has it."""

    name: str
    """Its name, with the dashes."""
    values: tuple[str, ...] = ()
    """Its values; none for a flag. A value that begins with `$` is a variable of the shell."""


class ArgumentGroup(Record):
    """Arguments that belong together."""

    title: str
    """What they are about."""
    arguments: tuple[LaunchArgument, ...]
    """In the order of the script."""


def argument(name: str, *values: object) -> LaunchArgument:
    """Returns an argument; numbers are written without exponents and trailing zeros.

    Example:
        >>> argument("window-size", 4095, 0).values
        ('4095', '0')
    """
    return LaunchArgument(name=f"--{name}", values=tuple(map(_told, values)))


def _told(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
