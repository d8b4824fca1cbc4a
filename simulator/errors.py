"""What can go wrong, as one tree of exceptions.

CapplanError                 everything capplan raises on purpose
├── InputError               a file, a field or an argument breaks a rule (exit code 2)
│   ├── CatalogError         a name is not in the catalogue
│   └── NoSpaceError         there is no space for a file (exit code 1)
└── StudyError               a study cannot be stored or read back
    ├── OtherVersionError    another version of capplan wrote the study
    ├── TrackingError        the MLflow store cannot be used
    └── EngineError          the cluster that simulates cannot be used
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from simulator.argument_names import Names, told

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""System errors that mean a full disk, quota or file."""
MOST_SHOWN = 50
"""Most problems in one message; a wrong list may have thousands, of one kind."""


class CapplanError(Exception):
    """Base of all errors that capplan raises on purpose; `message` is written for users, with arguments named as in Python."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def told(self, names: Names) -> str:
        """Returns the text with a front end's names for arguments."""
        return told(self.message, names)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One broken rule in a user's input."""

    path: str
    """Its location, such as `offers[0].num_gpus.max`."""
    value: str
    """The offending value, shortened to one line."""
    rule: str
    """The rule that it breaks, and how to fix it."""

    def told(self, names: Names) -> Problem:
        """Returns the problem with a front end's names for the arguments in it."""
        return replace(self, path=told(self.path, names), rule=told(self.rule, names))

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.path}{shown}: {self.rule}" if self.path else self.rule


class InputError(CapplanError):
    """A user's input breaks one or more rules: `problems` lists all of them, the message at most `MOST_SHOWN`.

    `source` names the input.
    """

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = "\n".join(f"  {problem}" for problem in problems[:MOST_SHOWN])
        if len(problems) > MOST_SHOWN:
            lines += f"\n  and {len(problems) - MOST_SHOWN:,} more"
        where = f"{source}: " if source else ""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{where}{count}\n{lines}")

    def __reduce__(self) -> tuple[type[Self], tuple[list[Problem], str]]:
        """Pickles the parts of the message, so that the error is the same after it has crossed a process boundary."""
        return type(self), (list(self.problems), self.source)

    def told(self, names: Names) -> str:
        """Returns the text with a front end's names for arguments; fields of a file keep their names."""
        return str(InputError([problem.told(names) for problem in self.problems], told(self.source, names)))


class CatalogError(InputError):
    """A name is not in the catalogue; the message proposes the nearest ones."""


class NoSpaceError(InputError):
    """There is no space left for a file; the message names it."""


class StudyError(CapplanError):
    """A study cannot be stored or read back."""


class OtherVersionError(StudyError):
    """Another version of capplan wrote the study, so this one cannot read it; the message says what it found."""


class TrackingError(StudyError):
    """The MLflow store cannot be used; the message names its address and the reason."""


class EngineError(StudyError):
    """The cluster that simulates designs cannot be used; the message names its address and the reason."""


def words_of(error: BaseException) -> str:
    """Returns the text of an error; for errors of our own, with the arguments in it."""
    return error.message if isinstance(error, CapplanError) else str(error)


def system_reason(error: OSError) -> str:
    """Returns the system's reason for an error, such as `No space left on device`, however a library words it."""
    return os.strerror(error.errno) if error.errno else str(error)


def unwritten(path: str, file: object, error: OSError, source: str = "") -> InputError:
    """Returns the error of a file that could not be written.

    Args:
        path: the argument that named the file; empty where `source` is enough.
        file: its name; empty likewise.
        error: the system's error.
        source: see `InputError`.
    """
    problem = Problem(path=path, value=str(file), rule=f"cannot be written: {system_reason(error)}")
    return (NoSpaceError if error.errno in _NO_SPACE else InputError)([problem], source)


def refusal(source: object, rule: str) -> InputError:
    """Returns the error for a file, or another input, that is rejected as a whole."""
    return InputError([Problem(path="", value="", rule=rule)], str(source))


def check_rules(rules: Mapping[str, tuple[object, bool, str]]) -> None:
    """Raises `InputError` with all broken rules.

    Args:
        rules: by the location of a value: the value, whether it satisfies the rule, and the rule.
    """
    problems = [
        Problem(path=place, value=str(value), rule=rule)
        for place, (value, is_kept, rule) in rules.items()
        if not is_kept
    ]
    if problems:
        raise InputError(problems)
