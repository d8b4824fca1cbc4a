"""Can the README's answer be checked with a calculator? Each figure from the job, the catalogue and figures beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.markdown import replaced, row_of_text
from docs.readme import JOB, answer_of
from planner import load_job
from planner.measured.runs import read_rows
from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job
from simulator.machine.training import training_constants
from simulator.units import DAY, GIB, HOUR, YEAR

PAGE = Path(__file__).with_name("by-hand.md")
MEASURED = "dgxc-0036+2"
"""The published step that is nearest to the recommended design: the same model on as many of the same accelerators."""
LAYER_BYTES = 34
"""Bytes that a layer keeps of each value of a token, over the tensor-parallel ranks (Korthikanti et al., arXiv 2205.05198,
table 2, with sequence parallelism and without what flash attention does not keep)."""
WHOLE_FROM = 1e4
"""From here on a number is shown to the last digit."""
OPTIMIZER_BYTES = 12
"""Of a weight: a copy and two moments of Adam, in 32 bits each."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A figure of the answer, and the same by hand."""

    what: str
    arithmetic: str
    by_hand: float
    told: float
    unit: str = ""
    """Behind both numbers."""

    @property
    def off(self) -> float:
        """The answer's figure over that by hand, minus one."""
        return self.told / self.by_hand - 1.0

    def row(self) -> list[str]:
        """Returns the cells of a line of the table."""
        return [
            self.what,
            self.arithmetic,
            *(f"{_number(value)}{self.unit}" for value in (self.by_hand, self.told)),
            human.signed_percent(self.off),
        ]


def _number(value: float) -> str:
    return human.count(value) if value >= WHOLE_FROM else human.digits(value, significant=4)


def checks() -> dict[str, list[Check]]:
    """Returns the checks of every part of the page."""
    job, best = load_job(JOB), answer_of().best
    assert best is not None, "the README's job has an answer"
    return {
        "step": _of_step(job, best),
        "memory": _of_memory(job, best),
        "run": _of_run(job, best),
        "money": _of_money(job, best),
    }


def by_hand_page() -> str:
    """Returns the page with its tables regenerated."""
    text = PAGE.read_text(encoding="utf-8")
    for name, found in checks().items():
        text = replaced(text, name, _table(found))
    return text


def _table(found: Sequence[Check]) -> str:
    head = ["figure", "arithmetic", "by hand", "answer", "difference"], ["---", "---", "---:", "---:", "---:"]
    return "\n".join(map(row_of_text, [*head, *(check.row() for check in found)]))


def _of_step(job: Job, best: Design) -> list[Check]:
    work, model, chip = job.workload, job.workload.model, job.offers[best.plan.offer].accelerator
    tokens, gpus = work.global_batch_size * work.sequence_length, best.plan.num_gpus
    multiplied = model.num_parameters - model.vocabulary_size * model.hidden_size
    flop = 6 * multiplied + 6 * model.num_layers * model.hidden_size * work.sequence_length
    (row,) = [row for row in read_rows() if row["row_id"] == MEASURED]
    measured_s, measured_batch = float(row["step_time_s"]), int(row["global_batch_size"])
    parts = best.step_seconds
    shared_s = parts["pipeline_bubble_s"] + parts["gradient_sync_s"]
    share = work.global_batch_size / measured_batch
    stragglers = job.reliability.straggler_slowdown
    spread = training_constants().accelerator_spread_fraction
    return [
        Check(
            what="steps",
            arithmetic=f"{human.typed(work.tokens)} tokens / ({work.global_batch_size:,} x {work.sequence_length:,})",
            by_hand=work.tokens / tokens,
            told=work.num_steps,
        ),
        Check(
            what="a step at the full dense peak",
            arithmetic=f"{flop / 1e9:.4g} GFLOPs x {tokens:,} tokens / ({gpus:,} x {chip.bf16_flop_per_s / 1e12:.0f} TFLOP/s)",
            by_hand=flop * tokens / (gpus * chip.bf16_flop_per_s),
            told=best.mfu_fraction * best.step_time_s,
            unit=" s",
        ),
        Check(
            what="a step, from a measured one",
            arithmetic=f"{measured_s} s x {work.global_batch_size:,} / {measured_batch:,} sequences",
            by_hand=measured_s * share,
            told=best.step_time_s - (1.0 - share) * shared_s,
            unit=" s",
        ),
        Check(
            what="with stragglers",
            arithmetic=f"{best.step_time_s:.4g} s x {stragglers:.4g} / (1 + {spread:.4g} x sqrt(2 ln {gpus:,}))",
            by_hand=best.step_time_s * stragglers / (1.0 + spread * math.sqrt(2.0 * math.log(gpus))),
            told=best.iteration_time_s,
            unit=" s",
        ),
    ]


