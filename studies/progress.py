"""How far is the search? What a study tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A moment of a running study."""

    stage: str
    """What is being done, such as `searching exhaustively`."""
    num_done: int
    """Designs that were simulated in this stage."""
    num_total: int | None
    """Designs that the stage will simulate at most; `None` where nobody knows."""
    best: str = ""
    """The best found so far, in a few words."""


Report = Callable[[Progress], None]
"""Called now and then with the state of the study; must not raise."""
Stop = Callable[[], bool]
"""Asked between batches; true ends the search and keeps what was evaluated."""


def never_stop() -> bool:
    """The default: search to the end."""
    return False


def ignore(progress: Progress) -> None:
    """The default: tell nobody."""
