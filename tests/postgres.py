"""Where does a test find PostgreSQL? It starts a server of its own, on a socket in a temporary folder."""

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
"""Where Debian keeps what is not on the path."""
OWNER = "postgres"
"""PostgreSQL refuses to run as root."""
OPEN_FOLDER = "/tmp"  # noqa: S108 # a folder of random name is made in it
"""Where its owner may go, too, and where names of sockets stay short."""


@contextmanager
def postgres() -> Iterator[str]:
    """Gives the address of an empty database; the test is skipped where PostgreSQL is not installed."""
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
