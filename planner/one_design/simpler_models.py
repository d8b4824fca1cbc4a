"""What would simpler models predict for a design? The nameplate product, MLCO2 and LLMCarbon, for comparison.

The first two take the simulated GPU-hours, since they ask for hours; LLMCarbon predicts its own, from the size of the model
alone. Their equations are in `objectives.baselines`.
"""

from __future__ import annotations

from constraints.evaluation import Evaluation
from objectives.baselines import (
    llmcarbon_cold_efficiency,
    llmcarbon_gpu_hours,
    llmcarbon_largest_run,
    mlco2_kgco2e,
    nameplate_energy_j,
)
from objectives.usage import Usage, it_energy_j
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.record import Record
from simulator.units import GIGA, HOUR, JOULES_PER_KWH


class SimplerModel(Record):
    """What one simpler model says of a design."""

    name: str
    """Which one, and what it multiplies."""
    gpu_hours: float
    """Hours of the accelerators that train: simulated, or predicted by the model itself."""
    energy_kwh: float
    """Energy by this model,"""
    operational_kgco2e: float
    """and its greenhouse gases at the mean intensity of the site's grid."""


def simpler_models(job: Job, evaluation: Evaluation) -> tuple[SimplerModel, ...]:
    """Returns what simpler models say of an evaluated design whose run ends.

    Args:
        job: the job.
        evaluation: the design, one row.
    """
    plan = evaluation.plans.plan(0)
    offer = job.offers[plan.offer]
    per_kwh, rated_w = job.site_of(offer).grid_kgco2e_per_kwh, offer.accelerator.thermal_design_power_w
    pue = _mean_pue(job, evaluation)
    hours = plan.num_gpus * float(evaluation.scores.time_to_train_s[0]) / HOUR
    told = [
        ("nameplate: simulated GPU-hours x TDP x PUE", hours, pue),
        ("MLCO2: simulated GPU-hours x TDP", hours, 1.0),
        ("LLMCarbon: 6 P D / efficiency by size, x TDP x PUE", _llmcarbon_hours(job, plan), pue),
    ]
    return tuple(
        SimplerModel(
            name=name,
            gpu_hours=gpu_hours,
            energy_kwh=nameplate_energy_j(gpu_hours, rated_w, overhead) / JOULES_PER_KWH,
            operational_kgco2e=mlco2_kgco2e(gpu_hours, rated_w * overhead, per_kwh),
        )
        for name, gpu_hours, overhead in told
        if gpu_hours is not None
    )


def left_out(job: Job, plan: Plan) -> list[str]:
    """Returns why a simpler model does not apply to a plan."""
    size, spans_nodes = job.workload.model.num_active_parameters, _spans_nodes(plan)
    largest = llmcarbon_largest_run(spans_nodes=spans_nodes)
    if size <= largest:
        return []
    runs = "with" if spans_nodes else "without"
    ends = f"the runs {runs} a pipeline from which it takes the efficiency end at {largest / GIGA:.4g} billion parameters"
    return [f"LLMCarbon says nothing of this plan: {ends}, and this model has {size / GIGA:.3g} billion."]


def _spans_nodes(plan: Plan) -> bool:
    return plan.pipeline_parallel > 1


def _mean_pue(job: Job, evaluation: Evaluation) -> float:
    usage = Usage.of(evaluation.outcomes)
    return float((usage.energy_j / it_energy_j(job, evaluation.plans, usage))[0])


def _llmcarbon_hours(job: Job, plan: Plan) -> float | None:
    """Its regression over 16-bit runs gives a share of the peak of the plan's own format.

    Nothing without 16-bit products, and beyond the runs that it is over (`left_out`).
    """
    chip, model = job.offers[plan.offer].accelerator, job.workload.model
    own = chip.peak_flop_per_s(plan.precision)
    sixteen_bit = chip.peak_flop_per_s(Precision.BF16) or chip.peak_flop_per_s(Precision.FP16)
    if own is None or sixteen_bit is None or left_out(job, plan):
        return None
    share = llmcarbon_cold_efficiency(
        model.num_active_parameters, sixteen_bit, spans_nodes=_spans_nodes(plan)
    )
    return llmcarbon_gpu_hours(model.num_active_parameters, job.workload.tokens, own, share)
