"""Which plans do the tests of single plans simulate? Plans for the example jobs, with the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import commands as cli
from planner.one_design.simulated_design import SimulatedDesign

EXAMPLES = Path(__file__).parents[2] / "examples"
BLOOM = str(EXAMPLES / "bloom-176b.yaml")
LLAMA = str(EXAMPLES / "llama-3.1-70b.yaml")
AS_IT_WAS_RUN = "tp=4,pp=12,dp=8,mbs=2,recompute=full,checkpoint_scheme=sync_sharded"
"""TP 4, PP 12, DP 8, micro-batch 2 (arXiv 2211.05100; chronicles of the BLOOM training)."""


def answer(capsys: pytest.CaptureFixture[str], plan: str, *options: str, job: str = BLOOM) -> SimulatedDesign:
    assert cli.main(["simulate", job, "--plan", plan, "--json", *options]) == 0
    return SimulatedDesign.model_validate(json.loads(capsys.readouterr().out))
