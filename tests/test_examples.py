"""Do the shipped examples answer as expected? The three jobs and the script, as a user would run them."""

from __future__ import annotations

import ast
import io
import re
import runpy
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from planner import Job, Recommendation, load_job, recommend
from simulator.domain.limits import Limits

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
JOBS = ("llama-3.1-70b", "llama-3.1-405b", "bloom-176b")


def job_of(name: str) -> Job:
    return load_job(EXAMPLES / f"{name}.yaml")


@cache
def answer_to(name: str) -> Recommendation:
    return recommend(job_of(name), tracking=False)


@pytest.mark.parametrize("name", JOBS)
def test_no_design_is_recommended_that_violates_a_limit(name: str) -> None:
    limits, answer = job_of(name).limits, answer_to(name)
    assert answer.status == "recommended"
    for design in (*answer.front, answer.best):
        assert design is not None
        assert design.cost_usd <= (limits.budget_usd or np.inf)
        assert design.time_to_train_days <= (limits.deadline_days or np.inf)
        assert design.peak_power_w <= (limits.power_w or np.inf)
        assert design.peak_memory_bytes <= design.memory_capacity_bytes


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_removing_the_tightest_limit_never_makes_the_front_worse(name: str) -> None:
    job, answer = job_of(name), answer_to(name)
    used = {
        "budget_usd": max(design.cost_usd for design in answer.front) / (job.limits.budget_usd or np.inf),
        "deadline_days": max(d.time_to_train_days for d in answer.front)
        / (job.limits.deadline_days or np.inf),
        "power_w": max(design.peak_power_w for design in answer.front) / (job.limits.power_w or np.inf),
    }
    tightest = max(used, key=lambda limit: used[limit])
    limits = Limits.model_validate(job.limits.model_dump() | {tightest: None})
    looser = recommend(job.model_copy(update={"limits": limits}), tracking=False)
    names = ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e")
    by_objective = dict(zip(("time_to_train", "cost", "energy", "carbon"), names, strict=True))
    chosen = [by_objective[objective] for objective in answer.objectives]
    loose = np.array([[getattr(design, figure) for figure in chosen] for design in looser.front])
    for design in answer.front:
        figures = np.array([getattr(design, figure) for figure in chosen])
        # Refinement by Optuna follows other paths from another front; it moves objectives by less than 0.5 %.
        assert (loose <= figures * 1.005).all(axis=1).any()


# Expected results, with the ranges that published runs leave open.


def test_llama_70b_takes_thousands_of_h100_within_budget_and_deadline() -> None:
    best = answer_to("llama-3.1-70b").best
    assert best is not None
    # 2e12 tokens x 4.6e11 FLOP (6 N plus causal attention at 8,192) = 9.2e23 FLOP: at 35-60 % of 989 TFLOP/s between
    # 430,000 and 740,000 H100-hours, which at the 2.95 USD of the job cost 1.27 to 2.2 million USD.
    assert best.accelerator == "h100-sxm5-80gb"
    assert 430_000 <= best.plan.num_gpus * best.time_to_train_days * 24 <= 740_000
    assert best.plan.tensor_parallel <= 8


def test_llama_405b_needs_nearly_all_of_the_16384_h100_for_its_deadline() -> None:
    answer = answer_to("llama-3.1-405b")
    best = answer.best
    assert best is not None
    # Published: 30.84 million GPU-hours in all, 26.4 million at the quoted 400 TFLOP/s (ground truth of the model card).
    assert best.plan.num_gpus > 12_288
    assert 20e6 <= best.plan.num_gpus * best.time_to_train_days * 24 <= 31e6
    # 419 unexpected interruptions in 54 days on 16,384 GPUs: the preset of this job is that fleet.
    per_gpu_day = best.num_failures / best.plan.num_gpus / best.time_to_train_days
    assert per_gpu_day == pytest.approx(419 / 54 / 16_384, rel=0.05)


def test_bloom_is_laid_out_on_384_gpus_in_about_the_time_it_took() -> None:
    best = answer_to("bloom-176b").best
    assert best is not None
    assert best.plan.num_gpus == 384  # the layout of the run: 416 does not divide batch and layers
    # Published: 118 days of calendar with TP 4 and micro-batch 2, about 1.08 million GPU-hours and 433 MWh (by nameplate).
    assert 85 <= best.time_to_train_days <= 125
    assert 350_000 <= best.energy_kwh <= 700_000


