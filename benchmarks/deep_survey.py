"""How far are the two depths apart on random plans?

    python -m benchmarks.deep_survey            prints the tables of docs/deep/plans.md
    python -m benchmarks.deep_survey --page     writes them into that page

Layouts of real models are drawn at random, and with a draw of their own those of interleaved stages. Those that can run and fit
are played at both depths. The tables show the distribution of the differences and the plans with the largest ones. The same
seed gives the same plans.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from benchmarks.deep_plans import PAGE, difference
from benchmarks.sheets import markdown_row
from docs.markdown import replaced
from planner.explain.runnable_plan import checked_plan
from simulator import catalog
from simulator.deep.plans.plan_step import PlanStep, plan_step
from simulator.domain.job import Job
from simulator.errors import InputError
from simulator.layout.chunks import can_split_evenly
from tests.simulator.builders import job_of, rented, training

SEED = 0
NUM_PLANS = 240
NUM_INTERLEAVED = 80
NUM_FURTHEST = 6
MOST_GPUS = 1_024
MOST_MICRO_BATCHES = 64
"""Of a stage; more take longer to play, and bring the depths closer."""
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b")
INTERLEAVED_MODELS = (*MODELS, "llama-2-13b", "deepseek-v3")
"""Also with 40 and 61 layers, which few numbers of chunks divide."""
ACCELERATORS = ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb", "h100-pcie-80gb", "mi300x")
SHORT_S = 0.5
"""Steps below this are a group of their own."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A plan at both depths."""

    name: str
    kind: str
    """The row of the first table that counts it."""
    step: PlanStep

    @property
    def apart(self) -> float:
        """How much longer the deep step is, over the fast one."""
        return self.step.step_time_s / float(self.step.fast.step_time_s[0]) - 1.0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is drawn, whether it can run or not."""

    model: str
    accelerator: str
    sequence_length: int
    batch: int
    plan: dict[str, str | int]

    @property
    def name(self) -> str:
        """What the second table calls it."""
        short = ",".join(f"{key}={value}" for key, value in self.plan.items() if value not in (1, "1f1b"))
        return f"{self.model}, {self.accelerator}, sequence {self.sequence_length:,}, batch {self.batch}: {short}"

    @property
    def kind(self) -> str:
        """What the first table calls it and its like."""
        stages, chunks = int(self.plan["pp"]), int(self.plan.get("vpp", 1))
        if chunks > 1:
            is_even = can_split_evenly(catalog.model(self.model).num_layers, np.array(stages * chunks))
            return f"interleaved, {'equal chunks' if is_even else 'chunks that differ by a layer'}"
        return f"ZeRO-{self.plan['zero_stage']}, {'several stages' if stages > 1 else 'one stage'}"

    def played(self) -> Drawn | None:
        """Returns it at both depths; `None` where it cannot run or does not fit."""
        workload = training(self.model, sequence_length=self.sequence_length, global_batch_size=self.batch)
        step = _step(job_of(workload, rented(self.accelerator)), self.plan)
        if step is None:
            return None
        return Drawn(name=self.name, kind=self.kind, step=step)


def layouts() -> Iterator[Layout]:
    """Yields layouts without end, the same ones each time."""
    one_of = partial(_one_of, np.random.default_rng(SEED))
    while True:
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
        yield Layout(model=model, accelerator=accelerator, sequence_length=sequence, batch=batch, plan=plan)


def interleaved_layouts() -> Iterator[Layout]:
    """Yields layouts with several chunks on a stage without end, the same ones each time."""
    one_of = partial(_one_of, np.random.default_rng(SEED))
    while True:
        model, accelerator = str(one_of(*INTERLEAVED_MODELS)), str(one_of(*ACCELERATORS))
        sequence, batch = int(one_of(4096, 8192)), int(one_of(32, 64, 128, 256))
        plan = {
            "tp": one_of(1, 2, 4, 8),
            "pp": one_of(2, 4, 8, 16),
            "vpp": one_of(*range(2, 9)),
            "dp": one_of(4, 8, 16, 32),
            "ep": 1 if catalog.model(model).experts is None else one_of(1, 8),
            "zero_stage": one_of(1, 2),
            "recompute": one_of("none", "full"),
        }
        yield Layout(model=model, accelerator=accelerator, sequence_length=sequence, batch=batch, plan=plan)


def _one_of(random: np.random.Generator, *choices: str | int) -> str | int:
    return choices[int(random.integers(len(choices)))]


def drawn(layouts: Iterator[Layout], number: int) -> list[Drawn]:
    """Returns the first plans that can run and fit."""
    return list(islice((found for layout in layouts if (found := layout.played()) is not None), number))


def _step(job: Job, plan: dict[str, str | int]) -> PlanStep | None:
    num_gpus = math.prod(int(plan.get(degree, 1)) for degree in ("tp", "cp", "pp", "dp"))
    micro_batches = job.workload.global_batch_size / int(plan["dp"])
    if num_gpus > MOST_GPUS or not 1 <= micro_batches <= MOST_MICRO_BATCHES:
        return None
    try:
        checked, broken = checked_plan(job, {**plan, "mbs": 1})
    except InputError:
        return None
    return None if broken else plan_step(job, checked)


def _spread(name: str, plans: Sequence[Drawn]) -> str:
    apart = np.sort([each.apart for each in plans])
    low, middle, high = (f"{share:+.2%}" for share in np.quantile(apart, (0.05, 0.5, 0.95)))
    return markdown_row(name, len(plans), f"{apart[0]:+.2%}", low, middle, high, f"{apart[-1]:+.2%}")


def survey(plans: Sequence[Drawn]) -> str:
    """Returns how the differences spread, as a table."""
    lines = [
        markdown_row("plans", "number", "least", "5 %", "median", "95 %", "most"),
        markdown_row(*["---"] * 7),
    ]
    lines += [
        _spread(kind, [each for each in plans if each.kind == kind])
        for kind in sorted({each.kind for each in plans})
    ]
    short = [each for each in plans if each.step.fast.step_time_s[0] < SHORT_S]
    return "\n".join([*lines, _spread(f"steps below {SHORT_S:g} s", short), _spread("all", plans)])


def plan_line(each: Drawn) -> str:
    """Returns a plan at both depths, as a line of the second table."""
    fast_s, deep_s = float(each.step.fast.step_time_s[0]), each.step.step_time_s
    num_gpus = f"{each.step.cluster.num_gpus:,}"
    return markdown_row(each.name, num_gpus, f"{fast_s:.4g}", f"{deep_s:.4g}", difference(each.step))


def furthest(plans: Sequence[Drawn]) -> str:
    """Returns the plans that are furthest apart, each once, as a table."""
    lines = dict.fromkeys(plan_line(each) for each in sorted(plans, key=lambda each: -abs(each.apart)))
    head = [
        markdown_row("plan", "accelerators", "fast, s", "deep, s", "difference"),
        markdown_row(*["---"] * 5),
    ]
    return "\n".join([*head, *islice(lines, NUM_FURTHEST)])


def main() -> None:
    """Prints both tables, or writes them."""
    parser = argparse.ArgumentParser(description="Compare the depths on random plans.")
    parser.add_argument(
        "--page", action="store_true", help="write the tables into docs/deep/plans.md; print nothing"
    )
    is_page = parser.parse_args().page
    plans = drawn(layouts(), NUM_PLANS) + drawn(interleaved_layouts(), NUM_INTERLEAVED)
    if not is_page:
        print(survey(plans), furthest(plans), sep="\n\n")
        return
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("survey", survey(plans)), ("furthest", furthest(plans))):
        text = replaced(text, name, table)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
