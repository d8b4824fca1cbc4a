"""Where does a test find PostgreSQL? It starts its own server, on a socket in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Folders in which Debian keeps PostgreSQL's programs, outside PATH."""
OWNER = "postgres"
"""PostgreSQL refuses to run as root."""
OPEN_FOLDER = "/tmp"  # noqa: S108 # a folder of random name is made in it
"""Folder that the server's owner can access, too, with a path short enough for socket names."""


@contextmanager
def postgres() -> Iterator[str]:
    """Yields the address of an empty database; skips the test if PostgreSQL is not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(PROGRAMS))])
    initdb, pg_ctl = shutil.which("initdb", path=path), shutil.which("pg_ctl", path=path)
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(
        prefix="capplan-pg-", dir=OPEN_FOLDER, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        as_owner: list[str] = []
        if os.getuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
            as_owner = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"]
        data = folder / "data"
        made = ["--username=capplan", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        _run([*as_owner, initdb, "-D", str(data), *made], folder)
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        control = [*as_owner, pg_ctl, "-D", str(data), "-w"]
        _run([*control, "-l", str(folder / "log"), "-o", options, "start"], folder)
        try:
            yield f"postgresql+psycopg2://capplan@/postgres?host={folder}"
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
