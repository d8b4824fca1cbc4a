"""How far has the search come? The progress that a study reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a running study at one moment."""

    stage: str
    """What is being done, such as `searching exhaustively`."""
    num_done: int
    """Designs that a search has simulated so far, in all of its stages; or other items that are done."""
    num_total: int | None
    """Most of them when the stage ends; `None` if unknown."""
    best: str = ""
    """The best found so far, in a few words."""


RECORDING_IN_MLFLOW = "recording in MLflow"
"""The last stage of a study that MLflow records: its answer, files and the runs of its designs are sent."""

Report = Callable[[Progress], None]
"""Called from time to time with the state of the study; must not raise."""
Stop = Callable[[], bool]
"""Called between batches; true ends the search and keeps what was evaluated."""


def never_stop() -> bool:
    """The default: search to the end."""
    return False


def ignore(progress: Progress) -> None:
    """The default: report nothing."""
