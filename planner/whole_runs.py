"""How near are whole runs, predicted cold, to what was published? GPU-hours and energy, beside LLMCarbon's.

Step time, goodput and power are our own. Only what a planner would know before the run is given: model, tokens, layout,
hardware, failure rate of the fleet. Energies that are GPU-hours times a power are arithmetic, and listed as such.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from constraints.evaluation import evaluate
from objectives.baselines import llmcarbon_cold_efficiency, nameplate_energy_j
from planner.job_file import parse_job
from planner.plan_input import plan_of
from planner.whole_run_jobs import KNOWN_RUNS, KnownRun
from simulator.catalog import accelerator
from simulator.hardware import Precision
from simulator.plan import PlanTable
from simulator.units import HOUR, JOULES_PER_MWH

FILE = "data/published_runs.csv"
ARITHMETIC, METERED = "arithmetic", "metered"


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """What was published of one complete run."""

    row_id: str
    model: str
    num_parameters: float
    accelerator: str
    """Catalogue name."""
    gpu_hours: float
    energy_mwh: float | None
    rated_w: float
    """Power with which the source multiplies hours, or the rating of the accelerator."""
    pue: float
    """PUE in the published energy; 1 where it has none."""
    energy_kind: str
    """`arithmetic`: hours x power; `metered`; `none`."""
    source: str
    not_compared: str
    """Why the run is not predicted; empty where its layout is known."""

    @property
    def nameplate_mwh(self) -> float:
        """GPU-hours x power x PUE."""
        return nameplate_energy_j(self.gpu_hours, self.rated_w, self.pue) / JOULES_PER_MWH


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One run: published and predicted."""

    published: PublishedRun
    our_gpu_hours: float
    llmcarbon_gpu_hours: float
    our_energy_mwh: float
    llmcarbon_energy_mwh: float
    our_step_s: float
    our_goodput_fraction: float
    our_power_w_per_gpu: float
    """With its share of host, fans, fabric and supplies, without cooling."""
    note: str

    @property
    def hours_error_fraction(self) -> float:
        """Our GPU-hours over the published ones, less one."""
        return self.our_gpu_hours / self.published.gpu_hours - 1.0

    @property
    def energy_error_fraction(self) -> float | None:
        """The same of the energy; nothing where none was metered."""
        if self.published.energy_kind != METERED or self.published.energy_mwh is None:
            return None
        return self.our_energy_mwh / self.published.energy_mwh - 1.0


@cache
def published_runs() -> Mapping[str, PublishedRun]:
    """Returns the shipped table of published runs by the id of their rows; the file is read once."""
    text = resources.files("planner").joinpath(FILE).read_text(encoding="utf-8")
    return {row["row_id"]: _published(row) for row in csv.DictReader(text.splitlines())}


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
    """Returns the prediction of every published run whose layout is known; simulated once."""
    return tuple(predicted(run, published_runs()[run.row]) for run in KNOWN_RUNS)


def predicted(run: KnownRun, published: PublishedRun) -> Prediction:
    """Returns one run with our prediction and LLMCarbon's, both cold."""
    job = parse_job(run.job)
    plan, _ = plan_of(job, run.plan)
    result = evaluate(job, PlanTable.from_plans([plan]))
    wall_s = float(result.scores.time_to_train_s[0])
    energy_j = float(result.scores.energy_j[0])
    chip = accelerator(published.accelerator)
    peak = chip.peak_flop_per_s(Precision.BF16)
    assert peak is not None, "every compared accelerator has 16-bit products"
    rate = peak * llmcarbon_cold_efficiency(published.num_parameters, peak)
    their_hours = 6.0 * published.num_parameters * job.workload.tokens / rate / HOUR
    pue = job.site.power_usage_effectiveness
    their_energy_j = nameplate_energy_j(their_hours, chip.thermal_design_power_w, pue)
    return Prediction(
        published=published,
        our_gpu_hours=plan.num_gpus * wall_s / HOUR,
        llmcarbon_gpu_hours=their_hours,
        our_energy_mwh=energy_j / JOULES_PER_MWH,
        llmcarbon_energy_mwh=their_energy_j / JOULES_PER_MWH,
        our_step_s=float(result.outcomes.steps.step_time_s[0]),
        our_goodput_fraction=float(result.outcomes.run.goodput_fraction[0]),
        our_power_w_per_gpu=energy_j / wall_s / plan.num_gpus / pue,
        note=run.note,
    )


def arithmetic_runs() -> Iterator[PublishedRun]:
    """Yields the runs whose published energy is arithmetic."""
    yield from (run for run in published_runs().values() if run.energy_kind == ARITHMETIC)


def whole_runs_json() -> list[dict[str, float | str | None]]:
    """Returns the predictions as objects that JSON can hold; nulls where nothing was published or metered."""
    return [
        {
            "id": run.published.row_id,
            "model": run.published.model,
            "source": run.published.source,
            "published_gpu_hours": run.published.gpu_hours,
            "predicted_gpu_hours": run.our_gpu_hours,
            "llmcarbon_gpu_hours": run.llmcarbon_gpu_hours,
            "published_energy_mwh": run.published.energy_mwh,
            "published_energy_kind": run.published.energy_kind,
            "predicted_energy_mwh": run.our_energy_mwh,
            "llmcarbon_energy_mwh": run.llmcarbon_energy_mwh,
            "note": run.note,
        }
        for run in predictions()
    ]
