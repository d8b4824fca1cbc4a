"""What does capplan answer? The recommendation, the front and the reasons, as values that print, serialise and compare.

`Recommendation.model_dump_json()` is what `capplan recommend --json` prints. Only `created_at` and
`mlflow.run_id` differ between two runs of the same job, version and seed; the JSON leaves `run_id` out.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.recommended.comparisons import Best, InputUncertainty, WhatIfCase
from simulator.accuracy.published_runs import PUBLISHED_RUNS
from simulator.domain.plan import Plan
from simulator.record import Record

Status = Literal["recommended", "infeasible", "interrupted"]


class Spread(Record):
    """What chance makes of a figure: failures, restarts and stragglers replayed many times."""

    mean: float | None
    """Mean of the replays; null where one never ends."""
    p5: float | None
    """One replay in twenty stays below; null where that one never ends."""
    p50: float | None
    """Median."""
    p95: float | None
    """One replay in twenty goes beyond."""


class Design(Record):
    """One simulated design with everything that a reader needs to judge it."""

    design_id: int
    """Row of the design table in MLflow (folder `designs`)."""
    accelerator: str
    """Catalogue name of the accelerator."""
    node: str
    """Catalogue name of the node."""
    num_nodes: int
    """Nodes that train, spares not counted."""
    region: str = ""
    """Where they stand."""
    plan: Plan
    """The decisions."""
    time_to_train_days: float
    """Wall time of the run."""
    cost_usd: float
    """Cost of the run."""
    cost_low_usd: float
    """Cost at the low end of the hardware's price."""
    cost_high_usd: float
    """Cost at the high end of the hardware's price."""
    energy_kwh: float
    """Energy of the facility."""
    carbon_kgco2e: float
    """Operational and embodied greenhouse gases."""
    objective_values: dict[str, float | None] = Field(default={})
    """What was made small, by its name, in the order of the job, SI units, USD and probabilities."""
    peak_power_w: float
    """Most that the facility draws."""
    step_time_s: float
    """One optimizer step when nothing straggles."""
    iteration_time_s: float
    """One optimizer step as the run sees it: with the stragglers of the fleet, without saves and failures."""
    mfu_fraction: float
    """Model FLOPs utilisation of a step."""
    goodput_fraction: float
    """Share of the wall time in which steps that count run at full speed."""
    num_failures: float
    """Failures to expect."""
    memory_bytes: dict[str, float]
    """Memory of the most loaded accelerator by component."""
    peak_memory_bytes: float
    """Sum of the components."""
    memory_capacity_bytes: float
    """Memory of one accelerator."""
    checkpoint_interval_s: float | None
    """Training time between two saves; null without checkpoints."""
    step_seconds: dict[str, float]
    """One step by what it is spent on; sums to `step_time_s`."""
    run_seconds: dict[str, float]
    """The run by what it is spent on; sums to the wall time."""
    badput_seconds: dict[str, float]
    """All but the productive part by the names of Google's goodput accounts (arXiv 2502.06982), and three names more."""
    cost_parts_usd: dict[str, float]
    """Cost by part."""
    energy_parts_kwh: dict[str, float]
    """Energy by phase."""
    carbon_parts_kgco2e: dict[str, float]
    """Operational part, and the embodied ones that the job's scope counts."""
    water_scope: str = ""
    """Which water `water_l` of the metrics counts, and which it cannot, where the site's figures are not known."""
    metrics: dict[str, float | None] = Field(default={})
    """Figures of merit (`objectives.metrics`); null where a price or a factor is not known, or where owning never pays."""
    buying_pays: bool | None = None
    """Whether buying instead of renting pays itself and its interest back within the life of the nodes, after the
    `break_even_months` of `metrics`; false: never; null where a price is not known."""
    power_w: dict[str, float] = Field(default={})
    """Peak IT power of the hall and of a rack, cooling in the warmest hour, and the facility's largest swing."""
    power_range_fraction: float = 0.0
    """The swing as a share of the peak, for the IT power of the training nodes."""
    power_ramp_w_per_s: float = 0.0
    """Fastest change of the facility's power."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a design in a line or two; `model_dump()` has every field."""
        return [
            ("design_id", self.design_id),
            ("accelerator", self.accelerator),
            ("num_gpus", self.plan.num_gpus),
            ("time_to_train_days", self.time_to_train_days),
            ("cost_usd", self.cost_usd),
            ("energy_kwh", self.energy_kwh),
            ("carbon_kgco2e", self.carbon_kgco2e),
        ]


class Uncertainty(Record):
    """How far the recommended figures may be off."""

    num_replays: int
    """Replayed runs."""
    time_to_train_days: Spread
    """Spread by failures and stragglers."""
    cost_usd: Spread
    """Spread of the cost at the middle price."""
    goodput_fraction: Spread
    """Spread of the share of the wall time in which steps that count run at full speed."""
    deadline_probability: float | None = None
    """Share of the replays that keep the deadline; null without one."""
    budget_probability: float | None = None
    """Share of the replays that keep the budget; null without one."""
    step_time_error_fraction: float
    """Mean size of the error of simulated step times on measured runs (docs/validation.md)."""
    step_time_low_s: float
    """Shortest step of the interval in which a measured one lies in four of five cases, on sources not seen before."""
    step_time_high_s: float
    """Longest step of that interval."""
    step_time_bias_fraction: float
    """Mean error with its sign: negative where steps were simulated too fast."""
    is_step_time_measured: bool
    """Whether runs of this very kind (architecture, number format, dense or experts) were compared; otherwise the two
    figures above are borrowed from the kind that is known worst."""
    step_time_num_compared: int = 0
    """Configurations of this kind that were compared; nothing is corrected by fewer than ten. 0: not known."""
    step_time_compared_with: str = PUBLISHED_RUNS
    """The measured runs: published ones, or those of the job's calibration."""
    tied_designs: tuple[int, ...] = ()
    """Designs of the front that the model cannot tell from the recommended one: in no objective does either have less in nine
    of ten draws of all unsure inputs. What the two share cancels: the error of a step where the layout is the same."""


