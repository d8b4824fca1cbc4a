"""What does an answer contain? The recommendation, the front and the reasons, as values to print, serialise and compare.

`Recommendation.model_dump_json()` is what `capplan recommend --json` prints. Only `created_at` and
`mlflow.run_id` differ between two runs of the same job, version and seed; the JSON leaves `run_id` out.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.recommended.comparisons import Best, InputUncertainty, OtherChoice, WhatIfCase
from simulator.accuracy.published_runs import PUBLISHED_RUNS
from simulator.domain.plan import Plan
from simulator.record import Record

Status = Literal["recommended", "infeasible", "interrupted"]


class Spread(Record):
    """Distribution of a figure over many replays of failures, restarts and stragglers."""

    mean: float | None
    """Mean of the replays; null if any replay never ends."""
    p5: float | None
    """5th percentile of the replays; null if that replay never ends."""
    p50: float | None
    """Median."""
    p95: float | None
    """95th percentile of the replays; null if that replay never ends."""


class Design(Record):
    """One simulated design with all its figures."""

    design_id: int
    """Row of the design table in MLflow (folder `designs`)."""
    accelerator: str
    """Catalogue name of the accelerator."""
    node: str
    """Catalogue name of the node."""
    num_nodes: int
    """Training nodes, without spares."""
    region: str = ""
    """Region of the nodes."""
    framework: str = ""
    """Framework whose habits the job takes (`workload.framework`); empty where it names none."""
    global_batch_size: int | None = None
    """Sequences per optimizer step, by all replicas together; null in answers that do not hold it."""
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
    """Values of the objectives by name, in the order of the job: SI units, USD and probabilities."""
    peak_power_w: float
    """Peak power of the facility."""
    step_time_s: float
    """One optimizer step without stragglers."""
    iteration_time_s: float
    """One optimizer step within the run: with the stragglers of the fleet, without saves and failures."""
    mfu_fraction: float
    """Model FLOPs utilisation of a step."""
    goodput_fraction: float
    """Share of the wall time in which productive steps run at full speed."""
    num_failures: float
    """Expected failures."""
    memory_bytes: dict[str, float]
    """Memory of the most loaded accelerator by component."""
    peak_memory_bytes: float
    """Sum of the components."""
    memory_capacity_bytes: float
    """Memory of one accelerator."""
    checkpoint_interval_s: float | None
    """Training time between two saves; null without checkpoints."""
    step_seconds: dict[str, float]
    """Breakdown of one step; sums to `step_time_s`."""
    run_seconds: dict[str, float]
    """Breakdown of the run; sums to the wall time."""
    badput_seconds: dict[str, float]
    """All but the productive part, by the categories of Google's goodput accounts (arXiv 2502.06982) and three more."""
    cost_parts_usd: dict[str, float]
    """Cost by part."""
    energy_parts_kwh: dict[str, float]
    """Energy by phase."""
    carbon_parts_kgco2e: dict[str, float]
    """Operational carbon, and the embodied parts within the job's scope."""
    water_scope: str = ""
    """Which water `water_l` of the metrics includes, and which is missing because the site's figures are unknown."""
    metrics: dict[str, float | None] = Field(default={})
    """Figures of merit (`objectives.metrics`); null if a price or a factor is unknown, or if owning never pays off."""
    buying_pays: bool | None = None
    """Whether buying instead of renting pays off, interest included, within the life of the nodes, after the
    `break_even_months` of `metrics`; false: never; null if a price is unknown."""
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
    """Uncertainty of the recommended figures."""

    num_replays: int
    """Replayed runs."""
    time_to_train_days: Spread
    """Spread due to failures and stragglers."""
    cost_usd: Spread
    """Spread of the cost at the middle price."""
    goodput_fraction: Spread
    """Spread of the share of the wall time in which productive steps run at full speed."""
    deadline_probability: float | None = None
    """Share of the replays that meet the deadline; null without one."""
    budget_probability: float | None = None
    """Share of the replays that meet the budget; null without one."""
    step_time_error_fraction: float
    """Mean absolute error of simulated step times on measured runs (docs/validation.md)."""
    step_time_low_s: float
    """Lower end of the 80 % interval of a measured step time, on sources not seen before."""
    step_time_high_s: float
    """Upper end of that interval."""
    step_time_bias_fraction: float
    """Mean signed error: negative if steps were simulated too fast."""
    is_step_time_measured: bool
    """Whether runs of the same kind (architecture, number format, dense or experts) were compared; otherwise the two
    figures above are those of the least accurate kind."""
    step_time_num_compared: int = 0
    """Configurations of this kind that were compared; fewer than ten correct nothing. 0: unknown."""
    step_time_compared_with: str = PUBLISHED_RUNS
    """The measured runs: published ones, or those of the job's calibration."""
    are_kernels_scaled: bool = False
    """Whether no kernel of this architecture was measured, so that its efficiencies are those of Hopper, scaled; false with a
    calibration of the accelerator, and in answers that do not hold it."""
    tied_designs: tuple[int, ...] = ()
    """Designs of the front that are indistinguishable from the recommended one: in no objective is either lower in nine of
    ten draws of all uncertain inputs. Common errors cancel, such as the step error of equal layouts."""


class Rejection(Record):
    """How many designs one constraint excluded."""

    constraint: str
    """Name of the limit or rule."""
    rule: str
    """The rule, with the limit of the job."""
    num_before_simulation: int
    """Designs excluded by a bound, without simulation."""
    num_after_simulation: int
    """Simulated designs that violate it; one design may violate several constraints."""


