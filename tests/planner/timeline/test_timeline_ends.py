"""Does a step's timeline end when its answer says, and is a timeline that is too large refused before it is simulated?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.deep.answer import DeepRequest, simulate_deep
from planner.deep.events import MOST_EVENTS, check_size, trace_entries
from planner.deep.network_file import load_network
from planner.deep.played_step import StepRun
from planner.trace.request import NetworkKind, TraceRequest
from planner.trace.simulation import simulate_trace
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.traced_steps.played_part import MANY_TASKS
from simulator.errors import InputError
from tests.simulator.deep.plan_cases import FEW

TRACE = Path(__file__).parents[2] / "data" / "traces" / "vgg13.json"
NETWORKS = Path(__file__).parents[3] / "examples" / "networks"
ROUNDING = 1e-3
"""Digits of a timeline, in microseconds."""
PLANS = ("data on two nodes", "sharded weights", "pipeline", "interleaved", "experts on two nodes")


def end_us(run: StepRun) -> float:
    """Where the last operator or message of a timeline ends."""
    entries = [entry for entry in trace_entries(run) if entry["ph"] in ("X", "e")]
    return max(float(str(entry["ts"])) + float(str(entry.get("dur", 0.0))) for entry in entries)


@pytest.mark.short(7)
@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("network", [NetworkKind.NODES, NetworkKind.RING])
@pytest.mark.parametrize("parallel", ["ddp", "ddp=4,tp=2,pp=2"])
def test_the_timeline_of_a_trace_ends_when_the_answer_without_one_says(
    parallel: str, network: NetworkKind, algorithm: Algorithm
) -> None:
    # Without a timeline what is alike is played once, with it every accelerator.
    asked = TraceRequest(
        path=TRACE, num_gpus=16, parallel=parallel, network=network, collectives=algorithm, batch_size=8
    )
    drawn, answer = simulate_trace(asked, is_drawn=True), simulate_trace(asked).answer
    assert drawn.answer.num_played == 16
    assert end_us(drawn) == pytest.approx(1e6 * answer.step_s, abs=ROUNDING)


@pytest.mark.short(4)
@pytest.mark.parametrize("is_folded", [True, False])
@pytest.mark.parametrize("name", PLANS)
def test_the_timeline_of_a_plan_ends_when_its_answer_says(name: str, is_folded: bool) -> None:
    run = simulate_deep(FEW[name].job, DeepRequest(plan=FEW[name].plan, is_folded=is_folded))
    assert end_us(run) == pytest.approx(1e6 * run.answer.step_time_s, abs=ROUNDING)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("name", PLANS)
def test_so_it_does_on_a_network_of_ones_own(name: str, algorithm: Algorithm) -> None:
    network = load_network(NETWORKS / "rails.yaml")
    run = simulate_deep(FEW[name].job, DeepRequest(plan=FEW[name].plan, network=network, algorithm=algorithm))
    assert end_us(run) == pytest.approx(1e6 * run.answer.step_time_s, abs=ROUNDING)


def test_steps_that_change_their_algorithms_to_be_small_are_too_large_for_a_timeline() -> None:
    assert MOST_EVENTS < MANY_TASKS


def test_a_timeline_that_is_too_large_is_refused_with_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 65,536 replicas around a ring would be more than the 16 million tasks that can be made at all.
    file = tmp_path / "step.json"
    asked = [str(TRACE), "--gpus", "65536", "--collectives", "ring", "--output", str(file)]
    assert main(["trace", "simulate", *asked]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "--output: would hold " in told
    assert "events of 65,536 accelerators, and viewers open 1,000,000: take fewer accelerators" in told
    assert not file.exists()


def test_a_plan_that_is_too_large_to_be_drawn_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.deep.events.MOST_EVENTS", 9)
    monkeypatch.setattr("simulator.deep.plans.plan_step.play", lambda *_: pytest.fail("it is played"))
    with pytest.raises(
        InputError, match=r"timeline: would hold .* events of 1 accelerator, and viewers open 9"
    ):
        simulate_deep(FEW["data"].job, DeepRequest(plan=FEW["data"].plan), is_drawn=True)


def test_the_limit_is_what_viewers_open_and_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate_deep(FEW["data"].job, DeepRequest(plan=FEW["data"].plan))
    monkeypatch.setattr("planner.deep.events.MOST_EVENTS", len(run.graph) - 1)
    size = f"would hold {len(run.graph):,} events of 1 accelerator, and viewers open {len(run.graph) - 1:,}"
    with pytest.raises(InputError, match=f"timeline: {size}"):
        check_size(run.graph, "timeline")
    monkeypatch.setattr("planner.deep.events.MOST_EVENTS", len(run.graph))
    check_size(run.graph, "timeline")
