"""What is asked for when several jobs share a purchase? The fleet file: jobs with windows, offers to buy, reserve and rent.

load_fleet("fleet.yaml")      docs/purchase.md lists the fields
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from planner.input.record_input import Filed, read_record
from simulator.domain.options import MOST_PURCHASE_USD_PER_NODE, MOST_RENT_USD_PER_GPU_HOUR
from simulator.record import Record

MOST_DAYS = 3660.0
"""Ten years: prices further ahead are not known."""


class Buy(Record):
    """Nodes that can be bought."""

    usd_per_node: float = Field(gt=0, le=MOST_PURCHASE_USD_PER_NODE)
    """Price of a node, network and installation not included."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Nodes that can be had in all."""
    first_delivery_day: NonNegativeFloat = 0.0
    """Day from which nodes can be there."""
    delivery_every_days: PositiveFloat = 30.0
    """Days between the days on which nodes can come."""
    max_lots: PositiveInt = Field(default=1, le=1000)
    """Deliveries at most."""


class Reserve(Record):
    """Nodes that can be rented for a term, used or not."""

    usd_per_gpu_hour: float = Field(gt=0, le=MOST_RENT_USD_PER_GPU_HOUR)
    """Rent for every hour of the term, power included."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Nodes that can be had in all."""
    term_days: PositiveFloat
    """Days that have to be paid for."""
    first_start_day: NonNegativeFloat = 0.0
    """First day on which a term can begin."""
    start_every_days: PositiveFloat = 30.0
    """Days between the days on which a term can begin."""
    max_terms: PositiveInt = Field(default=1, le=1000)
    """Terms with different beginnings at most."""


class Rent(Record):
    """Nodes that can be rented while a job runs."""

    usd_per_gpu_hour: float = Field(gt=0, le=MOST_RENT_USD_PER_GPU_HOUR)
    """Rent, power included."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Nodes that can be had at once."""


class FleetOffer(Record):
    """One kind of accelerator and how it can be had."""

    accelerator: str
    """Catalogue name."""
    node: object = None
    """Node as in a job file; left out: the usual one."""
    fabric: object = None
    """Network as in a job file; left out: the usual one."""
    buy: Buy | None = None
    """Terms of a purchase; left out: not on sale."""
    reserve: Reserve | None = None
    """Terms of a reservation; left out: none."""
    rent: Rent | None = None
    """Terms of rent on demand; left out: none."""

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if not (self.buy or self.reserve or self.rent):
            raise ValueError("give at least one of buy, reserve and rent")
        return self

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest cluster that one job can have."""
        return max(terms.max_nodes for terms in (self.buy, self.reserve, self.rent) if terms)


class FleetJob(Record):
    """One training run and when it may run."""

    name: str = Field(min_length=1, max_length=100)
    """Name in the answer."""
    job: str | dict[str, object]
    """A job as in a job file, or the path of one, relative to this file. Its offers and site are replaced by the fleet's,
    its objectives by time, cost and energy; its limits hold for its own run, but for its budget."""
    earliest_start_day: NonNegativeFloat = 0.0
    """Day before which it cannot start."""
    deadline_day: PositiveFloat
    """Day on which it must have ended."""

    @model_validator(mode="after")
    def _has_a_window(self) -> Self:
        if self.earliest_start_day >= self.deadline_day:
            raise ValueError(
                f"earliest_start_day ({self.earliest_start_day:g}) must be before deadline_day ({self.deadline_day:g})"
            )
        return self


class FleetLimits(Record):
    """What the whole plan must not exceed; what is left out is unlimited."""

    budget_usd: PositiveFloat | None = None
    """Cost of everything within the horizon."""
    capital_usd: PositiveFloat | None = None
    """Money that all purchases take: nodes, network and installation."""
    power_w: PositiveFloat | None = None
    """Facility power of what is bought, running or idle."""


class Fleet(Filed):
    """Several training runs, and what can be bought, reserved and rented for them."""

    name: str = Field(default="fleet", min_length=1, max_length=100)
    """Name in the answer; a file without one lends its own name."""
    horizon_days: float = Field(default=365.0, gt=0, le=MOST_DAYS)
    """Days that are planned; bought nodes cost from their delivery to this day, used or not."""
    site: object
    """Where bought nodes stand, as in a job file."""
    ownership: dict[str, object] = Field(default={})
    """Terms of ownership as in a job file; every hour from delivery on is counted, so that utilization_fraction is 1, but for
    the making of rented nodes, whose owners let them stand idle at times."""
    offers: tuple[FleetOffer, ...] = Field(min_length=1, max_length=20)
    """What can be had."""
    jobs: tuple[FleetJob, ...] = Field(min_length=1, max_length=50)
    """What has to be trained."""
    limits: FleetLimits = FleetLimits()
    """What the whole plan must not exceed."""

    @model_validator(mode="after")
    def _fits_the_horizon(self) -> Self:
        for job in self.jobs:
            if job.deadline_day > self.horizon_days:
                raise ValueError(
                    f"deadline_day of {job.name} ({job.deadline_day:g}) must be at most horizon_days "
                    f"({self.horizon_days:g})"
                )
        names = [job.name for job in self.jobs]
        if len(set(names)) < len(names):
            raise ValueError("jobs must have different names")
        return self

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a fleet in a few lines, as notebooks do with the last value of a cell; `model_dump()` has every field."""
        return [
            ("name", self.name),
            ("horizon_days", self.horizon_days),
            ("offers", [offer.accelerator for offer in self.offers]),
            ("num_jobs", len(self.jobs)),
            ("limits", self.limits),
        ]


def load_fleet(path: str | Path) -> Fleet:
    """Returns the fleet in a YAML, JSON or TOML file.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    return read_record(Fleet, path, least="jobs, offers and site")