class Relaxation(Record):
    """A change that would make the job feasible."""

    limits: dict[str, float]
    """Limits to change, with the smallest values that work; all other limits stay the same."""
    example: Design
    """A design that meets these limits."""


class Infeasibility(Record):
    """Why no design can satisfy the limits."""

    conflict: tuple[str, ...]
    """Limits that cause it: those of one conflict if changing one limit helps, otherwise those of all `conflicts`. Layout
    rules, `memory`, `host_memory` or `progress` if no limit is the cause."""
    conflicts: tuple[tuple[str, ...], ...] = ()
    """Minimal conflicts: limits that no design meets together, while without any one of them some design meets the others
    of that conflict. One conflict if changing one limit helps, otherwise all; none if no limit is the cause."""
    resolutions: tuple[dict[str, float], ...] = ()
    """For each conflict, the smallest value of each of its limits that resolves it while the others stay. Another conflict
    may remain, so only `relaxations` are certain to help."""
    reasons: tuple[str, ...]
    """The conflicts and what resolves them, in sentences."""
    proof: str
    """How infeasibility was proven."""
    relaxations: tuple[Relaxation, ...]
    """Smallest changes that help, best first."""


class MlflowRecord(Record):
    """Record of the study in MLflow."""

    tracking_uri: str
    """Address of the store."""
    experiment: str
    """Name of the experiment."""
    run_name: str
    """Name of the study's run."""
    num_designs: int
    """Designs in the study's design table: all that were evaluated."""
    num_design_runs: int
    """Designs that have their own run."""
    open_with: str
    """Command that opens the store in a browser."""
    run_id: str = Field(default="", exclude=True)
    """Id of the study's run; not part of the JSON, because MLflow draws it at random."""


class Recommendation(Record):
    """The answer to a job."""

    schema_version: Literal[1] = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that answered."""
    catalog_hash: str
    """Content of the catalogue that was used."""
    job: str
    """Name of the job."""
    job_hash: str = ""
    """Hash of the job with every name resolved, as in MLflow; empty in answers of older versions."""
    seed: int
    """Seed of search and replays."""
    created_at: str
    """When the answer was given, UTC."""
    status: Status
    """`recommended`, `infeasible` (proven), or `interrupted` (best of what was evaluated until then)."""
    recommendation: Design | None
    """The recommended design; null where there is none."""
    why: tuple[str, ...]
    """Reasons for the recommendation, with numbers."""
    uncertainty: Uncertainty | None
    """Uncertainty of the recommended figures."""
    objectives: tuple[str, ...]
    """The objectives, which are minimized."""
    front: tuple[Design, ...]
    """The Pareto front, ordered by the first objective: no design beats another in every objective. A design that gains
    less than 0.1 % over another in every objective is left out."""
    rejected: tuple[Rejection, ...]
    """Constraints that excluded designs."""
    num_evaluated: int
    """Designs that the search simulated, all of which are in MLflow; designs simulated for a proof of infeasibility are not
    counted."""
    num_feasible: int
    """Designs that meet every limit; where the job sets none, designs that fit the memory and end."""
    has_limits: bool = True
    """Whether the job sets any limit; true in answers of older versions."""
    algorithm: str
    """How the space was searched."""
    infeasibility: Infeasibility | None
    """Why no design is feasible, if so."""
    carbon_scope: str = ""
    """What the carbon figures include and exclude."""
    regions: tuple[str, ...] = ()
    """Regions of the offers, each once; empty in answers of older versions."""
    best_of_each: tuple[Best, ...] = ()
    """The best design for each objective, the reasons, and what is worse; in the order of `objectives`."""
    other_choices: tuple[OtherChoice, ...] = ()
    """What other values of each choice would cost on the accelerators of the recommended design, the best value first.
    Everything else is free; in a space of more than 100,000 layouts up to three other choices are. The checkpoint scheme is
    the recommended one if the choice is another one and the layout can have it. None after an interrupted search."""
    input_uncertainty: InputUncertainty | None = None
    """Results over draws of the uncertain inputs: times, prices, grids and footprints."""
    what_if: tuple[WhatIfCase, ...] = ()
    """The recommended design in the what-if cases of the job."""
    mlflow: MlflowRecord | None
    """Where the study is recorded; null if recording was turned off."""
    warnings: tuple[str, ...] = ()
    """Notes on the job or the data."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows an answer in a few lines, for example in notebooks; `model_dump()` has every field."""
        return [
            ("job", self.job),
            ("seed", self.seed),
            ("status", self.status),
            ("recommendation", self.recommendation),
            ("num_front", len(self.front)),
        ]

    @property
    def best(self) -> Design | None:
        """The recommended design: a short name for `recommendation`, as which it is printed and written."""
        return self.recommendation

    def recommends(self, design_id: int) -> bool:
        """Returns whether a design of the front is the recommended one."""
        return self.recommendation is not None and self.recommendation.design_id == design_id

    def ties(self, design_id: int) -> bool:
        """Returns whether a design of the front is indistinguishable from the recommended one."""
        return self.uncertainty is not None and design_id in self.uncertainty.tied_designs

    @property
    def mlflow_run_id(self) -> str:
        """Id of the study's MLflow run; empty without a record."""
        return self.mlflow.run_id if self.mlflow else ""
