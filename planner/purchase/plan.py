"""What does a purchase plan contain? Acquisitions, the schedule of the jobs, and costs, as values.

`PurchasePlan.model_dump_json()` is what `capplan purchase --json` prints.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from constraints.purchase_model import Status
from constraints.purchase_problem import PoolKind
from simulator.domain.plan import Plan
from simulator.record import Record


class Acquisition(Record):
    """Nodes that are bought or reserved together."""

    kind: Literal["bought", "reserved"]
    """Bought or reserved."""
    offer: int
    """Position of the offer in the fleet, from 0."""
    accelerator: str
    """Catalogue name."""
    num_nodes: int
    """Nodes."""
    num_gpus: int
    """Accelerators in the nodes."""
    from_day: float
    """First day on which they are available."""
    to_day: float
    """Last day that is paid for: the end of the term, or of the horizon."""
    cost_usd: float
    """Cost of holding them, used or not, without staff: interest, depreciation, maintenance, building and idle power, or
    rent."""
    cost_parts_usd: dict[str, float] = Field(default={})
    """The same by part. Bought nodes: `capital_usd` (depreciation and interest of nodes, network and installation),
    `maintenance_usd`, `facility_usd` (building), `electricity_usd` (of idle nodes, with the demand charge); reserved ones:
    `rent_usd`."""
    capital_usd: float
    """Up-front payment; 0 for reservations."""
    left_usd: float = 0.0
    """What of the up-front payment later use or a sale must bring in after the horizon for `cost_usd` to hold: what is not yet
    written off; 0 for reservations."""
    carbon_kgco2e: float
    """Greenhouse gases of holding them, used or not: their share of embodied carbon, and electricity of idle nodes."""
    used_fraction: float
    """Share of their node-hours within the horizon in which jobs run."""


class ScheduledRun(Record):
    """One job with its design, its place and its time."""

    job: str
    """Name of the job."""
    kind: PoolKind
    """On which nodes it runs."""
    offer: int
    """Position of the offer in the fleet, from 0."""
    accelerator: str
    """Catalogue name."""
    num_nodes: int
    """Nodes that it holds, spares included."""
    num_gpus: int
    """Accelerators in the nodes that it holds."""
    start_day: float
    """First day."""
    end_day: float
    """Last day, by the expected length of the run in whole hours."""
    deadline_day: float
    """Day by which it must end."""
    cost_usd: float
    """Cost of the run alone: rent, or electricity above that of idle nodes; and storage bought for it."""
    energy_kwh: float
    """Energy of the facility."""
    carbon_kgco2e: float
    """Greenhouse gases of the run alone: on rented nodes as for the job alone at the fleet's site; on others those of
    electricity above that of idle nodes, of storage, and of replaced accelerators."""
    plan: Plan
    """Its layout; its own `offer` is always 0."""


class BindingRule(Record):
    """A constraint without which the plan would cost less."""

    constraint: str
    """Its name, as `capplan explain` lists it."""
    subject: str
    """The job or the offer that it concerns; empty if it concerns all."""
    saving_usd: float
    """Least saving without it."""


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
    status: Status
    """`optimal`: proven to be the cheapest of all plans over the considered designs; `feasible`: the best plan found;
    `infeasible`: proven that none exists; `unknown`: none found with this effort."""
    cost_usd: float | None
    """Cost of everything within the horizon; null without a plan."""
    bound_usd: float
    """Proven: no plan costs less."""
    gap_fraction: float | None
    """Largest share of the plan's cost that a cheaper plan could save; 0 if it is proven optimal."""
    capital_usd: float
    """Up-front payment for purchases."""
    left_usd: float = 0.0
    """What of it later use or a sale of the bought nodes must bring in after the horizon for `cost_usd` to hold."""
    staff_usd: float = 0.0
    """Staff for all bought nodes, from the first delivery to the end of the horizon."""
    peak_power_w: float
    """Peak power of all bought nodes."""
    carbon_kgco2e: float
    """Greenhouse gases of all acquisitions and runs."""
    acquisitions: tuple[Acquisition, ...]
    """What to buy and to reserve, by day."""
    runs: tuple[ScheduledRun, ...]
    """The schedule of the jobs, in the order of the fleet."""
    all_rent_usd: float | None
    """Lowest cost found with rent alone, on demand or interrupted, regardless of budget; null if none meets the deadlines, or
    if it is `undecided` whether one does."""
    all_buy_usd: float | None
    """Lowest cost found with purchases alone, regardless of budget and capital; null as with rent alone."""
    binding: tuple[BindingRule, ...]
    """Constraints without which the plan would cost less, the largest saving first; only those proven to save."""
    conflict: tuple[str, ...]
    """If there is no plan: constraints that cannot be met together, while without any one of them there is a plan for the
    others, as `constraint: subject`; or `no design: job` for jobs that no offer can run at all (`capplan explain`)."""
    enough: dict[str, float] = Field(default={})
    """If a limit on money or power is among them: the least value of it that was found to be enough for a plan, with everything
    else unchanged, by its name among `limits`; empty if none of them helps alone."""
    undecided: tuple[str, ...] = ()
    """What the effort could not decide: `all_rent_usd` and `all_buy_usd` that are null without a proof, and constraints of
    `conflict` without which no plan was found, although none is proven not to exist."""
    num_designs: dict[str, int]
    """Considered designs of each job, over all offers, including those that a limit rules out."""
    notes: tuple[str, ...] = ()
    """Inputs of the fleet that the plan ignores, or may read differently than intended: budgets and ownership of single jobs,
    offers after the last deadline, accelerators in several offers, nodes that are held beyond their life, runs that end just
    before their deadlines."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows a plan in a few lines, for example in notebooks; `model_dump()` has every field."""
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
