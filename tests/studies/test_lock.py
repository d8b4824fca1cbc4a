"""Does a lock keep all others out while it is held, and nobody afterwards?"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from simulator.errors import StudyError
from studies.files.lock import WAIT_S, held, is_held, lock_of


def test_a_lock_keeps_others_out_and_is_gone_afterwards(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "a.study")
    assert lock == tmp_path / "a.study.lock"
    assert not is_held(lock)
    with held(lock, "study a", "is running elsewhere"):
        assert is_held(lock)
        with (
            pytest.raises(StudyError, match="study a is running elsewhere"),
            held(lock, "study a", "is running elsewhere"),
        ):
            pass
        assert is_held(lock)
    assert not is_held(lock)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_taken_as_soon_as_a_check_by_others_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "a.study.lock"
    check = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(check, fcntl.LOCK_SH)
    assert not is_held(lock)  # two may check at once
    waited_s = []

    def end_of_check(seconds: float) -> None:
        waited_s.append(seconds)
        os.close(check)

    monkeypatch.setattr("studies.files.lock.time.sleep", end_of_check)
    with held(lock, "study a", "is running elsewhere"):
        assert is_held(lock)
    assert waited_s == [WAIT_S]


def test_a_lock_whose_file_was_replaced_before_it_was_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that ends removes its file, and another process may make a new one, before the old file is locked."""
    lock = tmp_path / "a.study.lock"
    flock, calls = fcntl.flock, []

    def replaced_once(file: int, operation: int) -> None:
        calls.append(file)
        if len(calls) == 1:
            lock.unlink()
            lock.touch()
        flock(file, operation)

    monkeypatch.setattr("studies.files.lock.fcntl.flock", replaced_once)
    with held(lock, "study a", "is running elsewhere"):
        assert is_held(lock)


def test_a_lock_in_a_folder_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    with (
        pytest.raises(StudyError, match=f"study a: {tmp_path}/none: No such file or directory; see that"),
        held(tmp_path / "none" / "a.study.lock", "study a", "is running elsewhere"),
    ):
        pass
