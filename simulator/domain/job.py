"""What is asked for? The job: a workload, the hardware on offer, limits, objectives and where to search."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, model_validator

from simulator.domain.calibration import Calibration
from simulator.domain.checkpointing import Checkpointing
from simulator.domain.hardware import Site, Storage
from simulator.domain.limits import Limits
from simulator.domain.offer import Offer
from simulator.domain.options import CarbonScope, InputFactors, Operation, WhatIf
from simulator.domain.ownership import Ownership
from simulator.domain.reliability import Reliability
from simulator.domain.search_options import LOWEST_POWER_CAP, Search
from simulator.domain.workload import Workload
from simulator.record import Choice, Record


class Objective(Choice):
    """Quantities to minimise."""

    TIME = "time_to_train"
    COST = "cost"
    ENERGY = "energy"
    CARBON = "carbon"
    TIME_P95 = "time_to_train_p95"
    """Time that 19 of 20 runs do not exceed."""
    COST_P95 = "cost_p95"
    """Cost that 19 of 20 runs do not exceed, through their duration."""
    DEADLINE_RISK = "deadline_risk"
    """Probability of missing the deadline, which the job must then set."""
    BUDGET_RISK = "budget_risk"
    """Probability of exceeding the budget, which the job must then set."""

    @property
    def is_risk(self) -> bool:
        """Whether it is a probability, of which ratios say little."""
        return self in _LIMIT_OF_RISK


_LIMIT_OF_RISK = {Objective.DEADLINE_RISK: "deadline_days", Objective.BUDGET_RISK: "budget_usd"}


class Job(Record):
    """The whole question, with all names resolved to figures."""

    name: str = Field(min_length=1, max_length=100)
    """Name of the job in reports and in MLflow."""
    workload: Workload
    """What is trained."""
    offers: tuple[Offer, ...] = Field(min_length=1, max_length=100)
    """Accelerators on offer."""
    storage: Storage = Storage()
    """Where checkpoints go."""
    checkpointing: Checkpointing = Checkpointing()
    """How they are made."""
    site: Site
    """Where it runs."""
    ownership: Ownership = Ownership()
    """Terms for offers that are bought; also how embodied carbon is spread over a lifetime."""
    carbon_scope: CarbonScope = CarbonScope()
    """Parts of making the cluster that are counted."""
    operation: Operation = Operation()
    """How the cluster is run."""
    input_factors: InputFactors = InputFactors()
    """Uncertainty of the inputs of cost, energy and carbon."""
    what_if: WhatIf = WhatIf()
    """Alternatives that the answer compares with the recommended design."""
    limits: Limits = Limits()
    """What a design must not exceed."""
    objectives: tuple[Objective, ...] = (Objective.TIME, Objective.COST, Objective.CARBON)
    """Quantities to minimise."""
    preference: dict[Objective, PositiveFloat] = Field(default={})
    """Weight of each objective in the recommendation; left out: 1."""
    reliability: Reliability
    """Failures, restarts and stragglers."""
    search: Search = Search()
    """Where and how long to search."""
    calibration: Calibration | None = None
    """Constants measured on the cluster itself, which replace published ones."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a job in a few lines, as notebooks do with the last value of a cell; `model_dump()` has every field."""
        workload = self.workload
        return [
            ("name", self.name),
            ("model", workload.model.name),
            ("tokens", workload.tokens),
            ("global_batch_size", workload.global_batch_size),
            ("accelerators", [offer.accelerator.id for offer in self.offers]),
            ("site", self.site.region),
            ("limits", self.limits.model_dump(exclude_none=True)),
            ("objectives", [objective.value for objective in self.objectives]),
        ]

    @property
    def power_caps(self) -> tuple[float, ...]:
        """Power caps that are searched, as shares of the TDP."""
        if self.search.power_caps:
            return self.search.power_caps
        limits = self.limits
        powers = (limits.power_w, limits.hall_power_w, limits.rack_power_w)
        changes = (limits.power_swing_w, limits.power_ramp_w_per_s, limits.power_range_fraction)
        is_needed = any(limit is not None for limit in (*powers, *changes, limits.carbon_kgco2e))
        lowest = self.lowest_power_cap
        return tuple(dict.fromkeys((1.0, max(0.8, lowest), lowest))) if is_needed else (1.0,)

    @property
    def lowest_power_cap(self) -> float:
        """The lowest power cap where the search names none: `LOWEST_POWER_CAP`, or the floor of filler work above it."""
        return max(LOWEST_POWER_CAP, self.operation.power_floor_fraction)

    @property
    def may_cap_power(self) -> bool:
        """Whether a design may have a power cap: from the search, or from refinement, which tries some if none are given."""
        refines = self.search.power_caps is None and self.search.num_refinements > 0
        return (refines and self.lowest_power_cap < 1.0) or min(self.power_caps) < 1.0

    @property
    def objective_weights(self) -> tuple[float, ...]:
        """Weights of the objectives by `preference`, in their order."""
        return tuple(self.preference.get(objective, 1.0) for objective in self.objectives)

    def site_of(self, offer: Offer) -> Site:
        """Returns the site of an offer's accelerators."""
        return offer.site or self.site

    @model_validator(mode="after")
    def _objectives_have_what_they_need(self) -> Self:
        if not self.objectives or len(set(self.objectives)) != len(self.objectives):
            raise ValueError("objectives must name at least one objective, each once")
        for objective, limit in _LIMIT_OF_RISK.items():
            if objective in self.objectives and getattr(self.limits, limit) is None:
                raise ValueError(f"objectives names {objective}, which needs limits.{limit}")
        extra = set(self.preference) - set(self.objectives)
        if extra:
            raise ValueError(f"preference names {', '.join(sorted(extra))}, not among the objectives")
        return self
