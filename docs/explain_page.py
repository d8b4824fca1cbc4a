"""What is on the pages on constraints and on purchase plans? Their text, and tables from the registry."""

from __future__ import annotations

from pathlib import Path

from constraints.registry import CONSTRAINTS, Constraint
from docs.markdown import row_of_text
from planner.explain.view import KINDS

CONSTRAINTS_PAGE = Path(__file__).with_name("constraints.md")
PURCHASE_PAGE = Path(__file__).with_name("purchase.md")
CONSTRAINTS_INTRODUCTION = """\
# Constraints, and what they remove

Use `capplan explain` to find out why a plan is not valid, why a job has no design, or which limits cost you time or money.
Every rule that a design must keep has a name, a formula, a unit, a source and a remedy. All rules are in one registry
(`constraints.registry`), and a test breaks each of them.

```sh
capplan explain
capplan explain memory
capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2
capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2,recompute=full --balance
capplan explain examples/bloom-176b.yaml --fewest-gpus
```

- Without arguments: all constraints. With a name: that constraint in full.
- A job with `--plan`: every constraint with the plan's value, the limit, the slack, and whether it holds. A plan that breaks
  some is still an answer (exit code 0), with the changes of a single choice with which it meets all of them. Choices that the
  search does not try, so that no recommendation has them, are told with what it tries and the field that lists it.
- `--plan` with `--balance`: the cut of the layers into stages with the shortest step that fits the memory, beside the present
  one ([how to](how-to/uneven-stages.md)).
- A job alone: how many designs each constraint removes, and which limits bind. A limit binds if, without it, the least time,
  cost or carbon of all designs that keep the others would be smaller; the answer says by how much. Spaces above
  `--simulate-up-to` (200,000 designs) are counted by rules and bounds alone. The least values are exact: layouts are
  simulated in the order of their bounds until none can win, under every power cap that refinement tries where lower ones
  help. If no design is left, the answer is the proof and the smallest changes that help (exit code 3).
- `--fewest-gpus`: the smallest cluster that keeps every limit, such as a deadline. CP-SAT finds the fewest accelerators that
  the bounds admit, simulation the fewest that keep the limits.
- If degrees of parallelism contradict each other or the listed schedules, so that there is no layout at all, CP-SAT names a
  minimal set of conflicting rules, and the nearest number of accelerators and the nearest batch that have a layout
  (`constraints.layout_model`). If the degrees are not the cause, it names the rules that every tried layout breaks.
- If there are layouts but none fits the memory, CP-SAT says whether the ranges on offer are the cause: its table has the
  least memory that the most loaded stage needs on every number of accelerators. The answer names the layout that needs least,
  and the nearest number of accelerators with a layout that fits (`constraints.memory_model`).

`--json` prints the same as values. In programs, `planner.explain.answer` has `constraint_texts`, `explain_plan` and
`explain_space`. Letters are those of [the model](model.md#letters).

This page is generated from the registry and the types: `python -m docs.generate`.
"""
PURCHASE_INTRODUCTION = """\
# Purchase plans: several jobs, and what to buy, reserve and rent for them

Use `capplan purchase` to plan hardware for several jobs, such as a year of training runs. It decides what to have from when,
and which job runs when on what, so that all jobs end in time at the least cost within the horizon:

```sh
capplan purchase examples/fleet.yaml
capplan purchase examples/fleet.yaml --set limits.capital_usd=2e6
capplan purchase examples/fleet.yaml --effort 60 --json
```

`--effort` limits how long CP-SAT may look for the plan, in deterministic seconds (20). Exit codes: 0 a plan, 3 proven that
there is none, 1 none found with this effort, 2 broken input. From Python:

```python
from planner import load_fleet, plan_purchase

plan = plan_purchase(load_fleet("examples/fleet.yaml"))
```

1. For each job and offer, the search of `capplan recommend` goes through 1 node, 2, 3 to 4, 5 to 8 and so on. Each range gets
   an eighth of the job's effort, so that the results for few nodes do not depend on how many nodes there are. The fastest
   feasible design for each number of nodes is a candidate, 24 sizes at most for each kind of nodes: of those that window,
   power and money allow by themselves, the sizes that are worst represented by a size nearby.
2. CP-SAT chooses for every job a candidate, on bought, reserved or rented nodes, and its start to the hour. For every offer
   it chooses the nodes that arrive on each day of delivery, and those of each reserved term. Nodes in use never exceed those
   available; running jobs and idle nodes never exceed the site's power.
3. capplan recomputes each figure of the answer from the choice. A choice that breaks a rule is an error of capplan.

**Costs.**

- A *bought node* costs from its delivery to the end of the horizon, used or not: depreciation and interest, maintenance, its
  share of network and building (with the formulas of [the model](model/power-cost-carbon.md#cost), at a utilization of 1, since
  every hour is counted), and the electricity of an idle node with its share of the network and of the cooling that always runs.
- The *network* has the tiers of switches that all bought nodes of an offer need together, so each node costs more if one more
  node requires one more tier. Every number of tiers is a choice of the plan.
- *Staff* (`ownership.staff_usd_per_year`) is paid once, from the first delivery of any node on, however many are bought.
- A *run* adds the electricity above the idle power of its own nodes and network, at the site's flat price with its demand
  charge, and the storage that is bought for it.
- The *residual value* of a bought node at the end of the horizon is not part of the cost, since only the use until then is.
  `capital_usd` is the amount to be paid at once: nodes, network and installation, without the building. `left_usd` is what of
  it is then not yet written off: later use or a sale must bring it in. The answer says so first, and how much may be missing
  until renting everything costs no more.
- A *reservation* costs its whole term. When it has ended, the same nodes can be reserved again.
- *Rent* costs the run's whole hours. *Spot* nodes, which landlords take back, are an offer of their own with
  `rent.interruptions_per_1000_node_days`: their runs restart, and take and cost more time. The same accelerator may stand in
  several offers, such as one for each length of reservation; offers that differ in price alone are searched once.

The section *Cost* of the answer adds up to the total; `cost_parts_usd` of an acquisition has the same in JSON. A spreadsheet
repeats it with `annuity(r, n) = r / (1 - (1 + r)^-n)` of [the model](model/power-cost-carbon.md#cost):

    depreciation and interest  (nodes - residual x nodes / (1 + r)^n + network + installation) x annuity(r, n) x years held
    maintenance                (nodes + network) x maintenance_fraction_per_year x years held
    building                   facility_usd_per_w x peak IT power x annuity(r, years of the building) x years held
    electricity when idle      nodes x idle power x hours held x price, with the demand charge
    left after the horizon     (nodes - residual x nodes / (1 + r)^n + network + installation)
                               x annuity(r, n) / annuity(r, n - years held) + residual x nodes / (1 + r)^(n - years held)

Durations are expected ones: leave slack before a hard deadline, or give the job its own `deadline_probability`.

**Carbon** is shared like costs. Nodes that are bought or reserved emit for as long as they are held, used or not: their share
of manufacturing nodes, network and building, by hours held over hours of life, and the electricity of idle nodes. A run adds
the electricity above that, its storage and the accelerators that failures destroy. On rented nodes a run emits what
`capplan simulate` gives for it at the fleet's site, with the share of their idle time that `utilization_fraction` sets. Hourly
profiles of the site count with their mean, in carbon and in cost.

**What is proven.** `optimal` means that no plan over these candidates costs less. `feasible` means that the effort ended
first; `gap_fraction` then bounds the share of its cost that a cheaper plan could save. The all-rented and all-bought plans are
shown beside it. A constraint is said to bind if a plan without it is proven cheaper. For an infeasible fleet, the answer gives
a minimal set of constraints that contradict each other, and if capital, budget or power is among them, the least value of it
that is enough while everything else stays. `undecided` names what the effort did not suffice for: an all-rented or all-bought
plan that is neither found nor proven impossible, and constraints of the set that may not be needed in it. The same fleet,
version, seed and effort give the same plan (one worker, deterministic time).

*Stops holding:*

- A job runs on one kind of capacity and in one piece.
- A run whose spares are all in repair gets another node within two hours, even if all nodes of the plan are in use; its job may
  say otherwise (`reliability.restart.replace_from_queue_s`).
- Nodes that are held for longer than they or their network are written off over cost and emit at the same rate, as if they were
  replaced; `capital_usd` and `left_usd` are those of the first purchase. A note says so.
- Of several designs for the same number of nodes the fastest is taken, though another one may draw less power.
- Rented and reserved nodes are located elsewhere and do not count for the site's power, but they emit as if they were at the
  site.
- `node_supply` is tried ten times as wide with the designs and the network that were found for `max_nodes`.
- A run pays the demand charge on its power above idle nodes for its own hours, although tariffs bill whole months.

This page is generated from the types: `python -m docs.generate`.
"""


def constraint_tables() -> list[str]:
    """Returns one table of constraints for each kind."""
    return [
        _table(heading, [one for one in CONSTRAINTS.values() if one.kind == kind])
        for kind, heading in KINDS.items()
    ]


def _table(heading: str, constraints: list[Constraint]) -> str:
    header = "| constraint | rule | formula | unit | source | remedy |\n|---|---|---|---|---|---|"
    rows = [
        (f"`{one.name}`", one.sentence, f"`{one.formula}`", one.unit, one.source, one.way_out)
        for one in constraints
    ]
    return "\n".join([f"## {heading}\n", header, *map(row_of_text, rows), ""])
