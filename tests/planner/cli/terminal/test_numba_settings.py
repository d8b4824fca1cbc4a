"""Are settings with which Numba cannot run the simulator refused, with their rule?"""

from __future__ import annotations

import pytest

from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("NUMBA_NUM_THREADS", "0", "must be a whole number above 0, or unset"),
        ("NUMBA_NUM_THREADS", "-2", "must be a whole number above 0"),
        ("NUMBA_NUM_THREADS", "", "must be a whole number above 0"),  # of a variable that is not set either
        ("NUMBA_DISABLE_JIT", "1", "must be 0 or unset"),
        ("NUMBA_THREADING_LAYER", "threads", "must be default, safe, threadsafe"),
    ],
)
def test_a_setting_that_numba_cannot_use_is_refused(
    variable: str, value: str, rule: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["catalog", "sites"]) == BROKEN_INPUT
    assert f"{variable} = {value!r}: {rule}" in capsys.readouterr().err


def test_other_settings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "workqueue")
    assert main(["catalog", "sites"]) == OK
