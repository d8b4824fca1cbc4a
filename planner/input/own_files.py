"""May capplan write a file there, and what if it cannot? It never replaces a file that it did not write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from simulator.argument_names import Argument
from simulator.errors import InputError, Problem, unwritten

OUTPUT = Argument("output")
"""The argument that names most files and folders."""


def check_own_file(path: Path, what: str, option: str, is_own: Callable[[Path], bool]) -> None:
    """Raises `InputError` if a file cannot be written, or would replace anything but an older file of its kind.

    Args:
        path: the file.
        what: its kind, such as `report`.
        option: option that named it.
        is_own: tells whether an existing file is of that kind.
    """
    with naming_unwritable(path, option):  # such as a name that is too long
        if rule := _broken_rule(path, what, is_own):
            raise InputError([Problem(path=option, value=str(path), rule=rule)])


def check_folder(folder: Path) -> None:
    """Raises `InputError` if the folder of `OUTPUT`, there already or not, cannot be one: it or one above it is a file."""
    with naming_unwritable(folder, OUTPUT):
        above = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), None)
        if above is not None and not above.is_dir():
            what = "a file" if above.exists() else "a link to nothing"
            rule = f"cannot be a folder, since {above} is {what}: choose another name"
            raise InputError([Problem(path=OUTPUT, value=str(folder), rule=rule)])


@contextmanager
def naming_unwritable(path: Path, option: str) -> Iterator[None]:
    """Raises `InputError` with the option and the file if writing fails, for example on a full disk."""
    try:
        yield
    except OSError as error:
        raise unwritten(option, path, error) from error


@contextmanager
def replacing(path: Path, option: str) -> Iterator[Path]:
    """Yields the path of a draft that replaces the file as a whole; raises as `naming_unwritable` does."""
    draft = path.with_name(f".{path.name}.partial")
    try:
        with naming_unwritable(path, option):
            yield draft
            draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yields a draft folder, whose files are moved to the folder of `OUTPUT` together; raises as `naming_unwritable` does.

    An exception leaves nothing behind: missing folders are created only at the end.
    """
    check_folder(folder)
    with naming_unwritable(folder, OUTPUT):
        place = next(above for above in (folder, *folder.parents) if above.exists())
        with TemporaryDirectory(prefix=".capplan-", dir=place) as scratch:
            draft = Path(scratch) / "new"
            draft.mkdir()
            yield draft
            _move(draft, folder)


def _move(draft: Path, folder: Path) -> None:
    """Moves the files of a draft into a folder that exists, or the draft itself to where there is none."""
    if folder.exists():
        for made in sorted(draft.iterdir()):
            made.replace(folder / made.name)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.replace(folder)


def _broken_rule(path: Path, what: str, is_own: Callable[[Path], bool]) -> str:
    if path.is_dir():
        return "is a folder: name a file in it"
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist: make it first"
    if path.exists() and not (path.is_file() and is_own(path)):
        return f"exists and is no {what} of capplan: choose another name"
    try:
        with TemporaryFile(dir=path.parent):  # permissions alone do not show whether a folder is writable
            return ""
    except OSError as error:
        return f"the folder {path.parent} cannot be written to: {error.strerror or error}"
