"""What would a given plan achieve? One design in full, and every rule and limit that it violates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from constraints.evaluation import Evaluation, evaluate
from planner import __version__
from planner.explain.runnable_plan import obstacles
from planner.explain.violations import Violation, degrees_violation, layout_violations, limit_violations
from planner.goodput.answer import MAX_EVENTS
from planner.input.arguments import check_switches
from planner.input.given import checked_job
from planner.input.plan_input import plan_of
from planner.job.unused_workload import narrowed_to
from planner.notes.accuracy_notes import never_measured_notes
from planner.notes.carbon_scope import scope_text
from planner.notes.cautions import cautions_on_plan, plan_notes
from planner.notes.hardware_notes import hardware_notes
from planner.notes.interval_note import better_interval_notes, interval_notes
from planner.notes.memory_note import full_plan_notes
from planner.notes.servers_note import server_notes
from planner.notes.spares_note import spares_notes
from planner.notes.step_note import texts
from planner.notes.straggler_note import straggler_notes
from planner.one_design.simpler_models import SimplerModel, left_out, simpler_models
from planner.one_design.stage_memory import HostMemory, StageMemory, host_memory, stage_memory
from planner.recommended.comparisons import OtherChoice
from planner.recommended.designs import design_at
from planner.recommended.limit_uses import LimitUse, limit_uses
from planner.recommended.recommendation import Design, Uncertainty
from planner.recommended.same_accelerators import one_change
from planner.timeline.stages import TimelineSummary, summary_of
from planner.uncertain.sensitivity import Sensitivities, sensitivities
from planner.uncertain.uncertainty import NUM_REPLAYS, uncertainty_of
from simulator.catalog import catalog_hash
from simulator.deep.plans.compute_parts import OperatorTime, compute_parts
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError
from simulator.record import Record
from simulator.step.timeline import StepTimeline, step_timeline

MOST_FAILURES = 1e4
"""Runs with more expected failures are not replayed, because some replays might never end."""


class SimulatedDesign(Record):
    """One plan of a job, simulated; infeasible and impossible plans are results with reasons."""

    schema_version: int = 3
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version that simulated."""
    catalog_hash: str
    """Content of the catalogue that was used."""
    job: str
    """Name of the job."""
    seed: int
    """Seed of the replays."""
    is_feasible: bool
    """Whether every rule and limit is met."""
    plan: Plan | None
    """The decisions, defaults filled in; null where the degrees do not multiply to `num_gpus`."""
    design: Design | None
    """Results of the plan, whether or not it meets the limits. Null if the layout cannot run (see `violations`), or if the
    run never ends. `design_id` is 0."""
    violations: tuple[Violation, ...]
    """Constraints that the plan violates; empty for a feasible plan."""
    limits: tuple[LimitUse, ...] = ()
    """The limits of the job, and the plan's use of each; empty if its run never ends."""
    spread: Uncertainty | None
    """Spread of time and cost over replays; null without a design, and for runs that fail too often to be replayed."""
    timeline: TimelineSummary | None = None
    """Timeline of each pipeline stage in one step; null without a design, and for steps of more than 200,000 passes."""
    operators: tuple[OperatorTime, ...] = ()
    """Operators that the `compute_s` of a step consists of, which they sum to; empty without a design."""
    stage_memory: tuple[StageMemory, ...] = ()
    """Memory of every pipeline stage by component; empty without a design."""
    host_memory: HostMemory | None = None
    """Host memory of the fullest node; null without a design."""
    other_choices: tuple[OtherChoice, ...] = ()
    """What every other value of one choice alone, of those that the search tries, would change on the same accelerators: data
    parallelism follows, and what the value leaves no room for, such as layers that are recomputed; all else stays. The best
    value of each choice first; empty without a design."""
    sensitivities: Sensitivities | None = None
    """Which inputs drive time, cost, energy, carbon and goodput; null without a design, and if not requested."""
    simpler_models: tuple[SimplerModel, ...] = ()
    """Estimates of the nameplate product, MLCO2 and LLMCarbon; empty without a design. LLMCarbon is omitted beyond the
    models that it was fitted to; `warnings` says so."""
    carbon_scope: str = ""
    """What the carbon figures include and exclude."""
    warnings: tuple[str, ...] = ()
    """Notes on the plan or the data."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows an answer in a few lines, for example in notebooks; `model_dump()` has every field."""
        return [
            ("job", self.job),
            ("is_feasible", self.is_feasible),
            ("plan", self.plan),
            ("design", self.design),
            ("violations", self.violations),
        ]


