"""How close are predictions of whole runs to what was published, with and without the runs' own data? Ours and LLMCarbon's.

GPU-hours and energy are compared; step time, goodput and power are our own. Some runs provide more than a planner knows
beforehand: the constants are fitted on steps of theirs, or their own failures give the failure rate. So every run is predicted
twice: as shipped, and without the run, with constants of a fit that left out its publisher and with the inputs of any fleet.
The second prediction is cold, and is the one by which accuracy is judged. Energies that are GPU-hours times a power are
arithmetic, and listed as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from objectives.baselines import llmcarbon_cold_efficiency, nameplate_energy_j
from objectives.usage import Usage, it_energy_j
from planner.validation.held_out import constants_without, evaluate_with
from planner.validation.known_run import KnownRun
from planner.validation.whole_run_jobs import KNOWN_RUNS
from simulator.catalog import accelerator
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.training import TrainingConstants, training_constants
from simulator.shipped import shipped_rows
from simulator.units import HOUR, JOULES_PER_MWH

FILE = "data/published_runs.csv"
ARITHMETIC, METERED = "arithmetic", "metered"


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """What was published about one complete run."""

    row_id: str
    model: str
    num_parameters: float
    """Parameters; for a mixture of experts, those active per token."""
    accelerator: str
    """Catalogue name."""
    gpu_hours: float
    energy_mwh: float | None
    """None where the publisher gives none."""
    rated_w: float
    """Power by which the source multiplies hours, or the rated power of the accelerator."""
    pue: float
    """PUE included in the published energy; 1 if none is."""
    energy_kind: str
    """`arithmetic` (hours x power, published as such or as hours and watts), `metered` or `none`."""
    source: str
    not_compared: str
    """Why the run is not predicted; empty if its layout is known."""

    @property
    def nameplate_mwh(self) -> float:
        """GPU-hours x power x PUE."""
        return nameplate_energy_j(self.gpu_hours, self.rated_w, self.pue) / JOULES_PER_MWH


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What the simulator predicts for one run."""

    published: PublishedRun
    gpu_hours: float
    energy_mwh: float
    step_s: float
    goodput_fraction: float
    power_w_per_gpu: float
    """Including its share of host, fans, fabric and power supplies, without cooling."""

    @property
    def hours_error_fraction(self) -> float:
        """GPU-hours over the published ones, less one."""
        return self.gpu_hours / self.published.gpu_hours - 1.0

    @property
    def energy_error_fraction(self) -> float | None:
        """Energy over the metered one, less one; `None` where none was metered."""
        if self.published.energy_kind != METERED or self.published.energy_mwh is None:
            return None
        return self.energy_mwh / self.published.energy_mwh - 1.0


@dataclass(frozen=True, kw_only=True)
class LlmCarbon:
    """What LLMCarbon predicts for a run before it is made."""

    gpu_hours: float
    energy_mwh: float
    sixteen_bit_gpu_hours: float
    """GPU-hours from the 16-bit peak, whatever the run's number format."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One run, as published and as predicted."""

    published: PublishedRun
    shipped: Simulated
    """With the shipped constants and all published inputs."""
    cold: Simulated
    """Without the run: constants and inputs contain nothing of it but model, tokens, layout and hardware."""
    llmcarbon: LlmCarbon
    own_figures: str
    """What `shipped` has seen of the run itself."""
    in_their_place: str
    """What `cold` uses instead."""
    note: str


@cache
def published_runs() -> Mapping[str, PublishedRun]:
    """Returns the shipped table of published runs by the id of their rows; the file is read once."""
    return {row["row_id"]: _published(row) for row in shipped_rows(FILE, "planner")}


def _published(row: Mapping[str, str]) -> PublishedRun:
    return PublishedRun(
        row_id=row["row_id"],
        model=row["model"],
        num_parameters=float(row["num_parameters"]),
        accelerator=row["accelerator"],
        gpu_hours=float(row["gpu_hours"]),
        energy_mwh=float(row["energy_mwh"]) if row["energy_mwh"] else None,
        rated_w=float(row["rated_w"]),
        pue=float(row["pue"]),
        energy_kind=row["energy_kind"],
        source=row["source"],
        not_compared=row["not_compared"],
    )


@cache
def predictions() -> tuple[Prediction, ...]:
    """Returns the predictions of every published run whose layout is known; simulated once."""
    return tuple(predicted(run, published_runs()[run.row]) for run in KNOWN_RUNS)