@pytest.mark.long
def test_the_planning_script_is_short_and_prints_a_line_for_each_budget_and_gpu_type() -> None:
    script = EXAMPLES / "compare_budgets.py"
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    lines = [line for line in output_of(script.name) if "-sxm" in line]
    assert len(lines) == 6
    assert ["budget_usd" in line for line in lines] == [True, True, True, False, False, False]


def output_of(script: str) -> list[str]:
    """The lines that an example prints; in this process, as what it imports takes longer to load than it runs."""
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    assert (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].count("?") == 1
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", [script])
        patch.chdir(ROOT)
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return printed.getvalue().splitlines()


def rows_of(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


@pytest.mark.long
def test_a_larger_fleet_is_busy_for_less_of_the_year() -> None:
    rows = rows_of(output_of("fleet_sizing.py"))
    busy = [float(row[-3].rstrip("%")) for row in rows]
    assert busy == sorted(busy, reverse=True)
    assert [row[-1] for row in rows] == ["yes" if share <= 100 else "no" for share in busy]
    assert {row[-1] for row in rows} == {"yes", "no"}
    # The same days twice: the jobs of the year fill what is busy.
    for row, share in zip(rows, busy, strict=True):
        assert sum(float(days) for days in row[1:4]) == pytest.approx(share * 3.65, abs=4)


@pytest.mark.long
def test_the_negotiation_ends_where_the_choice_flips() -> None:
    first, last = output_of("price_negotiation.py")
    assert first.endswith("h100-sxm5-80gb")
    match = re.search(r"a100-sxm4-80gb is chosen up to (\d\.\d\d) USD", last)
    assert match
    # Dense bf16 peaks of 312 and 989 TFLOP/s at 2.95 dollars: even at equal shares of the peak 0.93, and the A100 of the
    # example reaches more of its peak than the H100.
    assert 0.93 <= float(match[1]) < 1.30


@pytest.mark.long
def test_a_power_cap_helps_where_power_is_short() -> None:
    rows = rows_of(output_of("power_capped_site.py"))
    days = {(row[0], row[1]): float(row[6]) for row in rows}
    for site in ("150 kW", "200 kW", "250 kW"):
        assert days[site, "allowed"] <= days[site, "none"]
        limit_kw = float(site.removesuffix(" kW"))
        assert all(float(row[5].removesuffix(" kW")) <= limit_kw for row in rows if row[0] == site)
    assert days["150 kW", "allowed"] < days["150 kW", "none"]


@pytest.mark.long
def test_stages_of_a_run_add_up_to_the_published_hours() -> None:
    rows = rows_of(output_of("training_stages.py"))
    assert [row[0] for row in rows] == 2 * [*dict.fromkeys(row[0] for row in rows)]
    small, large = rows[:4], rows[4:]
    for stages in (small, large):
        days = [float(row[2]) for row in stages]
        assert days[-1] == pytest.approx(sum(days[:-1]), abs=0.2)
        # Twice the tokens of a batch hide more of what every step costs; attention to all of a long sequence costs most.
        mfu = [float(row[4].rstrip("%")) for row in stages[:-1]]
        assert mfu[1] >= mfu[0] > mfu[2]
    assert all(float(one[2]) > float(other[2]) for one, other in zip(small, large, strict=True))
    # Published: 30.84 million GPU-hours, with layouts that were not the fastest.
    assert 27e6 <= 16_384 * 24 * float(large[-1][2]) <= 31e6


def test_the_greenest_region_comes_first() -> None:
    rows = rows_of(output_of("region_choice.py"))
    carbon = {row[0]: float(row[1].replace(",", "")) for row in rows}
    assert list(carbon.values()) == sorted(carbon.values())
    # Grids of mostly water and nuclear power, and of mostly coal (Ember, 2025).
    assert list(carbon)[:2] == ["sweden", "france"]
    assert list(carbon)[-2:] == ["poland", "india"]
