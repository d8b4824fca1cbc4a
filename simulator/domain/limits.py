"""What must a design not exceed? Money, time, power, accelerators, carbon."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from simulator.record import Record


class Limits(Record):
    """What a design must not exceed; limits that are left out do not apply."""

    budget_usd: PositiveFloat | None = None
    """Money for the whole run; for purchases only the share that the run uses up, not the price."""
    deadline_days: PositiveFloat | None = None
    """Time from start to end of the run."""
    power_w: PositiveFloat | None = None
    """Peak power of the facility, including cooling."""
    hall_power_w: PositiveFloat | None = None
    """Peak IT power of the hall that holds the whole cluster, without cooling."""
    rack_power_w: PositiveFloat | None = None
    """Peak IT power of the nodes of a rack (`nodes_per_rack`), without its switches."""
    power_swing_w: PositiveFloat | None = None
    """Largest step change of facility power: from computing to standing still, as at a failure, in the warmest hour."""
    power_ramp_w_per_s: PositiveFloat | None = None
    """Fastest change of facility power: that swing over `operation.power_ramp_s`."""
    power_range_fraction: float | None = Field(default=None, gt=0, le=1)
    """Largest such change as a share of the peak (dynamic range)."""
    num_gpus: PositiveInt | None = None
    """Accelerators that train, without spares."""
    carbon_kgco2e: PositiveFloat | None = None
    """Greenhouse gases of the run, operational and embodied."""
    deadline_probability: float | None = Field(default=None, ge=0.5, le=0.999)
    """Probability with which the deadline must be kept; left out: the expected time must keep it."""
    budget_probability: float | None = Field(default=None, ge=0.5, le=0.999)
    """Probability with which the budget must be kept; left out: the expected cost must keep it."""

    @model_validator(mode="after")
    def _probabilities_have_limits(self) -> Self:
        if self.deadline_probability is not None and self.deadline_days is None:
            raise ValueError("deadline_probability needs deadline_days")
        if self.budget_probability is not None and self.budget_usd is None:
            raise ValueError("budget_probability needs budget_usd")
        return self
