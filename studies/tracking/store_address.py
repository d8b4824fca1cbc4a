"""Which MLflow store is meant? The named one, else that of the environment, else a file below the working folder."""

from __future__ import annotations

import os
import shlex
from urllib.parse import urlsplit

from simulator.argument_names import Argument
from studies.files.store import DEFAULT_FOLDER
from studies.tracking.mlflow_server import TRACKING_URI_VARIABLE, is_server
from studies.tracking.mlflow_session import check_scheme, mlflow_at, sqlite_file, without_password

DEFAULT_FILE = DEFAULT_FOLDER / "mlflow.db"
"""Store below the working folder that is used if neither the caller nor the environment names one."""


def asked_store(tracking_uri: str | None) -> str:
    """Returns the address of the store: the argument, else MLFLOW_TRACKING_URI, else the default file.

    Raises:
        InputError: MLflow has no such kind of store, or it is one in memory.
    """
    uri = tracking_uri or os.environ.get(TRACKING_URI_VARIABLE) or f"sqlite:///{DEFAULT_FILE.as_posix()}"
    check_scheme(uri, Argument("tracking_uri") if tracking_uri else TRACKING_URI_VARIABLE)
    return uri


def resolve_tracking_uri(tracking_uri: str | None = None) -> str:
    """Returns the address of the store as `asked_store` does.

    The path of an SQLite file is made absolute, so it is valid from every folder.

    Raises:
        InputError: MLflow has no such kind of store, or it is one in memory.
        TrackingError: the address is not valid.
    """
    uri = asked_store(tracking_uri)
    with mlflow_at(uri):
        file = sqlite_file(uri)
    if file is None:
        return uri
    scheme, _, rest = uri.partition("///")
    _, question_mark, options = rest.partition("?")
    return f"{scheme}///{file.as_posix()}{question_mark}{options}"


def command_to_open(tracking_uri: str, experiment_id: str) -> str:
    """Returns a shell command that shows an experiment of a store; `***` replaces a password."""
    if is_server(tracking_uri):
        parts = urlsplit(tracking_uri)
        host = parts.netloc.rpartition("@")[2]  # the browser itself asks for user and password
        address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/#/experiments/{experiment_id}"
        return f"python -m webbrowser {shlex.quote(address)}"
    if TRACKING_URI_VARIABLE not in os.environ and tracking_uri == resolve_tracking_uri(None):
        return "capplan ui"
    return f"capplan ui --tracking-uri {shlex.quote(without_password(tracking_uri))}"
