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
"""What a system says of a disk, a quota or a file that is full."""


class CapplanError(Exception):
    """Base of all errors that capplan raises on purpose; `message` is fit for a user's eyes, with arguments as in Python."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def told(self, names: Names) -> str:
        """Returns the text with the names that a front has for arguments."""
        return told(self.message, names)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One broken rule in a user's input."""

    path: str
    """Where it stands, such as `offers[0].num_gpus.max`."""
    value: str
    """What stands there, shortened to one line."""
    rule: str
    """The rule that it breaks, with the way out."""

    def told(self, names: Names) -> Problem:
        """Returns the problem with the names that a front has for the arguments in it."""
        return replace(self, path=told(self.path, names), rule=told(self.rule, names))

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.path}{shown}: {self.rule}" if self.path else self.rule


class InputError(CapplanError):
    """A user's input breaks one or more rules; `problems` holds all of them, and `source` says where."""

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = "\n".join(f"  {problem}" for problem in problems)
        where = f"{source}: " if source else ""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{where}{count}\n{lines}")

    def __reduce__(self) -> tuple[type[Self], tuple[list[Problem], str]]:
        """Pickles what the message is made of, so that the error comes out of another process as it went in."""
        return type(self), (list(self.problems), self.source)

    def told(self, names: Names) -> str:
        """Returns the text with the names that a front has for arguments; fields of a file keep theirs."""
        return str(InputError([problem.told(names) for problem in self.problems], told(self.source, names)))


class CatalogError(InputError):
    """A name is not in the catalogue; the message proposes the nearest ones."""


class NoSpaceError(InputError):
    """A file has no space where it was to be written; the message names it."""


class StudyError(CapplanError):
    """A study cannot be stored or read back."""


class OtherVersionError(StudyError):
    """Another version of capplan wrote a study, so that this one cannot read it; the message says what it met."""


class TrackingError(StudyError):
    """The MLflow store cannot be used; the message names its address and the reason."""


class EngineError(StudyError):
    """The cluster that simulates designs cannot be used; the message names its address and the reason."""


def words_of(error: BaseException) -> str:
    """Returns the text of an error, with the arguments in it where it is one of ours."""
    return error.message if isinstance(error, CapplanError) else str(error)


def system_reason(error: OSError) -> str:
    """Returns what the system says of an error, such as `No space left on device`, however a library words it."""
    return os.strerror(error.errno) if error.errno else str(error)


def unwritten(path: str, file: object, error: OSError, source: str = "") -> InputError:
    """Returns the error of a file that could not be written.

    Args:
        path: the argument that named it; empty where `source` says enough.
        file: its name; empty likewise.
        error: what the system said.
        source: see `InputError`.
    """
    problem = Problem(path=path, value=str(file), rule=f"cannot be written: {system_reason(error)}")
    return (NoSpaceError if error.errno in _NO_SPACE else InputError)([problem], source)


def refusal(source: object, rule: str) -> InputError:
    """Returns the error of a file, or of anything else that is refused as a whole."""
    return InputError([Problem(path="", value="", rule=rule)], str(source))


def check_rules(rules: Mapping[str, tuple[object, bool, str]]) -> None:
    """Raises `InputError` with all rules that are broken.

    Args:
        rules: by the place of a value: the value, whether it keeps the rule, and the rule.
    """
    problems = [
        Problem(path=place, value=str(value), rule=rule)
        for place, (value, is_kept, rule) in rules.items()
        if not is_kept
    ]
    if problems:
        raise InputError(problems)
