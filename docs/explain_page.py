"""What do the pages on constraints and on purchase plans say? Their text, and the tables from the registry."""

from __future__ import annotations

from pathlib import Path

from constraints.registry import CONSTRAINTS, Constraint
from planner.explain.view import KINDS

CONSTRAINTS_PAGE = Path(__file__).with_name("constraints.md")
PURCHASE_PAGE = Path(__file__).with_name("purchase.md")
CONSTRAINTS_INTRODUCTION = """\
# Constraints, and what they remove

Every rule that a design must keep has a name, a formula, a unit, a source and a way out, and stands in one registry
(`constraints.registry`); a test breaks each of them. `capplan explain` prints it:

```sh
capplan explain
capplan explain memory
capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2
capplan explain examples/bloom-176b.yaml --plan tp=4,pp=12,dp=8,mbs=2,recompute=full --balance
capplan explain examples/bloom-176b.yaml --fewest-gpus
```

- Without arguments: all constraints. With a name: that one in full.
- A job with `--plan`: every constraint with the plan's value, the limit, what is left of it, and whether it holds. A plan
  that breaks some is an answer like any other (exit code 0).
- `--plan` with `--balance`: the cut of the layers into stages with the shortest step that fits the memory, beside the present
  one ([how to](how-to/uneven-stages.md)).
- A job alone: how many designs each constraint removes, and which limits bind: without which of them the least time, cost
  or carbon of all designs that keep the others would be smaller, and by how much. Spaces above `--simulate-up-to`, 200,000
  designs, are counted by rules and bounds alone. The least values are exact, since layouts are simulated in the order of
  their bounds until none can win, under every power cap that refinement tries where lower ones help. Where no
  design is left, the proof and the smallest changes that help (exit code 3).
- `--fewest-gpus`: the smallest cluster that keeps every limit, a deadline for instance: CP-SAT gives the fewest
  accelerators that the bounds admit, simulation the fewest that do.
- Where degrees of parallelism contradict each other or the schedules that are listed, so that there is no layout at all, CP-SAT
  names a minimal set of rules at fault and the nearest number of accelerators, and the nearest batch, that have a layout
  (`constraints.layout_model`). Where degrees are not to blame, it names the rules that no layout keeps which is tried.
- Where there are layouts and none fits the memory, CP-SAT says whether the ranges on offer are to blame: its table has the
  least that the most loaded stage needs on every number of accelerators. The layout that needs least is named, and the
  nearest number of accelerators that has one that fits (`constraints.memory_model`).

`--json` prints the same as values; `planner.explain.answer` has `constraint_texts`, `explain_plan` and `explain_space` for
programs. Letters are those of [the model](model.md#letters).

This page is generated from the registry and the types: `python -m docs.generate`.
"""
PURCHASE_INTRODUCTION = """\
# Purchase plans: several jobs, and what to buy, reserve and rent for them

`capplan purchase FLEET.yaml` answers what to have from when, which job runs when on what, and what that costs, so that all
jobs end in time at the least cost within the horizon:

```sh
capplan purchase examples/fleet.yaml
capplan purchase examples/fleet.yaml --effort 60 --json
```

`--effort` is how long CP-SAT may look for the plan, in deterministic seconds (20). Exit codes: 0 a plan, 3 proven that there
is none, 1 none found with this effort, 2 broken input. From Python:

```python
from planner import load_fleet, plan_purchase

plan = plan_purchase(load_fleet("examples/fleet.yaml"))
```

1. For each job and offer the search of `capplan recommend` goes through 1 node, 2, 3 to 4, 5 to 8 and so on, each with an
   eighth of the job's effort, so that what few nodes can do does not depend on how many there are. The fastest feasible
   design for each number of nodes is a candidate, 24 sizes at most for each kind of nodes: of those that window, power and
   money allow by themselves, the ones that a size nearby stands in for worst.
2. CP-SAT chooses for every job a candidate, on bought, reserved or rented nodes, and its start to the hour; for every offer
   the nodes that come on each day of delivery, and those of each reserved term. Nodes in use never exceed those that are
   there; running jobs and idle nodes never exceed the site's power.
3. Each figure of the answer is counted again from the choice, and a choice that breaks a rule is an error of capplan.

**Costs.** A bought node costs from its delivery to the end of the horizon, used or not: depreciation and interest,
maintenance, its share of network and building (with the formulas of [the model](model.md#cost), at a utilization of 1, since
every hour is counted), and the electricity of an idle node with its share of the network and of cooling that never rests. The
network has the tiers of switches that all bought nodes of an offer need together, so that each node is dearer where one more
makes one more tier necessary; every number of tiers is a choice of the plan. `ownership.staff_usd_per_year` is paid once, from
the first delivery of any node on, however many are bought. A run adds the electricity above what its own nodes and network
draw when idle, at the site's flat price with its demand charge, and the storage that is bought for it. What a bought node is
worth at the end of the horizon is not part of the cost, as only the use until then is; `capital_usd` is what has to be paid at
once: nodes, network and installation, without the building. A reservation costs its whole term; rent costs the run's whole
hours. Durations are expected ones: leave slack before a hard deadline, or give the job a `deadline_probability` of its own.

**Carbon** is shared out as costs are. Nodes that are bought or reserved emit for as long as they are held, used or not: their
share of making nodes, network and building, by hours held over hours of life, and the electricity of idle nodes. A run adds
the electricity above that, its storage and the accelerators that failures destroy. On rented nodes a run emits what `capplan
simulate` gives for it at the fleet's site, with the share of their idle time that `utilization_fraction` says.

**What is proven.** `optimal` means that no plan over these candidates costs less; `feasible` that the effort ended first, and
`gap_fraction` by how much at most the plan is above the cheapest. The plans all rented and all bought stand beside it. A
constraint is said to bind where a plan without it is proven cheaper; an infeasible fleet gets a minimal set of constraints
that contradict each other. `undecided` names what the effort did not suffice for: a way all rented or all bought that is
neither found nor proven to be impossible, and constraints of the set that are perhaps not needed in it. The same fleet,
version, seed and effort give the same plan (one worker, deterministic time).

*Stops holding:* a job runs on one kind of capacity and in one piece; of several designs for as many nodes the fastest is
taken, though another one may draw less; rented and reserved nodes stand elsewhere and do not count for the site's power; they
emit as if they stood at the site, though; `node_supply` is tried ten times as wide with the designs and the network that were
found for `max_nodes`; a demand charge on what a run draws above idle nodes is paid for its own hours, where tariffs bill whole
months.

This page is generated from the types: `python -m docs.generate`.
"""


def constraint_tables() -> list[str]:
    """Returns one table of constraints for each kind."""
    return [
        _table(heading, [one for one in CONSTRAINTS.values() if one.kind == kind])
        for kind, heading in KINDS.items()
    ]


def _table(heading: str, constraints: list[Constraint]) -> str:
    header = "| constraint | what it says | formula | unit | source | way out |\n|---|---|---|---|---|---|"
    rows = [
        (f"`{one.name}`", one.sentence, f"`{one.formula}`", one.unit, one.source, one.way_out)
        for one in constraints
    ]
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([f"## {heading}\n", header, *lines, ""])
