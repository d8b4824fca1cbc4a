"""How do published figures of BLOOM's emissions come about? The table on docs/how-to/carbon-report.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from docs.markdown import replaced, table_of_numbers
from objectives.baselines import mlco2_kgco2e, nameplate_energy_j
from objectives.carbon import embodied_parts
from objectives.usage import Usage
from planner.input.plan_input import plan_of
from planner.job.file import load_job
from planner.one_design.simulated_design import simulate_plan
from planner.recommended.recommendation import Design
from simulator.domain.plan import PlanTable
from simulator.units import HOUR, JOULES_PER_MWH, KILO

PAGE = Path(__file__).parent / "how-to" / "carbon-report.md"
JOB = Path(__file__).parents[1] / "examples" / "bloom-176b.yaml"
PLAN = {
    "tp": 4,
    "pp": 12,
    "dp": 8,
    "mbs": 2,
    "recompute": "full",
    "checkpoint_scheme": "sync_sharded",
    "spares": 4,
}
"""As published (arXiv 2211.05100), with the four nodes that were kept in reserve."""
GPU_HOURS, RATED_W, KGCO2E_PER_KWH = 1_082_990, 400.0, 0.057
"""Hours, power and grid of arXiv 2211.02001."""
GPU_KGCO2E, SERVER_KGCO2E, LIFETIME_YEARS, UTILIZATION_FRACTION = 150.0, 2500.0, 6.0, 0.85
"""What the same study counts for making a GPU and a server, and over which time."""
PUBLISHED_MWH, IDLE_MWH = 433.2, 256.6
PUBLISHED_T = {"dynamic": 24.69, "servers": 7.57, "gpus": 3.64, "idle": 14.6}
"""Its results; idle is the power of nodes and infrastructure without load."""


def filled_carbon_report() -> str:
    """Returns the page with the table of today."""
    heading = ("part", "published", "the same inputs in capplan", "the run simulated by capplan")
    return replaced(PAGE.read_text(encoding="utf-8"), "bloom", table_of_numbers(heading, rows()))


def rows() -> Iterator[Sequence[str]]:
    """Yields the rows of the table."""
    published, parts, run = PUBLISHED_T, _parts_of_the_study(), _simulated()
    by_hand_mwh = nameplate_energy_j(GPU_HOURS, RATED_W) / JOULES_PER_MWH
    by_hand_t = mlco2_kgco2e(GPU_HOURS, RATED_W, KGCO2E_PER_KWH) / KILO
    own = {name: value / KILO for name, value in run.carbon_parts_kgco2e.items()}
    embodied = own["embodied_hosts_kgco2e"], own["embodied_accelerators_kgco2e"]
    yield (
        "energy, MWh",
        f"{PUBLISHED_MWH:.1f}, and {IDLE_MWH:.1f} idle",
        f"{by_hand_mwh:.1f}",
        f"{run.energy_kwh / KILO:.1f}",
    )
    yield (
        "operation, t CO2e",
        f"{published['dynamic']:.1f}, and {published['idle']:.1f} idle",
        f"{by_hand_t:.1f}",
        f"{own['operational_kgco2e']:.1f}",
    )
    yield (
        "making the servers, t CO2e",
        f"{published['servers']:.2f}",
        f"{parts['embodied_hosts_kgco2e']:.2f}",
        f"{embodied[0]:.2f}",
    )
    yield (
        "making the GPUs, t CO2e",
        f"{published['gpus']:.2f}",
        f"{parts['embodied_accelerators_kgco2e']:.2f}",
        f"{embodied[1]:.2f}",
    )
    total = sum(published.values()), by_hand_t + sum(parts.values()), run.carbon_kgco2e / KILO
    yield "sum, t CO2e", f"{total[0]:.1f}", f"{total[1]:.1f}", f"{total[2]:.1f}"


def _parts_of_the_study() -> dict[str, float]:
    """Tonnes of making servers and GPUs, with the study's footprints, lifetime and hours."""
    job = load_job(
        JOB,
        [
            f"ownership.lifetime_years={LIFETIME_YEARS}",
            f"ownership.utilization_fraction={UTILIZATION_FRACTION}",
        ],
    )
    (offer,) = job.offers
    made = {
        "accelerator": offer.accelerator.model_copy(update={"embodied_kgco2e": GPU_KGCO2E}),
        "node": offer.node.model_copy(update={"embodied_host_kgco2e": SERVER_KGCO2E}),
    }
    job = job.model_copy(update={"offers": (offer.model_copy(update=made),)})
    plan, num_gpus = plan_of(job, {**PLAN, "spares": 0})
    wall_s = np.array([GPU_HOURS * HOUR / num_gpus])
    usage = Usage(wall_s=wall_s, energy_j=np.zeros(1), peak_power_w=np.zeros(1))
    parts = embodied_parts(job, PlanTable.from_plans([plan]), usage)
    return {name: float(value[0]) / KILO for name, value in parts.items() if value[0]}


def _simulated() -> Design:
    design = simulate_plan(load_job(JOB), PLAN, with_sensitivities=False).design
    if design is None:
        raise ValueError(f"{JOB} has no such design")
    return design
