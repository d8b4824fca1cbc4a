"""What does a fleet file contain? Jobs with time windows, and offers to buy, reserve and rent for them.

load_fleet("fleet.yaml")      docs/purchase.md lists the fields
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from planner.input.arguments import path_given
from planner.input.plain import plain_copy
from planner.input.problems import Findings
from planner.input.record_input import Filed, name_of, read_mapping, validated
from planner.input.schema import model_at
from planner.job.overrides import with_overrides
from simulator.domain.options import MOST_PURCHASE_USD_PER_NODE, MOST_RENT_USD_PER_GPU_HOUR
from simulator.record import Record

MOST_DAYS = 3660.0
"""Ten years, because later prices are unknown."""
MOST_STARTS = 400
"""Most days on which nodes of an offer can come: every day of a year. More would take the solver hours."""
MOST_LIMIT = 1e15
"""Largest limit in USD or W; the solver counts in whole numbers below 2^63."""
Limit = Annotated[float, Field(gt=0, le=MOST_LIMIT)]


class Buy(Record):
    """Nodes that can be bought."""

    usd_per_node: float = Field(gt=0, le=MOST_PURCHASE_USD_PER_NODE)
    """Price of a node, without network and installation."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Total number of available nodes."""
    first_delivery_day: NonNegativeFloat = 0.0
    """First day on which nodes can be delivered."""
    delivery_every_days: PositiveFloat = 30.0
    """Days between possible deliveries; at most 400 may lie within the horizon."""
    max_lots: PositiveInt = Field(default=1, le=1000)
    """Most deliveries."""

    @property
    def starts(self) -> tuple[float, float]:
        """First day on which nodes can come, and days from one such day to the next."""
        return self.first_delivery_day, self.delivery_every_days


class Reserve(Record):
    """Nodes that can be rented for a term, used or not."""

    usd_per_gpu_hour: float = Field(gt=0, le=MOST_RENT_USD_PER_GPU_HOUR)
    """Rent for every hour of the term, power included."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Nodes available at the same time; those of a term that has ended can be reserved again."""
    term_days: float = Field(gt=0, le=MOST_DAYS)
    """Length of a term in days, which is paid in full."""
    first_start_day: NonNegativeFloat = 0.0
    """First day on which a term can start."""
    start_every_days: PositiveFloat = 30.0
    """Days between possible starts of a term; at most 400 may lie within the horizon."""
    max_terms: PositiveInt = Field(default=1, le=1000)
    """Most terms with different starts."""

    @property
    def starts(self) -> tuple[float, float]:
        """First day on which a term can start, and days from one such day to the next."""
        return self.first_start_day, self.start_every_days


class Rent(Record):
    """Nodes that can be rented while a job runs."""

    usd_per_gpu_hour: float = Field(gt=0, le=MOST_RENT_USD_PER_GPU_HOUR)
    """Rent, power included."""
    max_nodes: PositiveInt = Field(le=100_000)
    """Nodes available at the same time."""
    interruptions_per_1000_node_days: float = Field(default=0.0, ge=0, le=10_000)
    """How often the landlord takes nodes back, as with spot prices; each time the run restarts without that node. Needs an
    offer of its own, without `buy` and `reserve`."""


