"""How often does a faster part of the hardware make a simulated step longer, and by how much?

    python -m benchmarks.faster_parts [ACCELERATOR ...] [--num 1000] [--seed 0]

Random layouts of four models are simulated on a cluster, and on the same one with one part faster: memory, computation,
scale-up links, network cards or copies to main memory. No part of a cluster should cost time by being faster. The model of
traffic that shares links with other traffic has no proof of that (docs/model/replicas.md), so exceptions are counted: ten cases
for each layout, five parts that are 10 % faster or twice as fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.sheets import markdown_row
from simulator import catalog
from simulator.domain.offer import Offer
from simulator.domain.plan import Plan, PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.simulate import steps_and_memory
from simulator.table import Floats
from tests.simulator.builders import job_of, plan_of, rented, training
from tests.simulator.faster import improved

ACCELERATORS = (
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "gb200",
    "mi300x",
    "a100-pcie-80gb",
    "h100-pcie-80gb",
    "gaudi3",
)
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b")
PARTS = {
    "memory": "memory_bytes_per_s",
    "computation": "flop_per_s",
    "scale-up links": "scale_up_bytes_per_s",
    "network cards": "network_bytes_per_s",
    "copies to main memory": "host_copy_bytes_per_s",
}
"""Rate of each part."""
FACTORS = (1.1, 2.0)
LEAST_FRACTION = 1e-3
"""A step that is longer by less counts as equal."""
BATCH = 512
"""Sequences of a step."""
HEADER = ("accelerator", "layouts", f"cases longer by {LEAST_FRACTION:.1%}", "most", "where")


@dataclass(frozen=True, kw_only=True)
class Slowed:
    """A plan whose step is longer with a faster part."""

    longer: float
    """By which fraction."""
    words: str
    """The part, model and plan."""


def layouts(model: str, number: int, luck: np.random.Generator) -> list[Plan]:
    """Returns random layouts that the model can have."""
    found: list[Plan] = []
    while len(found) < number:
        plan = _layout(luck, has_experts=catalog.model(model).experts is not None)
        if _can_have(model, plan):
            found.append(plan)
    return found


def _layout(luck: np.random.Generator, *, has_experts: bool) -> Plan:
    def one_of(*choices: int) -> int:
        return int(luck.choice(choices))

    pipeline, data, zero = one_of(1, 1, 2, 4, 8), one_of(1, 2, 4, 8, 16, 32, 64), one_of(0, 1, 2, 3)
    groups = [size for size in (2, 4, 8, 16, 32, 64) if size <= data]
    return plan_of(
        tensor=one_of(1, 2, 4, 8, 16),
        pipeline=pipeline,
        virtual=one_of(1, 1, 2, 4) if pipeline > 1 else 1,
        context=one_of(1, 1, 1, 2, 4),
        expert=one_of(1, 2, 4, 8, 16) if has_experts else 1,
        data=data,
        micro_batch=one_of(1, 2, 4),
        zero=zero,
        shards=one_of(*groups) if zero and groups and luck.random() < 0.3 else None,
        recompute=Recompute(str(luck.choice([each.value for each in Recompute]))),
    )


def _can_have(model: str, plan: Plan) -> bool:
    shape = catalog.model(model)
    num_micro_batches, rest = divmod(BATCH, plan.data_parallel * plan.micro_batch_size)
    fits_rounds = plan.virtual_pipeline == 1 or num_micro_batches % plan.pipeline_parallel == 0
    has_layers = shape.num_layers % (plan.pipeline_parallel * plan.virtual_pipeline) == 0
    has_experts = plan.expert_parallel <= plan.data_parallel * plan.context_parallel
    return (
        rest == 0
        and fits_rounds
        and has_layers
        and has_experts
        and shape.num_heads % plan.tensor_parallel == 0
    )


def slowed(offer: Offer, workload: Workload, plans: list[Plan]) -> Iterator[Slowed]:
    """Yields every plan whose step any faster part makes longer."""
    table = PlanTable.from_plans(plans)
    usual_s = _steps_s(offer, workload, table)
    for part, rate in PARTS.items():
        for factor in FACTORS:
            longer = _steps_s(improved(offer, rate, factor), workload, table) / usual_s - 1.0
            for row in np.flatnonzero(longer > LEAST_FRACTION):
                words = f"{part} x {factor:g}, {workload.model.name}, {_words(plans[row])}"
                yield Slowed(longer=float(longer[row]), words=words)


def _steps_s(offer: Offer, workload: Workload, table: PlanTable) -> Floats:
    return steps_and_memory(job_of(workload, offer), table)[0].step_time_s


def _words(plan: Plan) -> str:
    usual = plan_of()
    changed = {name: value for name, value in plan if value != getattr(usual, name) and name != "num_gpus"}
    return ", ".join(f"{name} {getattr(value, 'value', value)}" for name, value in changed.items())


def row(accelerator: str, num_plans: int, seed: int) -> list[str]:
    """Returns the row of an accelerator."""
    luck, found, offer = np.random.default_rng(seed), list[Slowed](), rented(accelerator)
    for model in MODELS:
        length = int(luck.choice([2048, 8192]))
        workload = training(model, sequence_length=length, global_batch_size=BATCH)
        found.extend(slowed(offer, workload, layouts(model, num_plans, luck)))
    worst = max(found, key=lambda each: each.longer, default=Slowed(longer=0.0, words=""))
    return [accelerator, f"{len(MODELS) * num_plans:,}", str(len(found)), f"{worst.longer:.2%}", worst.words]


def main() -> None:
    """Prints a row for each accelerator."""
    parser = argparse.ArgumentParser(description="Count steps that a faster part makes longer.")
    parser.add_argument("accelerators", nargs="*", metavar="ACCELERATOR", help="default: nine common ones")
    parser.add_argument("--num", type=int, default=1000, help="layouts of each model")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(markdown_row(*HEADER))
    print(markdown_row(*["---"] * len(HEADER)))
    for accelerator in asked.accelerators or ACCELERATORS:
        print(markdown_row(*row(accelerator, asked.num, asked.seed)), flush=True)


if __name__ == "__main__":
    main()
