"""How is an MLflow server run so that it can be killed and restarted? On one port, with one SQLite file and one folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final
from urllib.error import URLError
from urllib.request import urlopen

SETTINGS: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Nothing but the store: MLflow's queue of jobs takes as long to start as everything else."""
START_TIMEOUT_S: Final = 60.0


@final
class MlflowServer:
    """A server in a process group of its own; a context manager that ends it."""

    def __init__(self, folder: Path) -> None:
        """Chooses a port; the server is started by `start`."""
        self._folder = folder
        self.database = folder / "mlflow.db"
        """Its SQLite file."""
        self.files = folder / "files"
        """Where the files of its runs lie."""
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self._port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port)]
        stores = ["--backend-store-uri", f"sqlite:///{self.database}", "--workers", "1"]
        files = ["--artifacts-destination", str(self.files), "--serve-artifacts"]
        log_file = self._folder / "server.log"
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  (our own command)
                [*command, *stores, *files],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **SETTINGS},
            )
        waiting = threading.Event()
        for _ in range(int(START_TIMEOUT_S / 0.1)):
            with suppress(URLError, OSError), urlopen(f"{self.uri}/health", timeout=1.0):  # noqa: S310 (our own server)
                return
            waiting.wait(0.1)
        raise RuntimeError(log_file.read_text())

    def kill(self) -> None:
        """Ends it and its workers at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