def _of_memory(job: Job, best: Design) -> list[Check]:
    plan, work, model, has = best.plan, job.workload, job.workload.model, best.memory_bytes
    of_ends = model.embedding_parameters + model.output_parameters
    of_layers = model.num_parameters - of_ends
    of_first_end = model.embedding_parameters if plan.pipeline_parallel > 1 else of_ends
    weights = (of_layers / plan.pipeline_parallel + of_first_end) / plan.tensor_parallel
    held = min(
        2 * (plan.pipeline_parallel - 1) + (plan.virtual_pipeline - 1) * plan.pipeline_parallel + 1,
        plan.virtual_pipeline * work.global_batch_size // (plan.data_parallel * plan.micro_batch_size),
    )
    layers = model.num_layers // (plan.pipeline_parallel * plan.virtual_pipeline)
    num_replicas = plan.data_parallel * plan.context_parallel
    num_sharing = plan.tensor_parallel * plan.context_parallel
    of_layer = LAYER_BYTES * work.sequence_length * model.hidden_size / num_sharing
    return [
        Check(
            what="weights of a GPU",
            arithmetic=f"2 bytes x ({of_layers / 1e9:.4g}e9 / {plan.pipeline_parallel} + {of_first_end / 1e9:.4g}e9) / "
            f"{plan.tensor_parallel}",
            by_hand=2 * weights / GIB,
            told=has["weights_bytes"] / GIB,
            unit=" GiB",
        ),
        Check(
            what="states of the optimizer, over all replicas",
            arithmetic=f"{OPTIMIZER_BYTES} bytes x {weights / 1e9:.4g}e9 / ({plan.data_parallel} x {plan.context_parallel})",
            by_hand=OPTIMIZER_BYTES * weights / num_replicas / GIB,
            told=has["optimizer_bytes"] / GIB,
            unit=" GiB",
        ),
        Check(
            what="activations of the fullest stage",
            arithmetic=f"{held} chunks of {layers} layers x {LAYER_BYTES} x {work.sequence_length:,} x "
            f"{model.hidden_size:,} / ({plan.tensor_parallel} x {plan.context_parallel}) bytes",
            by_hand=held * layers * of_layer / GIB,
            told=has["activations_bytes"] / GIB,
            unit=" GiB",
        ),
    ]


def _of_run(job: Job, best: Design) -> list[Check]:
    rates, restart, run = job.reliability, job.reliability.restart, best.run_seconds
    steps_days = job.workload.num_steps * best.iteration_time_s / DAY
    back_s = restart.detect_s + restart.diagnose_s + restart.initialize_s + restart.warm_up_s
    interval_s = best.checkpoint_interval_s or 0.0
    in_steps = ("productive_s", "straggler_s")
    lost_days = sum(value for name, value in run.items() if name not in in_steps) / DAY
    return [
        Check(
            what="failures",
            arithmetic=f"{rates.failures_per_1000_node_days} / 1,000 x {best.num_nodes} nodes x "
            f"{best.time_to_train_days:.4g} days",
            by_hand=rates.failures_per_1000_node_days / 1000 * best.num_nodes * best.time_to_train_days,
            told=best.num_failures,
        ),
        Check(
            what="restarts",
            arithmetic=f"{best.num_failures:.4g} x ({restart.detect_s:.0f} + {restart.diagnose_s:.0f} + "
            f"{restart.initialize_s:.0f} + {restart.warm_up_s:.0f}) s",
            by_hand=best.num_failures * back_s / HOUR,
            told=run["restart_s"] / HOUR,
            unit=" h",
        ),
        Check(
            what="lost work",
            arithmetic=f"{best.num_failures:.4g} x (half of {interval_s:.4g} s, and {best.iteration_time_s:.4g} s)",
            by_hand=best.num_failures * (interval_s / 2.0 + best.iteration_time_s) / HOUR,
            told=run["lost_work_s"] / HOUR,
            unit=" h",
        ),
        Check(
            what="time to train",
            arithmetic=f"{job.workload.num_steps:,.0f} x {best.iteration_time_s:.4g} s, and {lost_days:.3g} days of failures "
            "and saves",
            by_hand=steps_days + lost_days,
            told=best.time_to_train_days,
            unit=" days",
        ),
    ]


def _of_money(job: Job, best: Design) -> list[Check]:
    offer, own, site = job.offers[best.plan.offer], job.ownership, job.site
    node, chip = offer.node, offer.accelerator
    rent = offer.rent_usd_per_gpu_hour
    assert rent is not None, "the README's accelerators are rented"
    assert site is not None
    nodes = best.num_nodes + best.plan.num_spare_nodes
    gpus, hours = nodes * node.num_accelerators, best.time_to_train_days * DAY / HOUR
    node_w = (
        node.num_accelerators * chip.thermal_design_power_w + node.host_power_w
    ) / node.power_supply_efficiency_fraction + node.fan_power_w
    made_kg = gpus * (chip.embodied_kgco2e + (node.embodied_host_kgco2e or 0.0) / node.num_accelerators)
    life_days = own.lifetime_years * YEAR / DAY * own.utilization_fraction
    carbon = best.carbon_parts_kgco2e
    return [
        Check(
            what="rent",
            arithmetic=f"{gpus:,} GPUs x {hours:.4g} h x ${rent.mid}",
            by_hand=gpus * hours * rent.mid / 1e6,
            told=best.cost_usd / 1e6,
            unit=" M USD",
        ),
        Check(
            what="energy, at most",
            arithmetic=f"{nodes} nodes x {node_w / 1e3:.4g} kW x {hours:.4g} h x PUE {site.power_usage_effectiveness}",
            by_hand=nodes * node_w * hours * site.power_usage_effectiveness / 1e9,
            told=best.energy_kwh / 1e6,
            unit=" GWh",
        ),
        Check(
            what="operational carbon",
            arithmetic=f"{best.energy_kwh / 1e3:.4g} MWh x {site.grid_kgco2e_per_kwh} t/MWh",
            by_hand=best.energy_kwh * site.grid_kgco2e_per_kwh / 1e3,
            told=carbon["operational_kgco2e"] / 1e3,
            unit=" t",
        ),
        Check(
            what="embodied carbon of GPUs and hosts",
            arithmetic=f"{made_kg / 1e3:,.0f} t x {best.time_to_train_days:.4g} of {life_days:,.0f} days of use",
            by_hand=made_kg * best.time_to_train_days / life_days / 1e3,
            told=(carbon["embodied_accelerators_kgco2e"] + carbon["embodied_hosts_kgco2e"]) / 1e3,
            unit=" t",
        ),
    ]
