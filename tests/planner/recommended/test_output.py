"""Is every file of an answer either complete or absent?"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from planner.recommended.output import write_answer
from simulator.errors import NoSpaceError
from tests.planner.hand_made import recommended


@pytest.mark.parametrize(
    ("breaks_at", "left"), [("recommendation.json", []), ("front.csv", ["recommendation.json"])]
)
def test_a_full_disk_leaves_no_half_file_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_at: str, left: list[str]
) -> None:
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == breaks_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(NoSpaceError, match=rf"output = .*/{breaks_at}: cannot be written: No space left"):
        write_answer(recommended(), tmp_path, "csv")
    assert [entry.name for entry in tmp_path.iterdir()] == left