def simulate_plan(
    job: Job, plan: Plan | Mapping[str, object], seed: int = 0, *, with_sensitivities: bool = True
) -> SimulatedDesign:
    """Simulates one plan of a job.

    Args:
        job: the question; `load_job` reads it from a file.
        plan: the decisions, or a mapping of them with the short forms of the command line, such as
            `{"tp": 8, "pp": 4, "dp": 16}`.
        seed: of the replays; the same job, plan, version and seed give the same answer.
        with_sensitivities: whether every uncertain input is moved over its range, which takes about half of the time.

    Raises:
        InputError: the mapping has an unknown key or a value of the wrong type, or names no offer of the job; or job, plan or
            seed are something else.

    Example:
        >>> from planner import load_job
        >>> bloom = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full", "checkpoint_scheme": "sync_sharded"}
        >>> answer = simulate_plan(load_job("examples/bloom-176b.yaml"), bloom)
        >>> answer.is_feasible, answer.design.plan.num_gpus
        (True, 384)
    """
    job = checked_job(job, seed)
    check_switches(with_sensitivities=with_sensitivities)
    checked, num_gpus = plan_of(job, plan)
    if num_gpus != checked.num_gpus:
        return _without_design(job, seed, None, [degrees_violation(checked, num_gpus)])
    broken = layout_violations(job, checked)
    if obstacles(job, checked):
        return _without_design(job, seed, checked, broken)
    evaluation = evaluate(job, PlanTable.from_plans([checked]))
    broken += limit_violations(job, evaluation)
    answer = _without_design(job, seed, checked, broken)
    if not evaluation.outcomes.run.makes_progress[0]:
        return answer
    found = sensitivities(job, checked) if with_sensitivities else None
    return _with_design(job, answer, evaluation).model_copy(update={"sensitivities": found})


def _without_design(job: Job, seed: int, plan: Plan | None, broken: list[Violation]) -> SimulatedDesign:
    return SimulatedDesign(
        capplan_version=__version__,
        catalog_hash=catalog_hash(),
        job=job.name,
        seed=seed,
        is_feasible=not broken,
        plan=plan,
        design=None,
        violations=tuple(broken),
        spread=None,
        carbon_scope=scope_text(job),
        warnings=(*hardware_notes([job.offers[plan.offer]]), *_notes_on_choices(job, plan)) if plan else (),
    )


def _with_design(job: Job, answer: SimulatedDesign, evaluation: Evaluation) -> SimulatedDesign:
    """Returns the answer for the single design of an evaluation whose run ends."""
    plan = evaluation.plans.plan(0)
    design = design_at(job, evaluation, 0, 0)
    step = _step_of(job, plan)
    known: dict[str, object] = {
        "design": design,
        "limits": limit_uses(job, evaluation),
        "simpler_models": simpler_models(job, evaluation),
        "spread": _spread(job, evaluation, answer.seed),
        "timeline": summary_of(step) if step else None,
        "operators": compute_parts(job, plan),
        "stage_memory": stage_memory(job, evaluation),
        "host_memory": host_memory(job, evaluation),
        "other_choices": one_change(job, plan).choices(),
        "warnings": (*answer.warnings, *_warnings(job, plan, design, evaluation)),
    }
    return answer.model_copy(update=known)


def one_step(job: Job, answer: SimulatedDesign) -> StepTimeline | None:
    """Returns every event of one step of a simulated plan; `None` where the answer has no timeline."""
    return _step_of(job, answer.plan) if answer.plan and answer.timeline else None


def _step_of(job: Job, plan: Plan) -> StepTimeline | None:
    try:
        return step_timeline(job, plan)
    except InputError:  # more operations than can be written out
        return None


def _spread(job: Job, evaluation: Evaluation, seed: int) -> Uncertainty | None:
    if not _can_be_replayed(evaluation):
        return None
    return uncertainty_of(job, evaluation, np.zeros(1, dtype=np.int64), 0, seed)


def _can_be_replayed(evaluation: Evaluation) -> bool:
    run = evaluation.outcomes.run
    worked_s = run.productive_s[0] + run.straggler_s[0] + run.lost_work_s[0]
    num_events = worked_s / run.checkpoint_interval_s[0] + run.num_failures[0]
    return bool(run.num_failures[0] <= MOST_FAILURES and NUM_REPLAYS * num_events <= MAX_EVENTS)


def _warnings(job: Job, plan: Plan, design: Design, evaluation: Evaluation) -> list[str]:
    notes = [*plan_notes(job, design), *straggler_notes(job, plan), *texts(never_measured_notes(job, plan))]
    notes += [*spares_notes(job, design), *server_notes(evaluation.outcomes.checkpoints, 0)]
    notes += [
        *interval_notes(plan, design.checkpoint_interval_s, evaluation),
        *better_interval_notes(job, evaluation),
    ]
    notes += full_plan_notes(design)
    if not _can_be_replayed(evaluation):
        notes.append(
            "The run fails or saves too often to be replayed, so its spread is unknown, and its mean less certain "
            "(docs/model/run.md)."
        )
    return [*notes, *left_out(job, plan)]


def _notes_on_choices(job: Job, plan: Plan) -> tuple[str, ...]:
    """Notes on the accelerator, the number format and fields without effect, for this plan alone."""
    precisions = job.workload.precisions
    notes = list(cautions_on_plan(narrowed_to(job, plan)))
    if plan.precision not in precisions:
        known = ", ".join(precision.value for precision in precisions)
        notes.append(f"precision {plan.precision.value} is not among those of the job ({known}).")
    return tuple(notes)
