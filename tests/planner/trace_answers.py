"""How do the tests of `capplan trace` call the command and read its answer?"""

from __future__ import annotations

import pytest

from planner.cli.commands import main
from planner.trace.simulation import TraceAnswer


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> TraceAnswer:
    assert main(["trace", "simulate", *arguments, "--json"]) == 0
    return TraceAnswer.model_validate_json(capsys.readouterr().out)


SLOW_NET = ("--bandwidth", "1e6", "--latency", "0")
SUMMED_S = 1.5 * 1632 / 1e6
"""Seconds of the ring all-reduce of the small trace's gradients over four accelerators at 1 MB/s."""
