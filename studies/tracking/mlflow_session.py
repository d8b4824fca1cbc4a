"""How do we talk to MLflow? Quietly, with errors that name the store and the reason, and without side effects.

Inside `mlflow_at` nothing is logged, printed, warned about or reported to MLflow's makers, and afterwards all settings are
restored. Every failure is a `TrackingError` without the store's password in it.
"""

from __future__ import annotations

import getpass
import logging
import os
import posixpath
import re
import sqlite3
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import unquote

from simulator.argument_names import Words
from simulator.errors import InputError, Problem, StudyError, TrackingError, system_reason
from studies.files.drafts import put_in_place
from studies.tracking.mlflow_server import CONNECT_TIMEOUT_S, check_server, given_by, is_server, server_words

if TYPE_CHECKING:
    import sqlalchemy as sa

MAX_KEY_CHARACTERS = 250
MAX_PARAM_CHARACTERS = 6_000
MAX_TAG_CHARACTERS = 8_000
"""Limits of MLflow's client and REST interface (mlflow/utils/validation.py, MLflow 3.17)."""

CACHE_KIB = 64_000
"""Cache of an SQLite connection that writes many rows; a tenth faster than with the usual 2 MB."""

BUSY_TIMEOUT_MS = 20_000
"""How long SQLite waits for another writer: as long as MLflow's own sessions."""

ANALYSED_ROWS = 1_000
"""Rows of an index that SQLite samples to estimate how many are equal."""

MAX_REASON_CHARACTERS = 500
"""Databases quote whole statements in their errors; the reason comes first."""

STORE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https", "file", "databricks")
"""Stores that MLflow supports natively; databases may also name a driver, as in `postgresql+psycopg://`."""
_IN_MEMORY = re.compile(
    r"sqlite(\+\w+)?:/*(:memory:|file::memory:.*|.*[?&]mode=memory.*)?(\?.*)?", re.IGNORECASE
)
"""Addresses of stores that end with the process that created them."""
_SCHEME = re.compile(r"([a-z][\w.-]+)(\+[\w.-]+)?:", re.IGNORECASE)
"""Scheme of an address; paths have none, and a drive letter is none."""

LOGGERS = ("mlflow", "alembic", "urllib3")
"""Loggers of messages that become errors here anyway."""

_PACKAGES = {
    "psycopg2": "pip install 'capplan[postgres]'",
    "psycopg": "write postgresql+psycopg2:// and pip install 'capplan[postgres]', or pip install 'psycopg[binary]'",
    "MySQLdb": "write mysql+pymysql:// and pip install pymysql, or pip install mysqlclient",
}
"""By missing module, how its database can be reached if the package has another name."""
_FOLDER_STORE = "filesystem tracking backend"
"""What MLflow calls a folder of runs when it refuses one."""
_SETTINGS = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""How long to try a server, unless the user says otherwise: MLflow would try for minutes while the study waits."""
_STATEMENT = re.compile(r"\[SQL: |\(Background on this error")
"""Where the error of a database goes on with its statement, values and a link."""
_PASSWORDS = (
    re.compile(r"://[^/:@]*:(.*)@"),
    re.compile(r"[?&](?:\w*password|passwd|pwd|\w*token)=([^&]+)", re.IGNORECASE),
)


@contextmanager
def mlflow_at(uri: str) -> Iterator[None]:
    """Silences MLflow inside the context and turns every failure into a TrackingError that names `uri` and the reason."""
    with _QUIET.shared():
        from alembic.util import CommandError
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        failures = (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error, OSError, ImportError)
        try:
            yield
        except failures as error:
            # A cause that quotes the address would show the password in the traceback.
            cause = None if any(password in str(error) for password in _passwords(uri)) else error
            given = (" (", given_by(uri), ")") if is_server(uri) else ()
            reason = f": {_reason(uri, error)}"
            raise TrackingError(Words("MLflow store ", without_password(uri), *given, reason)) from cause


def without_password(uri: str) -> str:
    """Returns `uri` fit to be shown: `***` in place of passwords and tokens."""
    return _hide(uri, _passwords(uri))


def check_scheme(uri: str, source: str) -> None:
    """Raises an InputError for the address of a store that MLflow does not support, or that would not outlive the command.

    Whether the store exists is checked later.

    Args:
        uri: the address.
        source: where it was given.
    """
    if _IN_MEMORY.fullmatch(uri):
        rule = "is a store in memory, of which nothing stays: must name a file, such as sqlite:///mlflow.db"
        raise InputError([Problem(path=source, value=uri, rule=rule)])
    found = _SCHEME.match(uri)
    if found is None or found[1].lower() in STORE_SCHEMES:
        return
    plugins = sorted({plugin.name for plugin in entry_points(group="mlflow.tracking_store")})
    if found[1].lower() not in plugins:
        known = ", ".join(dict.fromkeys([*(each for each in STORE_SCHEMES if each != "file"), *plugins]))
        rule = f"MLflow has no store {found[1]}; must be a path, or begin with one of {known}, such as sqlite:///mlflow.db"
        raise InputError([Problem(path=source, value=without_password(uri), rule=rule)])


def origin_tags() -> dict[str, str]:
    """Returns the tags from which MLflow's interface shows who recorded a run, and with what."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = "unknown"
    return {"mlflow.user": user, "mlflow.source.name": "capplan", "mlflow.source.type": "LOCAL"}