class Rejection(Record):
    """How many designs one constraint kept out."""

    constraint: str
    """Name of the limit or rule."""
    rule: str
    """What it says, with the limit in the job's words."""
    num_before_simulation: int
    """Designs that a bound kept out without simulation."""
    num_after_simulation: int
    """Simulated designs that break it; one design may break several."""


class Relaxation(Record):
    """What would make the job feasible."""

    limits: dict[str, float]
    """Limits to change, with the smallest values that work; all other limits stay."""
    example: Design
    """A design that these limits admit."""


class Infeasibility(Record):
    """Why no design can satisfy the limits."""

    conflict: tuple[str, ...]
    """Limits at fault: where changing one limit helps, those of one conflict, else those of all `conflicts`. Rules of
    layouts, `memory`, `host_memory` or `progress` where no limit is at fault."""
    conflicts: tuple[tuple[str, ...], ...] = ()
    """Minimal conflicts: limits that no design keeps together, while without any one of them some design keeps the others
    of that conflict. One where changing one limit helps, all where none does; none where no limit is at fault."""
    resolutions: tuple[dict[str, float], ...] = ()
    """For each conflict the smallest value of each of its limits that ends this conflict while its others stay; another
    conflict may remain, so that only `relaxations` are sure to help."""
    reasons: tuple[str, ...]
    """The conflicts and what ends them, in sentences."""
    proof: str
    """How it was proven."""
    relaxations: tuple[Relaxation, ...]
    """Smallest changes that help, best first."""


class MlflowRecord(Record):
    """Where MLflow holds the study."""

    tracking_uri: str
    """Address of the store."""
    experiment: str
    """Name of the experiment."""
    run_name: str
    """Name of the study's run."""
    num_designs: int
    """Designs in the study's design table: all that were evaluated."""
    num_design_runs: int
    """Designs that have a run of their own."""
    open_with: str
    """Command that opens the store in a browser."""
    run_id: str = Field(default="", exclude=True)
    """Id of the study's run; not part of the JSON, because MLflow draws it at random."""


class Recommendation(Record):
    """The answer to a job."""

    schema_version: int = 1
    """Of this form; it rises when a field goes or changes its meaning."""
    capplan_version: str
    """Version that answered."""
    catalog_hash: str
    """Content of the catalogue that was used."""
    job: str
    """Name of the job."""
    seed: int
    """Seed of search and replays."""
    created_at: str
    """When the answer was given, UTC."""
    status: Status
    """`recommended`, `infeasible` (proven), or `interrupted` (best of what was evaluated until then)."""
    recommendation: Design | None
    """The recommended design; null where there is none."""
    why: tuple[str, ...]
    """Reasons in numbers."""
    uncertainty: Uncertainty | None
    """How sure the recommended figures are."""
    objectives: tuple[str, ...]
    """What was made small."""
    front: tuple[Design, ...]
    """The Pareto front, by rising first objective: no design beats another in every objective. One that gains less than
    0.1 % in every objective over another is left out."""
    rejected: tuple[Rejection, ...]
    """What kept designs out."""
    num_evaluated: int
    """Designs that the search simulated, all of which are in MLflow; those of a proof that nothing keeps the limits are not
    counted."""
    num_feasible: int
    """Designs that keep every limit."""
    algorithm: str
    """How the space was searched."""
    infeasibility: Infeasibility | None
    """Why there is no design, where there is none."""
    carbon_scope: str = ""
    """What the figures of carbon count, and what they leave out."""
    best_of_each: tuple[Best, ...] = ()
    """The design with the least of each objective, why it has it, and what it gives up; in the order of `objectives`."""
    input_uncertainty: InputUncertainty | None = None
    """What survives unsure times, prices, grids and footprints."""
    what_if: tuple[WhatIfCase, ...] = ()
    """The recommended design under the other circumstances that the job asks for."""
    mlflow: MlflowRecord | None
    """Where the study is recorded; null when recording was turned off."""
    warnings: tuple[str, ...] = ()
    """What the reader should know about the job or the data."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows an answer in a few lines, as notebooks do with the last value of a cell; `model_dump()` has every field."""
        return [
            ("job", self.job),
            ("seed", self.seed),
            ("status", self.status),
            ("recommendation", self.recommendation),
            ("num_front", len(self.front)),
        ]

    @property
    def best(self) -> Design | None:
        """The recommended design."""
        return self.recommendation

    @property
    def mlflow_run_id(self) -> str:
        """Id of the study's MLflow run; empty without a record."""
        return self.mlflow.run_id if self.mlflow else ""
