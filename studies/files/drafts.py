"""What stays when a process is killed while it makes a new study? A draft beside it, which the next new study takes away.

A draft is called `.NAME.study.HOST.PROCESS`, so that another machine that shares the folder leaves it alone.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_JOURNAL = "-journal"
"""What SQLite appends to the name of a file for the one that it keeps beside it in a transaction."""


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system without hard links, such as exFAT, says of one."""


def put_in_place(draft: Path, path: Path) -> None:
    """Has what a draft holds stand at its path, whole, and never over another file; the draft may be gone afterwards.

    Where there are no hard links an empty file takes the place first, which only one process can make; the draft replaces it.
    Whoever looks between the two sees a file that is no study yet.

    Raises:
        FileExistsError: somebody was quicker.
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
    """Returns where this process writes a study before it stands at its path."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}")


def remove_left_drafts(path: Path) -> None:
    """Takes away what would stand in the way of a new study's draft, and the drafts of processes that are no more."""
    rule = re.compile(rf"\..+\.study\.{re.escape(_host())}\.(\d+)(?:{_JOURNAL})?")
    own = draft_of(path).name
    for file in path.parent.glob(f".*.study.{_host()}.*"):
        found = rule.fullmatch(file.name)
        if found and (file.name.removesuffix(_JOURNAL) == own or not _is_alive(int(found[1]))):
            file.unlink(missing_ok=True)


def _host() -> str:
    """The name of this machine, without what is special to a file system or a pattern."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", os.uname().nodename)


def _is_alive(process: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True
