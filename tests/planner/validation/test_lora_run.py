"""Is the metered LoRA run simulated with the work of its log, and told with what of it was seen?"""

from __future__ import annotations

import pytest

from benchmarks.lora_run import LORA_RUN, METERED_STEP_S, lora_run, lora_text
from benchmarks.whole_runs import PAGE, page
from planner.validation.whole_run_jobs import KNOWN_RUNS
from planner.validation.whole_runs import published_runs
from simulator.domain.lora import ATTENTION_PRODUCTS
from tests.support import without_numbers


def test_the_job_is_that_of_the_public_script() -> None:
    job = LORA_RUN.job()
    plan = LORA_RUN.plan(job)
    assert job.workload.lora is not None
    assert (job.workload.lora.rank, job.workload.lora.targets) == (16, ATTENTION_PRODUCTS)
    assert (plan.tensor_parallel, plan.data_parallel, plan.pipeline_parallel) == (4, 2, 1)
    # 384 steps of 8 sequences to the target, and five evaluations of about 39 s, which last as long as 50 steps more.
    assert job.workload.num_steps == pytest.approx(384 + 5 * 38.85 / METERED_STEP_S, abs=0.5)


def test_steps_are_as_long_as_the_log_says_within_what_steps_in_no_fit_are_off() -> None:
    # 3,072 samples at the 2.06 a second of its tracked throughput, most of them.
    assert pytest.approx(8 / 2.06, rel=0.01) == METERED_STEP_S
    run = lora_run()
    for simulated in (run.cold, run.shipped):
        assert simulated.step_s == pytest.approx(METERED_STEP_S, rel=0.15)
        # 7,157 W over ten runs (power measurement of MLPerf Training v4.0); with the power of computation of B200, 1.05 of the
        # TDP where 1.15 was fitted to H100, the node draws up to 7 % less.
        assert simulated.power_w_per_gpu * 8 == pytest.approx(7157, rel=0.07)
    assert run.shipped.hours_error_fraction == pytest.approx(0.0, abs=0.15)


def test_it_is_told_apart_from_the_runs_that_are_predicted_cold() -> None:
    assert LORA_RUN.row not in {run.row for run in KNOWN_RUNS}
    assert "known from its own log" in published_runs()[LORA_RUN.row].not_compared
    assert lora_text() in page()
    assert "seen in both columns" in lora_text()
    written = PAGE.read_text(encoding="utf-8")
    assert without_numbers(lora_text()) in without_numbers(written)
