"""Which studies are there, and where? A folder of study files, each found by name or by the start of its hash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, final

from simulator.argument_names import Argument, Words
from simulator.catalog import catalog_hash
from simulator.domain.job import Job
from simulator.errors import InputError, Problem, StudyError
from studies.files.identity import Identity, Keep
from studies.files.journal import Journal
from studies.files.known_designs import KnownDesigns
from studies.files.lock import held, is_held, lock_of

DEFAULT_FOLDER: Final = Path("capplan-studies")
"""Default folder of studies, MLflow stores and files."""
SUFFIX: Final = ".study"
NUM_SHOWN_DIGITS: Final = 8
"""Digits of the hash in a study's name."""
NUM_LEAST_CHARACTERS: Final = 4
"""Least characters of its name or hash by which a study can be found: fewer are probably a typing error."""
LONGEST_NAME: Final = 60
"""Most characters of the job's name in the name of a file of its study, because file names have a limited length."""


def file_name(job_name: str, ending: str) -> str:
    """Returns a name for a file or folder of a job's study: what its name has of letters, digits and points, and an ending.

    Example:
        >>> file_name("../7B, second try", "0a1b")
        '7B-second-try-0a1b'
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", job_name).strip("-.")[:LONGEST_NAME]
    return f"{readable or 'study'}-{ending}"


def called(path: Path) -> str:
    """Returns how a command refers to a study: its name, with its folder unless that is the default."""
    folder = path.parent
    return path.stem if folder == DEFAULT_FOLDER else f"{path.stem} --store {shlex.quote(str(folder))}"


@final
class StudyStore:
    """A folder with one file per study."""

    def __init__(self, folder: Path = DEFAULT_FOLDER) -> None:
        self.folder = folder

    def create(self, job: Job, seed: int, created_at: datetime, keep: Keep = "all") -> Path:
        """Creates the file of a new study and returns it.

        Raises:
            StudyError: the same study (job, seed, code and kept designs) exists already, another file is in its place, or
                the folder cannot be used.
        """
        self._check_folder()
        identity = Identity.of(job, seed, keep)
        path = self.path_for(job, seed, keep)
        if path.exists():
            raise _taken(path, identity)
        facts = {
            "job": job.model_dump_json(),
            "seed": str(seed),
            "created_at": created_at.isoformat(),
            "simulation_hash": identity.simulation,
            "job_hash": identity.job,
            "code_hash": identity.code,
            "study_hash": identity.study,
            "catalog_hash": catalog_hash(),
            "keep": keep,
        }
        Journal.create(path, facts).close()
        return path

    def path_for(self, job: Job, seed: int, keep: Keep = "all") -> Path:
        """Returns the file of the study of a job, whether or not it exists."""
        digits = Identity.of(job, seed, keep).study[:NUM_SHOWN_DIGITS]
        return self.folder / f"{file_name(job.name, digits)}{SUFFIX}"

    def path_named(self, into: str) -> Path:
        """Returns the file of a new study with this name.

        Raises:
            InputError: the name cannot be that of a file, or is taken.
            StudyError: the folder is not one.
        """
        self._check_folder()
        path = self.folder / f"{into}{SUFFIX}"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", into):
            rule = "must have at most 100 letters, digits, '.', '_' and '-', and no '.', '_' or '-' first"
        elif path.exists():
            rule = f"is the name of a study in {self.folder}, and studies are never overwritten: choose another name"
        else:
            return path
        raise InputError([Problem(path=Argument("into"), value=repr(into[:120]), rule=rule)])

    def paths(self) -> list[Path]:
        """Returns the files of all studies, sorted by name; none if the folder does not exist yet.

        Raises:
            StudyError: the path is not a folder.
        """
        self._check_folder()
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def find(self, name: str) -> Path:
        """Returns the file of a study, given the start of its name or hash, the name of its file, or its path.

        The path may lack the suffix; a study of the store with that name takes precedence.

        Raises:
            StudyError: no study or several studies match, or the path is that of another kind of file.
        """
        if name.endswith(SUFFIX) and Path(name).is_file():
            return Path(name)
        paths = self.paths()
        found = [path for path in paths if name in (path.stem, path.name)]
        if not found and len(name) >= NUM_LEAST_CHARACTERS:
            found = [path for path in paths if path.stem.startswith(name) or _hash(path).startswith(name)]
        if len(found) == 1:
            return found[0]
        if not found and (file := _file_at(name)):
            return file
        if not self.folder.is_dir():
            raise StudyError(
                f"study {name!r}: there is no such study in {self.folder}, which is no folder yet"
            )
        known = ", ".join(path.stem for path in found or paths) or "none"
        rule = "several studies begin so" if found else "there is no such study"
        if len(name) < NUM_LEAST_CHARACTERS:
            rule = f"the beginning of a name needs {NUM_LEAST_CHARACTERS} characters; there is no such study"
        raise StudyError(f"study {name!r}: {rule} in {self.folder}; there are: {known}")

    def _check_folder(self) -> None:
        """Raises `StudyError` if the folder or one above it is a file; a missing folder can be created."""
        for path in (self.folder, *self.folder.parents):
            if path.is_dir():
                return
            if path.exists():
                why = f"{self.folder} cannot be a folder of studies, since {path} is a file"
                way_out = (": name another folder with ", Argument("store"), ", there already or not")
                raise StudyError(Words(why, *way_out))

    def known_designs(self, path: Path) -> KnownDesigns:
        """Returns the designs of other studies whose simulations are valid for one study."""
        simulation = _fact(path, "simulation_hash")
        others = [other for other in self.paths() if other.resolve() != path.resolve()]
        return KnownDesigns([other for other in others if _fact(other, "simulation_hash") == simulation])


def _taken(path: Path, identity: Identity) -> StudyError:
    """The error for a new study whose file exists; raises instead if that file is not a readable study."""
    with Journal.read(path) as journal:
        is_same = journal.facts.get("study_hash") == identity.study
    if is_same:
        return StudyError(
            f"study {path.stem} is there already: the same job, seed and code; see it with `capplan study status "
            f"{called(path)}`, or go on with `capplan study resume {called(path)}`"
        )
    return StudyError(
        f"{path} is there already and holds another study, though it is called as this one would be: rename it"
    )


def _file_at(written: str) -> Path | None:
    """The file of a study whose path was given without the suffix; `None` if nothing is there.

    Raises:
        StudyError: the path is that of a file without the suffix.
    """
    if (path := Path(f"{written}{SUFFIX}")).is_file():
        return path
    if Path(written).is_file():
        raise StudyError(
            f"{written} is a file, but not of a study: their names end in {SUFFIX}; rename it if it is one"
        )
    return None


def _fact(path: Path, name: str) -> str | None:
    """A fact of a study; `None` if the file is not a study."""
    try:
        with Journal.read(path) as journal:
            return journal.facts.get(name)
    except StudyError:
        return None


def _hash(path: Path) -> str:
    return _fact(path, "study_hash") or ""


@contextmanager
def only_runner(path: Path) -> Iterator[None]:
    """Ensures that no other process runs this study inside the context; whatever ends the process frees the study.

    Raises:
        StudyError: another process is running it.
    """
    with held(
        lock_of(path), f"study {path.stem}", "is being run by another process: wait for it, or stop it"
    ):
        yield


def is_running(path: Path) -> bool:
    """Whether some process runs this study now."""
    return is_held(lock_of(path))
