"""How far are the two depths apart on plans that nobody chose?

    python -m benchmarks.deep_survey

Draws layouts of real models at random, keeps those that can run and fit, plays each at both depths, and prints how the
differences spread, and which plans are furthest apart: figures of docs/deep.md. The same seed gives the same plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.deep_plans import difference, row
from planner.deep.answer import checked_plan
from simulator.deep.plans.plan_step import PlanStep, plan_step
from simulator.domain.job import Job
from simulator.errors import InputError
from tests.simulator.builders import job_of, rented, training

SEED = 0
NUM_PLANS = 240
MOST_GPUS = 1_024
MOST_MICRO_BATCHES = 64
"""Of a stage; more take longer to play, and bring the depths closer."""
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b")
ACCELERATORS = ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb")
SHORT_S = 0.5
"""Steps below this are a group of their own."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A plan at both depths."""

    name: str
    zero_stage: int
    num_stages: int
    step: PlanStep

    @property
    def apart(self) -> float:
        """How much longer the deep step is, over the fast one."""
        return self.step.step_time_s / float(self.step.fast.step_time_s[0]) - 1.0


def drawn() -> Iterator[Drawn]:
    """Yields plans that can run and fit."""
    random = np.random.default_rng(SEED)
    num_found = 0
    while num_found < NUM_PLANS:
        if (found := _played(random)) is not None:
            num_found += 1
            yield found


def _played(random: np.random.Generator) -> Drawn | None:
    """Plays the next random layout; `None` for one that cannot run."""

    def one_of(*choices: str | int) -> str | int:
        return choices[int(random.integers(len(choices)))]

    model, accelerator = str(one_of(*MODELS)), str(one_of(*ACCELERATORS))
    sequence, batch = int(one_of(4096, 8192, 32_768)), int(one_of(32, 64, 128, 256))
    plan = {
        "tp": one_of(1, 2, 4, 8),
        "cp": one_of(1, 1, 2),
        "pp": one_of(1, 1, 2, 4),
        "dp": one_of(4, 8, 16, 32, 64),
        "ep": one_of(1, 8) if model == "mixtral-8x7b" else 1,
        "zero_stage": one_of(0, 1, 2, 3),
        "pipeline_schedule": one_of("1f1b", "gpipe"),
    }
    job = job_of(training(model, sequence_length=sequence, global_batch_size=batch), rented(accelerator))
    step = _step(job, plan)
    if step is None:
        return None
    short = ",".join(f"{key}={value}" for key, value in plan.items() if value not in (1, "1f1b"))
    return Drawn(
        name=f"{model}, {accelerator}, sequence {sequence:,}, batch {batch}: {short}",
        zero_stage=int(plan["zero_stage"]),
        num_stages=int(plan["pp"]),
        step=step,
    )


def _step(job: Job, plan: dict[str, str | int]) -> PlanStep | None:
    num_gpus = int(plan["tp"]) * int(plan["cp"]) * int(plan["pp"]) * int(plan["dp"])
    micro_batches = job.workload.global_batch_size / int(plan["dp"])
    if num_gpus > MOST_GPUS or not 1 <= micro_batches <= MOST_MICRO_BATCHES:
        return None
    try:
        checked, broken = checked_plan(job, {**plan, "mbs": 1})
    except InputError:
        return None
    return None if broken else plan_step(job, checked)


def _spread(name: str, plans: list[Drawn]) -> None:
    if plans:
        apart = np.sort([each.apart for each in plans])
        low, middle, high = (f"{share:+.2%}" for share in np.quantile(apart, (0.05, 0.5, 0.95)))
        row(name, len(plans), f"{apart[0]:+.2%}", low, middle, high, f"{apart[-1]:+.2%}")


def main() -> None:
    """Prints both tables."""
    plans = list(drawn())
    row("plans", "number", "least", "5 %", "median", "95 %", "most")
    row(*["---"] * 7)
    for zero in range(4):
        for is_pipeline in (False, True):
            like = [
                each for each in plans if each.zero_stage == zero and (each.num_stages > 1) == is_pipeline
            ]
            _spread(f"ZeRO-{zero}, {'several stages' if is_pipeline else 'one stage'}", like)
    _spread(
        f"steps below {SHORT_S:g} s",
        [each for each in plans if each.step.fast.step_time_s[0] < SHORT_S],
    )
    _spread("all", plans)
    print()
    row("plan", "accelerators", "fast, s", "deep, s", "difference")
    row(*["---"] * 5)
    furthest = sorted(plans, key=lambda each: -abs(each.apart))[:12]
    for each in furthest:
        fast_s = float(each.step.fast.step_time_s[0])
        row(
            each.name,
            f"{each.step.cluster.num_gpus:,}",
            f"{fast_s:.4g}",
            f"{each.step.step_time_s:.4g}",
            difference(each.step),
        )


if __name__ == "__main__":
    main()
