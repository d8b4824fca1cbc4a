"""Do the scenarios of PerfSim-Survey-2026 run as documented, and are their answers what can be worked out by hand?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.perfsim import JOBS, SCENARIOS, Scenario
from docs.perfsim_page import FEATURES, PAGE, perfsim_page
from planner.cli.commands import main
from planner.one_design.simulated_design import SimulatedDesign

ROOT = Path(__file__).parents[1]
BY_NAME = {one.name: one for one in SCENARIOS}
MORE_MEMORY_THAN_THERE_IS = ("T2.2", "T4.4")
"""Weights, gradients and states of Adam take 18 bytes a parameter: 155 GB for a share of 69e9 over 8 GPUs, 105 GB of 46.7e9."""
GPT3_LAYERS, GPT3_HIDDEN = 96, 12288


def test_every_training_scenario_of_the_suite_has_its_job() -> None:
    # Names of the suite, T1.1 to T4.4.
    assert " ".join(BY_NAME) == "T1.1 T1.2 T1.3 T2.1 T2.2 T3.1 T3.2 T4.1 T4.2 T4.3 T4.4"
    assert {one.job.name for one in SCENARIOS} == {path.name for path in (ROOT / JOBS).glob("*.yaml")}
    assert {name for _, name in FEATURES} <= set(BY_NAME)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_documented_command_answers(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    _, *arguments = shlex.split(scenario.command)
    assert main([*arguments, "--json", "--no-sensitivities", "--quiet"]) == 0
    answer = SimulatedDesign.model_validate_json(capsys.readouterr().out)
    assert answer.design is not None
    assert answer.design.step_time_s == pytest.approx(scenario.figures().seconds("step_time_s"))
    broken = {one.constraint for one in answer.violations}
    assert broken == ({"memory"} if scenario.name in MORE_MEMORY_THAN_THERE_IS else set())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_every_answer_gives_figures(scenario: Scenario) -> None:
    text = scenario.answer(scenario)
    assert re.search(r"\d", text)
    assert "nan" not in text
    assert "inf" not in text


def test_the_page_is_what_the_scenarios_answer_today() -> None:
    assert PAGE.read_text(encoding="utf-8") == perfsim_page()


def test_bubbles_are_near_those_of_even_stages() -> None:
    # (p - 1) / (m + p - 1) of 1F1B, (p - 1) / (v m + p - 1) interleaved (Narayanan et al., arXiv 2104.04473, section 2.2). The
    # last stage also has the logits, for which the others wait: that adds up to a tenth of the step.
    plain = BY_NAME["T3.1"].figures().share("pipeline_bubble_s")
    assert 3 / (16 + 3) <= plain <= 3 / (16 + 3) + 0.1
    interleaved = BY_NAME["T3.2"].figures().share("pipeline_bubble_s")
    assert 7 / (2 * 32 + 7) <= interleaved <= 7 / (2 * 32 + 7) + 0.1
    assert BY_NAME["T2.2"].figures().share("pipeline_bubble_s") == pytest.approx(0.0, abs=1e-12)


def test_activations_of_gpt3_are_those_of_the_published_formula() -> None:
    # 34 s b h / t bytes a layer (Korthikanti et al., arXiv 2205.05198, section 4.2.2, with fused attention); the first of p
    # stages of an interleaved pipeline holds L (1 + (p - 1) / (p v)) of them. Inputs of the ends come on top: 5 %.
    layers = GPT3_LAYERS * (1 + 7 / (8 * 2))
    expected = layers * 34 * 2048 * 1 * GPT3_HIDDEN / 8
    found = float(BY_NAME["T3.2"].figures().memory.activations_bytes[0])
    assert found == pytest.approx(expected, rel=0.1)


def test_eight_bits_gain_less_than_their_peak_promises() -> None:
    fast, slow = BY_NAME["T4.1"].figures(), BY_NAME["T4.1"].figures(plan="dp=8,precision=bf16")
    assert 1.0 < fast.tokens_per_s / slow.tokens_per_s < 2.0


def test_adapters_need_the_weights_and_little_else() -> None:
    found, full = BY_NAME["T4.2"].figures(), BY_NAME["T4.2"].figures("workload.lora=null")
    # 69.0e9 weights over 4 GPUs in 16 bits; full fine-tuning has 16 bytes more of each.
    assert float(found.memory.weights_bytes[0]) == pytest.approx(2 * 69.0e9 / 4, rel=0.01)
    states = [float((one.memory.gradients_bytes + one.memory.optimizer_bytes)[0]) for one in (found, full)]
    assert states[1] == pytest.approx(16 * 69.0e9 / 4, rel=0.01)
    assert states[0] < 0.01 * states[1]
    # Without gradients of the weights a step computes 3 of 4 passes: forward, again, and one of the two backward ones.
    ratio = found.seconds("compute_s") / full.seconds("compute_s")
    assert ratio == pytest.approx(3 / 4, rel=0.05)


def test_sequence_parallelism_saves_what_every_rank_would_hold() -> None:
    found, without = (
        BY_NAME["T4.3"].figures(*changes) for changes in ((), ("workload.has_sequence_parallel=false",))
    )
    # With full recomputation a layer keeps its input, which four ranks now share.
    saved = float(without.memory.activations_bytes[0] / found.memory.activations_bytes[0])
    assert saved == pytest.approx(4.0, rel=0.01)


def test_uneven_experts_cost_at_most_as_much_as_they_are_fuller() -> None:
    even, uneven = (BY_NAME["T4.4"].figures(*changes) for changes in ((), ("workload.expert_imbalance=1.3",)))
    assert 1.0 < uneven.seconds("step_time_s") / even.seconds("step_time_s") < 1.3


def test_scaling_to_eight_gpus_loses_what_is_not_hidden() -> None:
    found = BY_NAME["T1.2"].figures()
    one = BY_NAME["T1.2"].figures(plan="offer=1,dp=1,zero_stage=1")
    assert 0.9 < found.sequences_per_s / (8 * one.sequences_per_s) < 1.0