class FleetOffer(Record):
    """One kind of accelerator, and the terms on which it is available."""

    accelerator: str
    """Catalogue name."""
    node: object = None
    """Node as in a job file; default: the usual one."""
    fabric: object = None
    """Network as in a job file; default: the usual one."""
    buy: Buy | None = None
    """Terms of a purchase; default: not for sale."""
    reserve: Reserve | None = None
    """Terms of a reservation; default: none."""
    rent: Rent | None = None
    """Terms of rent for as long as a job runs; default: none."""

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if not (self.buy or self.reserve or self.rent):
            raise ValueError("give at least one of buy, reserve and rent")
        if self.interruptions_per_1000_node_days and (self.buy or self.reserve):
            raise ValueError(
                "rent.interruptions_per_1000_node_days must stand in an offer without buy and reserve: repeat the accelerator "
                "in another offer"
            )
        return self

    @property
    def interruptions_per_1000_node_days(self) -> float:
        """How often a landlord takes nodes back."""
        return self.rent.interruptions_per_1000_node_days if self.rent else 0.0

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest cluster for one job."""
        return max(terms.max_nodes for terms in (self.buy, self.reserve, self.rent) if terms)

    def runs_like(self, other: FleetOffer) -> bool:
        """Returns whether every job has the same designs on another offer, such as one with other prices."""
        mine, others = (
            (one.accelerator, one.node, one.fabric, one.interruptions_per_1000_node_days, one.max_nodes)
            for one in (self, other)
        )
        return mine == others


class FleetJob(Record):
    """One training run and when it may run."""

    name: str = Field(min_length=1, max_length=100)
    """Name in the answer."""
    job: str | dict[str, object]
    """A job as in a job file, or the path of one, relative to this file. Its offers, site and ownership are replaced by the
    fleet's, its objectives by time, cost and energy; its limits hold for its own run, but for its budget. The carbon_scope of
    the first job is that of nodes that are bought or reserved."""
    earliest_start_day: NonNegativeFloat = 0.0
    """Day before which it cannot start."""
    deadline_day: PositiveFloat
    """Day by which it must end."""

    @model_validator(mode="after")
    def _has_a_window(self) -> Self:
        if self.earliest_start_day >= self.deadline_day:
            raise ValueError(
                f"earliest_start_day ({self.earliest_start_day:g}) must be before deadline_day ({self.deadline_day:g})"
            )
        return self


class FleetLimits(Record):
    """Limits of the whole plan; omitted ones do not apply."""

    budget_usd: Limit | None = None
    """Cost of everything within the horizon."""
    capital_usd: Limit | None = None
    """Capital for all purchases: nodes, network and installation."""
    power_w: Limit | None = None
    """Facility power of all bought nodes, running or idle, with cooling: IT power of the hall times its PUE."""


class Fleet(Filed):
    """Several training runs, and what can be bought, reserved and rented for them."""

    name: str = Field(default="fleet", min_length=1, max_length=100)
    """Name in the answer; default: the name of the file."""
    horizon_days: float = Field(default=365.0, gt=0, le=MOST_DAYS)
    """Planning horizon in days; bought nodes cost from their delivery to this day, used or not."""
    site: object
    """Site of bought nodes, as in a job file."""
    ownership: dict[str, object] = Field(default={})
    """Terms of ownership as in a job file. Every hour from delivery counts, so utilization_fraction is 1, except for the
    embodied carbon of rented nodes, which their owners leave idle at times."""
    offers: tuple[FleetOffer, ...] = Field(min_length=1, max_length=20)
    """Offers."""
    jobs: tuple[FleetJob, ...] = Field(min_length=1, max_length=50)
    """Jobs to train."""
    limits: FleetLimits = FleetLimits()
    """Limits of the whole plan."""

    @model_validator(mode="after")
    def _fits_the_horizon(self) -> Self:
        for job in self.jobs:
            if job.deadline_day > self.horizon_days:
                raise ValueError(
                    f"deadline_day of {job.name} ({job.deadline_day:g}) must be at most horizon_days "
                    f"({self.horizon_days:g})"
                )
        names = [job.name for job in self.jobs]
        if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"jobs must have different names; more than one has {', '.join(repeated)}")
        return self

    @model_validator(mode="after")
    def _starts_can_be_counted(self) -> Self:
        for index, offer in enumerate(self.offers):
            for field, terms in (("buy.delivery", offer.buy), ("reserve.start", offer.reserve)):
                if terms and (self.horizon_days - terms.starts[0]) / terms.starts[1] > MOST_STARTS:
                    raise ValueError(
                        f"offers[{index}].{field}_every_days ({terms.starts[1]:g}) must leave at most {MOST_STARTS} days "
                        f"within horizon_days ({self.horizon_days:g}) on which nodes can come"
                    )
        return self

    def start_days(self, terms: Buy | Reserve) -> list[float]:
        """Returns the days within the horizon on which nodes can come."""
        first, every = terms.starts
        count = max(0, ceil((self.horizon_days - first) / every))
        return [first + number * every for number in range(count)]

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a fleet in a few lines, for example in notebooks; `model_dump()` has every field."""
        return [
            ("name", self.name),
            ("horizon_days", self.horizon_days),
            ("offers", [offer.accelerator for offer in self.offers]),
            ("num_jobs", len(self.jobs)),
            ("limits", self.limits),
        ]


def load_fleet(path: str | Path, overrides: Sequence[str] = ()) -> Fleet:
    """Returns the fleet in a YAML, JSON or TOML file.

    Args:
        path: the file.
        overrides: values that replace those of the file, such as `limits.capital_usd=4e6`; later ones win.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    file, findings = path_given(path), Findings(partial(model_at, root=Fleet))
    written = {"name": name_of(file), **read_mapping(file, least="jobs, offers and site")}
    document = with_overrides(written, overrides, findings)
    return validated(Fleet, plain_copy(document, findings), findings, str(file)).read_in(file.parent)
