"""What remains when a process is killed while it creates a study? A draft next to it, which the next new study removes.

A draft is called `.NAME.study.HOST.PROCESS`, so other machines that share the folder leave it alone.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_JOURNAL = "-journal"
"""Suffix that SQLite gives to the file that it keeps next to a database during a transaction."""


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without hard links, such as exFAT."""


def put_in_place(draft: Path, path: Path) -> None:
    """Puts a draft at its path as a whole, never replacing another file; the draft may be gone afterwards.

    Without hard links, an empty file, which only one process can create, reserves the path first; then the draft replaces
    it. In between, others see a file that is not a study yet.

    Raises:
        FileExistsError: another process was faster.
        OSError: the folder cannot be written to.
    """
    try:
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.touch(exist_ok=False)
        try:
            draft.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def draft_of(path: Path) -> Path:
    """Returns where this process writes a study before it is put at its path."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}")


def remove_left_drafts(path: Path) -> None:
    """Removes whatever blocks the draft of a new study, and the drafts of processes that no longer exist."""
    rule = re.compile(rf"\..+\.study\.{re.escape(_host())}\.(\d+)(?:{_JOURNAL})?")
    own = draft_of(path).name
    for file in path.parent.glob(f".*.study.{_host()}.*"):
        found = rule.fullmatch(file.name)
        if found and (file.name.removesuffix(_JOURNAL) == own or not _is_alive(int(found[1]))):
            file.unlink(missing_ok=True)


def _host() -> str:
    """The name of this machine, without characters that are special to file systems or patterns."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", os.uname().nodename)


def _is_alive(process: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True
