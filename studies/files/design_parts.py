"""How does the design table reach MLflow while a study still runs? In Parquet parts, each complete when it is sent.

The parts of a study are in one folder, `designs/part-00000.parquet` and so on, which Arrow, pandas and DuckDB read as one
table. Their boundaries depend only on the designs, so a study that is sent again replaces its own parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from studies.files.behind import Behind
from studies.files.design_log import Columns, DesignLog

DESIGNS_PER_PART: Final = 10_000
"""A part is closed after the batch that fills it: about a megabyte, and a few seconds of search."""
PARTS: Final = "designs"
"""Folder of the parts, here and among the files of an MLflow run."""


@final
class DesignParts:
    """The design table of one study in parts; the last one is complete after `close`."""

    def __init__(self, folder: Path) -> None:
        """Prepares to write the parts into a folder, which is created with the first one."""
        self._folder = folder
        self._log: DesignLog | None = None
        self._num_parts = 0
        self._closing = Behind("design-parts")
        self._full: list[Path] = []

    def append(self, columns: Columns) -> list[Path]:
        """Adds a batch of designs; returns the part that an earlier batch has filled, if it is complete now.

        Raises:
            StudyError: a part cannot be written.
        """
        complete = self._completed()
        if self._log is None:
            self._log = DesignLog(self._folder / f"part-{self._num_parts:05}.parquet")
            self._num_parts += 1
        self._log.append(columns)
        if self._log.num_designs >= DESIGNS_PER_PART:
            self._fill(self._log)
        return complete

    def close(self) -> list[Path]:
        """Completes the current part and returns the parts that were not returned before; raises as `append` does."""
        if self._log is not None:
            self._fill(self._log)
        complete = self._completed()
        self._closing.close()
        return complete

    def _fill(self, log: DesignLog) -> None:
        """Starts to complete a part in the background."""
        self._log = None
        self._closing.begin(log.close)
        self._full.append(log.path)

    def _completed(self) -> list[Path]:
        full, self._full = self._full, []
        self._closing.settle()
        return full
