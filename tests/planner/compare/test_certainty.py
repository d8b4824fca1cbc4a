"""Does a comparison say which of its steps are known less well than others?"""

from __future__ import annotations

from planner import simulate_plan
from planner.compare.side_by_side import compare
from planner.compare.sides import Side
from planner.input.plan_input import plan_of
from planner.text import human
from simulator.domain.job import Job
from tests.support import H100_RENTED, job_with

PLAN = {"dp": 32, "mbs": 1, "zero": 2}
UNMEASURED = "No published step with linear attention was compared"


def of_model(name: str) -> Job:
    return job_with(H100_RENTED, workload={"model": name})


def side(job: Job, name: str) -> Side:
    return Side(name=name, job=job, plan=plan_of(job, PLAN)[0])


def test_a_hybrid_beside_a_transformer_is_told_with_the_interval_of_both() -> None:
    jobs = {"dense": of_model("llama-3.1-8b"), "hybrid": of_model("nemotron-h-8b")}
    *_, note, published, intervals = compare([side(job, name) for name, job in jobs.items()]).warnings
    assert note.startswith(f"hybrid: {UNMEASURED}")
    assert published.startswith("hybrid: Published steps of hybrids")
    for name, job in jobs.items():
        known = simulate_plan(job, plan_of(job, PLAN)[0], with_sensitivities=False).spread
        assert known is not None
        ends = human.duration(known.step_time_low_s), human.duration(known.step_time_high_s)
        assert f"{name} {' to '.join(ends)}" in intervals


def test_a_mixture_of_experts_beside_a_dense_model_is_told() -> None:
    found = compare([side(of_model(name), name) for name in ("llama-3.1-8b", "deepseek-moe-16b")])
    assert "80 % interval of the step time: llama-3.1-8b " in found.warnings[-1]
    assert any(
        note.startswith("deepseek-moe-16b: Step times of mixtures of experts") for note in found.warnings
    )


def test_nothing_is_told_where_all_steps_are_known_equally_well() -> None:
    for names in (("llama-3.1-8b", "llama-2-7b"), ("nemotron-h-8b", "bamba-9b")):
        found = compare([side(of_model(name), name) for name in names])
        assert not any("ublished step" in note or "interval" in note for note in found.warnings)
    dear = job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 9.0}, workload={"model": "nemotron-h-8b"})
    found = compare([side(of_model("nemotron-h-8b"), "usual"), side(dear, "dear")])
    assert not any("interval" in note for note in found.warnings)
