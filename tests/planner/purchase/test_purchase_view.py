"""Does a purchase plan say in words what it holds in numbers? A plan that is made up, and the whole text of it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from planner.purchase.plan import Acquisition, BindingRule, PurchasePlan, ScheduledRun
from planner.purchase.view import show_purchase
from simulator.domain.plan import Plan

BOUGHT = Acquisition(
    kind="bought",
    offer=1,
    accelerator="h100-sxm5-80gb",
    num_nodes=4,
    num_gpus=32,
    from_day=20.5,
    to_day=365.0,
    cost_usd=400e3,
    cost_parts_usd={"capital_usd": 330e3, "maintenance_usd": 50e3, "electricity_usd": 20e3},
    capital_usd=1.1e6,
    left_usd=0.8e6,
    carbon_kgco2e=1.0,
    used_fraction=0.75,
)
RESERVED = Acquisition(
    kind="reserved",
    offer=0,
    accelerator="h100-sxm5-80gb",
    num_nodes=2,
    num_gpus=16,
    from_day=99.5,
    to_day=129.6,
    cost_usd=50e3,
    cost_parts_usd={"rent_usd": 50e3},
    capital_usd=0.0,
    carbon_kgco2e=1.0,
    used_fraction=0.5,
)


def run(job: str, held: Acquisition, days: tuple[float, float, float], cost_usd: float) -> ScheduledRun:
    start, end, deadline = days
    return ScheduledRun(
        job=job,
        kind=held.kind,
        offer=held.offer,
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
    cost_usd=513e3,
    bound_usd=400e3,
    gap_fraction=0.22,
    capital_usd=1.1e6,
    left_usd=0.8e6,
    staff_usd=60e3,
    peak_power_w=44e3,
    carbon_kgco2e=9e3,
    acquisitions=(BOUGHT, RESERVED),
    runs=(
        run("late", RESERVED, (100.0, 120.4, 140.0), 0.0),
        run("early", BOUGHT, (30.25, 60.0, 99.96), 3e3),
    ),
    all_rent_usd=600e3,
    all_buy_usd=None,
    binding=(),
    conflict=(),
    undecided=("all_buy_usd",),
    num_designs={"late": 3, "early": 4},
)
TEXT = """
Best plan found for lab: $513 k
Bought nodes cost until the horizon only: later use or a sale must bring in $800 k of the $1.10 M paid up front.
If they bring in $87.0 k less than that, renting everything costs no more than this plan.
  CP-SAT: no plan over 7 designs of 2 jobs costs less than $400 k; gap 22.0 %.

Acquisitions
           offer  nodes  accelerators         from day  to day  cost     up front  used
  buy      1      4      32 x h100-sxm5-80gb  20.5      365     $400 k   $1.10 M   75.0 %
  reserve  0      2      16 x h100-sxm5-80gb  99.5      130     $50.0 k  -         50.0 %

Schedule
  job    on        offer  accelerators         from day  to day  deadline  run cost
  early  bought    1      32 x h100-sxm5-80gb  30.2      60.0    100       $3.00 k
  late   reserved  0      16 x h100-sxm5-80gb  100       120     140       $0

Cost: $513 k
  electricity and storage of runs on bought nodes  $3.00 k  0.6 %
  reservations                                     $50.0 k  9.7 %
  bought nodes: depreciation and interest          $330 k   64.3 %
  bought nodes: maintenance                        $50.0 k  9.7 %
  bought nodes: electricity when idle              $20.0 k  3.9 %
  staff                                            $60.0 k  11.7 %

Comparison with alternatives
  this plan               $513 k
  all rented              $600 k
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
    assert "staff" not in text
    assert "all bought              not possible" in text


def test_what_bought_nodes_must_bring_in_is_compared_with_renting_only_where_that_is_dearer() -> None:
    for other_usd in (None, 513e3):
        text = shown(PLAN.model_copy(update={"all_rent_usd": other_usd}))
        assert "must bring in $800 k of" in text
        assert "renting everything costs no more" not in text
    cheap = shown(PLAN.model_copy(update={"all_rent_usd": 1.4e6}))
    assert "Even if they bring in nothing, this plan costs $87.0 k less than renting everything." in cheap
    assert "must bring in" not in shown(PLAN.model_copy(update={"left_usd": 0.0}))


def test_constraints_of_one_kind_that_bind_are_told_in_one_sentence() -> None:
    rules = [("job_window", "late", 40e3), ("site_power_w", "", 20e3), ("job_window", "early", 10e3)]
    binding = tuple(
        BindingRule(constraint=name, subject=subject, saving_usd=usd) for name, subject, usd in rules
    )
    lines = shown(PLAN.model_copy(update={"binding": binding})).split("Binding constraints\n")[1]
    window, power = " ".join(lines.split()).split(" site_power_w: ")
    assert window == (
        "job_window: every job must run between its earliest start and its deadline; without one of the deadlines the plan "
        "costs less, by at least $40.0 k (late), $10.0 k (early)"
    )
    assert power.endswith("; without it the plan costs less, by at least $20.0 k")