def check_key(kind: str, key: str) -> None:
    """Raises a StudyError for a name that MLflow does not accept."""
    # MLflow's rule: a key may become a file name and must not point elsewhere.
    points_elsewhere = posixpath.normpath(key) != key or key.startswith(("/", "..")) or key == "."
    if points_elsewhere or not re.fullmatch(rf"[/\w.\- :]{{1,{MAX_KEY_CHARACTERS}}}", key):
        rule = f"use at most {MAX_KEY_CHARACTERS} of letters, digits, _ - . : / and space"
        raise StudyError(f"{kind} {key!r}: {rule}")


def check_texts(what: str, texts: Sequence[str], max_characters: int) -> None:
    """Raises a StudyError if one of the texts is longer than MLflow accepts."""
    num_characters = max(map(len, texts), default=0)
    if num_characters > max_characters:
        raise StudyError(
            f"{what} has {num_characters} characters: MLflow takes {max_characters} at most; "
            "keep longer texts as a file (artifact)"
        )


# Is the store reachable?


def sqlite_file(uri: str) -> Path | None:
    """Returns the file of an SQLite store; None for any other store and for one in memory."""
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    database = make_url(uri).database
    is_file = database and database != ":memory:" and not database.startswith("file:")
    return Path(database).resolve() if database and is_file else None


def check_usable(uri: str) -> None:
    """Raises, within `mlflow_at`, if the store cannot be reached or written.

    MLflow itself would keep retrying: for 100 s on a database, for minutes on a server.
    """
    if file := sqlite_file(uri):
        _check_file(file)
    elif is_server(uri):
        check_server(uri)
    elif uri.startswith(("postgresql", "mysql")):
        _check_database(uri)


def make_file(uri: str) -> None:
    """Creates atomically, within `mlflow_at`, the file of an SQLite store that does not exist yet.

    MLflow creates its tables in dozens of steps. These fail if two studies start in a new folder at the same time, and an
    interrupt in between would leave an unusable file.
    """
    file = sqlite_file(uri)
    if file is None or file.exists():
        return
    with _MAKING:
        _make_new(file)


def _make_new(file: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".new-") as folder:
        draft = Path(folder) / file.name
        store = SqlAlchemyStore(  # type: ignore[no-untyped-call]
            f"sqlite:///{draft.as_posix()}", artifact_folder(file).as_uri()
        )
        store.engine.dispose()
        with suppress(FileExistsError):  # another study was faster
            put_in_place(draft, file)


def artifact_folder(file: Path) -> Path:
    """Returns where the runs of an SQLite store keep their files: next to it."""
    return file.parent / "artifacts"


