"""What does a purchase plan say? What to have from when, which job runs when on what, and what it costs, as values.

`PurchasePlan.model_dump_json()` is what `capplan purchase --json` prints.
"""

from __future__ import annotations

from typing import Literal

from simulator.domain.plan import Plan
from simulator.record import Record

PlanStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


class Acquisition(Record):
    """Nodes that are bought or reserved together."""

    kind: Literal["bought", "reserved"]
    """How they are had."""
    accelerator: str
    """Catalogue name."""
    num_nodes: int
    """Nodes."""
    num_gpus: int
    """Accelerators in the nodes."""
    from_day: float
    """Day from which they are there."""
    to_day: float
    """Day to which they are paid: the end of the term, or of the horizon."""
    cost_usd: float
    """What having them costs, used or not, but for staff: interest, depreciation, maintenance, building and idle power, or
    rent."""
    capital_usd: float
    """What has to be paid at once; 0 for reservations."""
    carbon_kgco2e: float
    """Greenhouse gases of having them, used or not: their share of the making, and the electricity of idle nodes."""
    used_fraction: float
    """Share of their node-hours within the horizon in which jobs run."""


class ScheduledRun(Record):
    """One job with its design, its place and its time."""

    job: str
    """Name of the job."""
    kind: Literal["bought", "reserved", "rented"]
    """On which nodes it runs."""
    accelerator: str
    """Catalogue name."""
    num_nodes: int
    """Nodes that it holds, spares too."""
    num_gpus: int
    """Accelerators in the nodes that it holds."""
    start_day: float
    """First day."""
    end_day: float
    """Last day, by the expected length of the run in whole hours."""
    deadline_day: float
    """Day on which it must have ended."""
    cost_usd: float
    """What the run alone costs: rent, or electricity above that of idle nodes; and storage that is bought for it."""
    energy_kwh: float
    """Energy of the facility."""
    carbon_kgco2e: float
    """Greenhouse gases of the run alone: on rented nodes as for the job alone at the fleet's site; on others those of
    electricity above that of idle nodes, of storage, and of replaced accelerators."""
    plan: Plan
    """How it is laid out; `offer` is always 0."""


class BindingRule(Record):
    """A constraint without which the plan would cost less."""

    constraint: str
    """Its name, as `capplan explain` lists it."""
    subject: str
    """The job or the offer that it is about; empty where it is about all."""
    saving_usd: float
    """By how much the plan would cost less at least without it."""


class PurchasePlan(Record):
    """What to buy, reserve and rent for several jobs, and when they run."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    capplan_version: str
    """Version that planned."""
    catalog_hash: str
    """Content of the catalogue that was used."""
    fleet: str
    """Name of the fleet."""
    seed: int
    """Seed of the searches for designs."""
    status: PlanStatus
    """`optimal`: proven to cost least of all plans over the designs that were considered; `feasible`: the best that was
    found; `infeasible`: proven that there is none; `unknown`: none was found with this effort."""
    cost_usd: float | None
    """Cost of everything within the horizon; null without a plan."""
    bound_usd: float
    """Proven: no plan costs less."""
    gap_fraction: float | None
    """By which share of its cost the plan may be above the cheapest one; 0 where it is proven."""
    capital_usd: float
    """What purchases take at once."""
    staff_usd: float = 0.0
    """Staff for all that is bought, from the first delivery to the end of the horizon."""
    peak_power_w: float
    """Most that what is bought draws."""
    carbon_kgco2e: float
    """Greenhouse gases of all acquisitions and runs."""
    acquisitions: tuple[Acquisition, ...]
    """What to buy and to reserve, by day."""
    runs: tuple[ScheduledRun, ...]
    """Which job runs when on what, in the order of the fleet."""
    all_rent_usd: float | None
    """The least found with rent on demand alone, whatever the budget; null where none keeps the deadlines, or where it is
    `undecided` whether one does."""
    all_buy_usd: float | None
    """The least found with purchases alone, whatever the budget and the capital; null as with rent alone."""
    binding: tuple[BindingRule, ...]
    """Constraints without which the plan would cost less, the dearest first; only those for which this is proven."""
    conflict: tuple[str, ...]
    """Where there is no plan: constraints that cannot be kept together, while without any one of them there is a plan for
    the others, as `constraint: subject`; or `no design: job` for jobs that no offer can run at all (`capplan explain`)."""
    undecided: tuple[str, ...] = ()
    """What the effort did not suffice for: `all_rent_usd` and `all_buy_usd` that are null without a proof, and constraints of
    `conflict` without which no plan was found, though none is proven to be missing."""
    num_designs: dict[str, int]
    """Designs of each job that were considered, over all offers; those of them that a limit rules out count, too."""
    notes: tuple[str, ...] = ()
    """What of the fleet the plan leaves aside, or may read otherwise than meant: budgets of single jobs, offers that come
    after the last deadline, accelerators that stand in several offers, runs that end just before their deadlines."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a plan in a few lines, as notebooks do with the last value of a cell; `model_dump()` has every field."""
        return [
            ("fleet", self.fleet),
            ("status", self.status),
            ("cost_usd", self.cost_usd),
            ("bound_usd", self.bound_usd),
            ("capital_usd", self.capital_usd),
            ("carbon_kgco2e", self.carbon_kgco2e),
            ("num_acquisitions", len(self.acquisitions)),
            ("num_runs", len(self.runs)),
            ("num_conflicting", len(self.conflict)),
        ]