def predicted(run: KnownRun, published: PublishedRun) -> Prediction:
    """Returns one run with our predictions, with and without its own data, and LLMCarbon's."""
    return Prediction(
        published=published,
        shipped=simulated(run, published, training_constants()),
        cold=simulated(run.without_the_run(), published, constants_without(run.publisher), is_cold=True),
        llmcarbon=_llmcarbon(run, published),
        own_figures=run.own_figures,
        in_their_place=run.in_their_place,
        note=run.note,
    )


def simulated(
    run: KnownRun, published: PublishedRun, constants: TrainingConstants, *, is_cold: bool = False
) -> Simulated:
    """Returns what the simulator predicts for a run.

    Args:
        run: the run with the inputs to use.
        published: what was published about it.
        constants: of training steps.
        is_cold: whether the power of computation comes from other runs' meters.
    """
    job = run.job()
    if is_cold and run.unseen_compute_power_fraction is not None:
        job = _drawing(job, run.unseen_compute_power_fraction)
    plan = run.plan(job)
    result = evaluate_with(job, PlanTable.from_plans([plan]), constants)
    it_j = float(it_energy_j(job, result.plans, Usage.of(result.outcomes))[0])
    wall_s, energy_j = float(result.scores.time_to_train_s[0]), float(result.scores.energy_j[0])
    return Simulated(
        published=published,
        gpu_hours=plan.num_gpus * wall_s / HOUR,
        energy_mwh=energy_j / JOULES_PER_MWH,
        step_s=float(result.outcomes.steps.step_time_s[0]),
        goodput_fraction=float(result.outcomes.run.goodput_fraction[0]),
        power_w_per_gpu=it_j / wall_s / plan.num_gpus,
    )


def _drawing(job: Job, compute_power_fraction: float) -> Job:
    """Returns the job with another power of computation."""
    (offer,) = job.offers
    chip = offer.accelerator.model_copy(update={"compute_power_fraction": compute_power_fraction})
    return job.model_copy(update={"offers": (offer.model_copy(update={"accelerator": chip}),)})


def _llmcarbon(run: KnownRun, published: PublishedRun) -> LlmCarbon:
    """LLMCarbon's regression over 16-bit runs gives a share of the peak; the peak used is that of the run's own format."""
    job, chip = run.job(), accelerator(published.accelerator)
    plan = run.plan(job)
    sixteen_bit, own = (chip.peak_flop_per_s(form) for form in (Precision.BF16, plan.precision))
    assert sixteen_bit is not None, "every compared accelerator has 16-bit products"
    assert own is not None, "every run computes in a format of its accelerator"
    share = llmcarbon_cold_efficiency(published.num_parameters, sixteen_bit)
    work_flop = 6.0 * published.num_parameters * job.workload.tokens
    hours, in_sixteen_bit = (work_flop / (peak * share) / HOUR for peak in (own, sixteen_bit))
    pue = job.site.power_usage_effectiveness
    energy_j = nameplate_energy_j(hours, chip.thermal_design_power_w, pue)
    return LlmCarbon(
        gpu_hours=hours, energy_mwh=energy_j / JOULES_PER_MWH, sixteen_bit_gpu_hours=in_sixteen_bit
    )


def arithmetic_runs() -> Iterator[PublishedRun]:
    """Yields the runs whose published energy is arithmetic, or that publish hours and watts without an energy."""
    yield from (run for run in published_runs().values() if run.energy_kind == ARITHMETIC)


def whole_runs_json() -> list[dict[str, float | str | None]]:
    """Returns the predictions as JSON-compatible objects, with nulls where nothing was published or metered.

    Fields that begin with `predicted_` are cold. Those that begin with `shipped_` use the run's own data, which `own_figures`
    names.
    """
    return [
        {
            "id": run.published.row_id,
            "model": run.published.model,
            "source": run.published.source,
            "published_gpu_hours": run.published.gpu_hours,
            "predicted_gpu_hours": run.cold.gpu_hours,
            "shipped_gpu_hours": run.shipped.gpu_hours,
            "llmcarbon_gpu_hours": run.llmcarbon.gpu_hours,
            "llmcarbon_sixteen_bit_gpu_hours": run.llmcarbon.sixteen_bit_gpu_hours,
            "published_energy_mwh": run.published.energy_mwh,
            "published_energy_kind": run.published.energy_kind,
            "predicted_energy_mwh": run.cold.energy_mwh,
            "shipped_energy_mwh": run.shipped.energy_mwh,
            "llmcarbon_energy_mwh": run.llmcarbon.energy_mwh,
            "own_figures": run.own_figures,
            "note": run.note,
        }
        for run in predictions()
    ]
