"""Why does an MLflow server not do what it was asked? In plain words, with where it was named and what to check."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator

from simulator.argument_names import Argument

CONNECT_TIMEOUT_S = 10
"""How long a server may take for its first answer."""
TRACKING_URI_VARIABLE = "MLFLOW_TRACKING_URI"
"""Environment variable that names a store if no argument does."""

_NO_SERVER = "something else than a server of MLflow answers there"
_STATUS = re.compile(r"failed with error code (\d{3})|too many (\d{3}) error responses")
"""How MLflow and urllib3 report the status with which a server refused."""
_MAY_NOT = (401, 403)
_FIRST_OF_ITS_OWN = 500
"""From this status on an error is the server's own."""


def is_server(uri: str) -> bool:
    """Returns whether a store is reached over HTTP."""
    return uri.startswith(("http://", "https://"))


def given_by(uri: str) -> str:
    """Returns the argument or variable that named a server."""
    is_variable = os.environ.get(TRACKING_URI_VARIABLE) == uri
    return TRACKING_URI_VARIABLE if is_variable else Argument("tracking_uri")


def check_server(uri: str) -> None:
    """Raises, within `mlflow_at`, if nothing answers; missing permission shows only in the first real request."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    http_request(  # type: ignore[no-untyped-call]
        get_default_host_creds(uri),  # type: ignore[no-untyped-call]
        "/health",
        "GET",
        max_retries=0,
        timeout=CONNECT_TIMEOUT_S,
        raise_on_status=False,
    )


def server_words(error: BaseException) -> str:
    """Returns why a server could not be used, and what to check; empty if unknown."""
    for cause in _causes(error):
        match cause:
            case socket.gaierror():
                return "there is no host of that name: check the address"
            case ConnectionRefusedError():
                return "the connection is refused: start the server there, or check host and port"
            case ssl.SSLError():
                return f"no secure connection ({cause.reason}): check https and the certificate"
            case TimeoutError():
                return "no answer in time: check the address and the network"
    if type(error).__name__ == "InvalidUrlException":
        return "this is no address of a server: write http://HOST:PORT"
    found = _STATUS.search(str(error))
    if found:
        return _status_words(int(found[1] or found[2]))
    return f"{_NO_SERVER}: check the address" if "not in a valid JSON format" in str(error) else ""


def _status_words(status: int) -> str:
    if status in _MAY_NOT:
        names = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        return f"it lets nobody in without the right password (HTTP {status}): set {names}"
    if status >= _FIRST_OF_ITS_OWN:
        return f"it answers with an error of its own (HTTP {status}): look into its log"
    return f"{_NO_SERVER} (HTTP {status}): check the address"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error's chain of causes, outermost first."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