def _check_file(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        return
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_MS / 1e3, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        # Only a real write, rolled back at once, distinguishes a read-only file or folder from a writable one.
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("ROLLBACK")


def _check_database(uri: str) -> None:
    import sqlalchemy as sa

    try:
        engine = sa.create_engine(
            uri, poolclass=sa.pool.NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT_S}
        )
    except ModuleNotFoundError as error:
        way_out = _PACKAGES.get(error.name or "", f"pip install {error.name}")
        raise ImportError(f"its driver is not installed ({error}): {way_out}") from error
    engine.connect().close()


# Silence and secrets


@contextmanager
def _quiet() -> Iterator[None]:
    with _settings(), _silence():
        yield


class _Quiet:
    """Silence that all threads share: it begins with the first of them and ends with the last.

    Environment, warnings and logger levels are global to the process. If each thread restored what it had found, it would
    restore what another thread had set.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_inside = 0
        self._inside = ExitStack()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Is quiet inside."""
        with self._lock:
            if self._num_inside == 0:
                self._inside.enter_context(_quiet())
            self._num_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_inside -= 1
                if self._num_inside == 0:
                    self._inside.close()


_QUIET = _Quiet()
_MAKING = Lock()
"""Alembic, which creates MLflow's tables, handles only one database at a time in a process."""


@contextmanager
def _settings() -> Iterator[None]:
    patience = {name: text for name, text in _PATIENCE.items() if name not in os.environ}
    ours = {**_SETTINGS, **patience}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _silence() -> Iterator[None]:
    """Keeps MLflow from logging and warning.

    Errors that it logs are also raised, and its warnings concern its own libraries.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow  # noqa: F401  (sets the levels of its loggers)

        levels = {logger: logger.level for logger in map(logging.getLogger, LOGGERS)}
        try:
            for logger in levels:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)


def _reason(uri: str, error: Exception) -> str:
    if is_server(uri) and (words := server_words(error)):
        return words
    if _FOLDER_STORE in str(error):
        return (
            "this is a folder, which MLflow no longer writes to: name a database, such as sqlite:///mlflow.db"
        )
    if isinstance(error, OSError) and error.errno:
        return system_reason(error)
    said, *_ = _STATEMENT.split(str(error), maxsplit=1)
    text = " ".join(said.split())
    return _hide(text, _passwords(uri))[:MAX_REASON_CHARACTERS] or type(error).__name__


def _passwords(uri: str) -> list[str]:
    """Returns the secrets in an address, both as written and as the store decodes them."""
    found = [match for pattern in _PASSWORDS for match in pattern.findall(uri) if match]
    return found + [unquote(password) for password in found]


def _hide(text: str, passwords: list[str]) -> str:
    for password in passwords:
        text = text.replace(password, "***")
    return text


# Writing to the database behind a store


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yields a connection; meanwhile an SQLite file has a write-ahead log, so that others can keep reading.

    The log stays in use if another program has the file open at the end.
    """
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            yield connection
            return
        connection.exec_driver_sql(f"PRAGMA cache_size = -{CACHE_KIB}")
        mode = _set_journal(connection, None)
        is_switched = mode == "delete" and _set_journal(connection, "wal") == "wal"
        try:
            yield connection
        finally:
            if is_switched:
                _set_journal(connection, mode)


def refresh_statistics(connection: sa.Connection, tables: Iterable[str]) -> None:
    """Updates the database's statistics on its tables.

    Without it SQLite sorts ten thousand runs by a metric in 3 s instead of 0.04 s.
    """
    if connection.dialect.name in ("sqlite", "postgresql"):
        with connection.begin():
            if connection.dialect.name == "sqlite":  # otherwise it would read everything in the store
                connection.exec_driver_sql(f"PRAGMA analysis_limit = {ANALYSED_ROWS}")
            for table in tables:
                connection.exec_driver_sql(f"ANALYZE {table}")


def _set_journal(connection: sa.Connection, mode: str | None) -> str | None:
    """Returns the journal mode now in force; None if others use the file, so that the mode cannot change."""
    from sqlalchemy.exc import OperationalError

    try:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        now = connection.exec_driver_sql(f"PRAGMA journal_mode = {mode}" if mode else "PRAGMA journal_mode")
        connection.commit()
        return str(now.scalar())
    except OperationalError:
        connection.rollback()
        return None
