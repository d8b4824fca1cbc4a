"""How would a planner describe a published run? With what its sources publish, and one set of rules for everything else.

Both predictions of `planner.validation.whole_runs` follow these rules (`RULES`), which are the same for every run. The shipped
prediction also uses what is known only from the run itself and its fleet (`Origin.OWN`). Nothing else is chosen per run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import cast

from planner.input.plan_input import plan_of
from planner.job.file import parse_job
from planner.measured.frameworks.habits import Habits
from planner.measured.software.framework_habits import habits_of
from simulator import catalog
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.workload import Workload
from simulator.record import Choice
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.simulate import simulate

TYPICAL = "typical"
"""The preset for a planner without data on the fleet."""
RULES: Mapping[str, str] = {
    "software": "habits of the framework (`planner.measured.software.framework_habits`), as for steps of docs/validation.md",
    "spare nodes": "as searches take them: 99 of 100 failures find one (`simulator.run.spare_nodes.sufficient_spare_nodes`)",
    "failures, restarts, stragglers": f"the preset `{TYPICAL}`",
    "saves": "the defaults of a plan: scheme `async`, at the interval that loses least",
    "storage": "the default of a job",
    "all else": "the defaults of a job and of a plan (docs/job-file.md)",
}
"""Rules for every run where nothing else is given, by topic."""
_RENT = {"rent_usd_per_gpu_hour": 2.0}
"""An arbitrary price: neither hours nor energy depend on it."""
_HABITS_OF_WORKLOADS = tuple(field.name for field in fields(Habits) if field.name in Workload.model_fields)


class Origin(Choice):
    """Where an input comes from."""

    PUBLISHED = "published"
    """Published about model, work, layout, software or hardware: what a planner knows before the run."""
    ASSUMED = "assumed"
    """Left open by the sources."""
    OWN = "published of the run itself"
    """What happened in the run or its fleet: used by the shipped prediction only; the cold one follows a rule instead."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a run."""

    field: str
    """Where it belongs: fields of a job joined by dots, with `offer` for its only offer and `plan` for the plan."""
    value: object
    origin: Origin
    source: str
    """Where it is published, or why it is assumed."""


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """A published run whose layout is known, as a planner would describe it."""

    row: str
    """Its row in `data/published_runs.csv`."""
    framework: str
    """The framework that trained it, as `planner.measured.software.framework_habits` reads it."""
    inputs: tuple[Input, ...]
    """All that differs from `RULES`."""
    own_figures: str
    """What the constants, or the inputs of the shipped prediction, contain of the run itself."""
    in_their_place: str
    """What is used instead without the run."""
    publisher: str = ""
    """Publisher whose steps the constants are fitted on, as `benchmarks.hold_out` names it; empty if none."""
    unseen_compute_power_fraction: float | None = None
    """Power of computation from other runs' meters, where the shipped one is fitted to this run's meter."""
    note: str = ""

    def without_the_run(self) -> KnownRun:
        """Returns the run as described by somebody who knows only its model, work, layout and hardware."""
        return replace(self, inputs=tuple(each for each in self.inputs if each.origin is not Origin.OWN))

    def job(self) -> Job:
        """Returns the job."""
        tree = _tree(self.inputs)
        offer = {**_part(tree, "offer"), **_RENT}
        precision = str(_part(tree, "plan").get("precision", "bf16"))
        habits = self._habits(str(offer["accelerator"]), precision)
        software = {name: getattr(habits, name) for name in _HABITS_OF_WORKLOADS}
        return parse_job(
            {
                "workload": {**software, **_part(tree, "workload"), "precisions": [precision]},
                "offers": [offer],
                "site": tree["site"],
                "storage": _part(tree, "storage"),
                "reliability": {"preset": TYPICAL, **_part(tree, "reliability")},
            }
        )

    def plan(self, job: Job) -> Plan:
        """Returns the plan for a job that `job` returned."""
        written = dict(_part(_tree(self.inputs), "plan"))
        habits = self._habits(job.offers[0].accelerator.id, str(written.get("precision", "bf16")))
        bare, _ = plan_of(job, {"zero_stage": habits.zero_stage, **written})
        if "num_spare_nodes" in written:
            return bare
        plans = PlanTable.from_plans([bare])
        (spares,) = sufficient_spare_nodes(job, plans, simulate(job, plans).run.calm_s).tolist()
        return bare.model_copy(update={"num_spare_nodes": spares})

    def _habits(self, accelerator: str, precision: str) -> Habits:
        return habits_of(self.framework, catalog.accelerator(accelerator).kernel_family, precision)


def _tree(inputs: Iterable[Input]) -> dict[str, object]:
    """Returns inputs as the mappings of a file; a later input replaces an earlier one for the same field."""
    tree: dict[str, object] = {}
    for each in inputs:
        *path, last = each.field.split(".")
        node = tree
        for step in path:
            node = cast("dict[str, object]", node.setdefault(step, {}))
        node[last] = each.value
    return tree


def _part(tree: Mapping[str, object], name: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", tree.get(name, {}))
