"""Does a purchase plan say in words what it holds in numbers? A plan that is made up, and the whole text of it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from planner.purchase.plan import Acquisition, PurchasePlan, ScheduledRun
from planner.purchase.view import show_purchase
from simulator.domain.plan import Plan

BOUGHT = Acquisition(
    kind="bought",
    accelerator="h100-sxm5-80gb",
    num_nodes=4,
    num_gpus=32,
    from_day=20.5,
    to_day=365.0,
    cost_usd=400e3,
    capital_usd=1.1e6,
    carbon_kgco2e=1.0,
    used_fraction=0.75,
)
RESERVED = Acquisition(
    kind="reserved",
    accelerator="h100-sxm5-80gb",
    num_nodes=2,
    num_gpus=16,
    from_day=99.5,
    to_day=129.6,
    cost_usd=50e3,
    capital_usd=0.0,
    carbon_kgco2e=1.0,
    used_fraction=0.5,
)


def run(job: str, held: Acquisition, days: tuple[float, float, float], cost_usd: float) -> ScheduledRun:
    start, end, deadline = days
    return ScheduledRun(
        job=job,
        kind=held.kind,
        accelerator=held.accelerator,
        num_nodes=held.num_nodes,
        num_gpus=held.num_gpus,
        start_day=start,
        end_day=end,
        deadline_day=deadline,
        cost_usd=cost_usd,
        energy_kwh=1.0,
        carbon_kgco2e=1.0,
        plan=Plan(offer=0, num_gpus=held.num_gpus, data_parallel=held.num_gpus),
    )


PLAN = PurchasePlan(
    capplan_version="1.0",
    catalog_hash="",
    fleet="lab",
    seed=0,
    status="feasible",
    cost_usd=2.5e6,
    bound_usd=2.0e6,
    gap_fraction=0.2,
    capital_usd=1.1e6,
    staff_usd=60e3,
    peak_power_w=44e3,
    carbon_kgco2e=9e3,
    acquisitions=(BOUGHT, RESERVED),
    runs=(
        run("late", RESERVED, (100.0, 120.4, 140.0), 0.0),
        run("early", BOUGHT, (30.25, 60.0, 99.96), 3e3),
    ),
    all_rent_usd=3e6,
    all_buy_usd=None,
    binding=(),
    conflict=(),
    undecided=("all_buy_usd",),
    num_designs={"late": 3, "early": 4},
)
TEXT = """
Best plan found for lab: $2.50 M
  CP-SAT: no plan over 7 designs of 2 jobs costs less than $2.00 M; gap 20.0 %.

Acquisitions
           nodes  accelerators         from day  to day  cost     up front  used
  buy      4      32 x h100-sxm5-80gb  20.5      365     $400 k   $1.10 M   75.0 %
  reserve  2      16 x h100-sxm5-80gb  99.5      130     $50.0 k  -         50.0 %
  Staff for the bought nodes costs another $60.0 k.

Schedule
  job    on        accelerators         from day  to day  deadline  run cost
  early  bought    32 x h100-sxm5-80gb  30.2      60.0    100       $3.00 k
  late   reserved  16 x h100-sxm5-80gb  100       120     140       $0

Comparison with alternatives
  this plan               $2.50 M
  all rented on demand    $3.00 M
  all bought              none found with this effort
  capital for purchases   $1.10 M
  peak power at the site  44.0 kW
  total carbon            9.00 t CO2e

Binding constraints
  None: removing any one deadline, limit or number of nodes is not proven to give a cheaper plan.
"""


def shown(plan: PurchasePlan) -> str:
    console = Console(width=120, record=True, file=StringIO())
    show_purchase(plan, console)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines()).strip()


def test_a_plan_is_told_with_its_schedule_by_day_and_what_it_is_compared_with() -> None:
    assert shown(PLAN) == TEXT.strip()


def test_staff_that_costs_nothing_and_alternatives_that_cannot_be_are_told_so() -> None:
    text = shown(PLAN.model_copy(update={"staff_usd": 0.0, "undecided": ()}))
    assert "Staff" not in text
    assert "all bought              not possible" in text
