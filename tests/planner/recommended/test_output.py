"""Is every file of an answer either complete or absent?"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from planner.recommended.output import output_folder, write_answer
from simulator.errors import InputError, NoSpaceError
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


@pytest.mark.parametrize("below", ["", "answers/today"])
def test_a_link_to_nothing_in_the_place_of_the_folder_is_named(tmp_path: Path, below: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    rule = rf"output = .*: cannot be a folder, since {link} is a link to nothing: choose another name"
    with pytest.raises(InputError, match=rule), output_folder(link / below):
        pytest.fail("the folder was made")
    assert [entry.name for entry in tmp_path.iterdir()] == ["link"]
