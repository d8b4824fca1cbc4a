"""How does the design table reach MLflow while a study still runs? In Parquet parts, each complete when it is sent.

The parts of a study lie in one folder, `designs/part-00000.parquet` and so on, which Arrow, pandas and DuckDB read as one
table. Where they begin and end depends on the designs alone, so that a study that is sent again replaces its own parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from studies.design_log import Columns, DesignLog

DESIGNS_PER_PART: Final = 10_000
"""A part is closed behind the batch that fills it: about a megabyte, and a few seconds of search."""
PARTS: Final = "designs"
"""Folder of the parts, here and among the files of an MLflow run."""


@final
class DesignParts:
    """The design table of one study in parts; the last one is complete after `close`."""

    def __init__(self, folder: Path) -> None:
        """Will write the parts into a folder, which is made with the first one."""
        self._folder = folder
        self._log: DesignLog | None = None
        self._num_parts = 0

    def append(self, columns: Columns) -> Path | None:
        """Adds a batch of designs; returns the part that it has filled, if it has.

        Raises:
            StudyError: the part cannot be written.
        """
        if self._log is None:
            self._log = DesignLog(self._folder / f"part-{self._num_parts:05}.parquet")
            self._num_parts += 1
        self._log.append(columns)
        return self.close() if self._log.num_designs >= DESIGNS_PER_PART else None

    def close(self) -> Path | None:
        """Completes the part that is being written and returns it; `None` where there is none."""
        log, self._log = self._log, None
        if log is None:
            return None
        log.close()
        return log.path
