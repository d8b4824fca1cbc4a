"""What should a reader know before relying on an answer? All remarks on a job, on its front and on one design."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from planner.calibration.notes import calibration_notes
from planner.grid_conventions import grid_notes
from planner.job.batch_size import batch_notes
from planner.job.named_model import told_changes
from planner.job.unused_fields import unused_notes
from planner.notes.accuracy_notes import accuracy_notes
from planner.notes.chosen_note import chosen_notes
from planner.notes.commitment_note import commitment_notes
from planner.notes.compressed_note import compressed_notes
from planner.notes.cooling_note import cooling_notes
from planner.notes.cut_note import balance_notes, cut_notes
from planner.notes.expert_note import expert_notes
from planner.notes.hybrid_note import hybrid_notes
from planner.notes.interleaving_note import interleaving_notes
from planner.notes.memory_note import full_front_notes
from planner.notes.missed_note import missed_notes
from planner.notes.muon_note import muon_notes
from planner.notes.placement_note import placement_notes
from planner.notes.precision_note import precision_notes
from planner.notes.price_notes import price_notes
from planner.notes.purchase_note import bought_front_notes, purchase_notes
from planner.notes.sharding_note import sharding_notes
from planner.notes.straggler_note import straggler_notes
from planner.notes.supply_note import supply_notes
from planner.notes.vision_note import memory_notes, pipeline_notes, text_notes, vision_notes
from planner.recommended.recommendation import Design, Uncertainty
from planner.recommended.same_accelerators import SameAccelerators
from planner.text import human
from planner.water_scopes import water_notes
from simulator.domain.job import Job
from simulator.units import YEAR


def cautions_on_answer(
    job: Job,
    front: Evaluation,
    best: Design,
    uncertainty: Uncertainty | None,
    others: SameAccelerators | None = None,
) -> tuple[str, ...]:
    """Returns what the reader of an answer should know before relying on its figures.

    Args:
        job: the job.
        front: the designs on the front.
        best: the recommended design.
        uncertainty: that of the recommended design.
        others: the best designs on its accelerators; `None` where the search was stopped.
    """
    notes = [
        *full_front_notes(front, best, others),
        *_no_deadline(job, front),
        *bought_front_notes(job, front, best),
    ]
    notes += [*missed_notes(others), *pipeline_notes(job, others)] if others else []
    notes += [*plan_notes(job, best), *balance_notes(job, best.plan), *precision_notes(job, best.plan)]
    notes += straggler_notes(job, best.plan)
    return (*notes, *_any_notes(job, uncertainty, best))


def cautions_on_failure(job: Job) -> tuple[str, ...]:
    """Returns what the reader of an answer without any design should know, and what may help."""
    return (*memory_notes(job), *_any_notes(job))


def cautions_on_plan(job: Job) -> tuple[str, ...]:
    """Returns what the reader of one plan should know of its job, before the notes on the plan itself (`plan_notes`)."""
    return tuple(_any_notes(job))


def _any_notes(job: Job, uncertainty: Uncertainty | None = None, best: Design | None = None) -> list[str]:
    """Remarks on a job, and on how well the step of the recommended design is known, if there is one."""
    notes = [*accuracy_notes(job, uncertainty, best), *calibration_notes(job)]
    offered = list(map(job.site_of, job.offers))
    sites = [*offered, *job.what_if.sites]
    notes += [*grid_notes(sites), *water_notes(offered), *cooling_notes(sites)]
    notes += price_notes(job)
    notes += [*told_changes(job.workload.model.source), *text_notes(job), *batch_notes(job)]
    return [*notes, *unused_notes(job)]


def _no_deadline(job: Job, front: Evaluation) -> list[str]:
    """A note if designs take longer than a year and no deadline excludes them."""
    num_long = int(np.sum(front.scores.time_to_train_s > YEAR))
    if num_long == 0 or job.limits.deadline_days is not None:
        return []
    longest = human.duration(float(front.scores.time_to_train_s.max()))
    note = (
        f"{num_long} of {len(front)} designs on the front take longer than a year, up to {longest}: set "
        "limits.deadline_days to exclude them."
    )
    return [note]


def plan_notes(job: Job, design: Design) -> list[str]:
    """Returns remarks on how a design is paid for, replaced where nodes fail, cut into chunks, sharded and placed."""
    plan = design.plan
    notes = [
        *purchase_notes(job, design),
        *commitment_notes(job, design),
        *supply_notes(job, design),
        *cut_notes(job, plan),
        *interleaving_notes(job, plan),
    ]
    notes += [
        *expert_notes(job, plan),
        *chosen_notes(job, plan),
        *compressed_notes(job, plan),
        *hybrid_notes(job, plan),
    ]
    notes += [*muon_notes(job, plan), *vision_notes(job, plan)]
    return [*notes, *sharding_notes(job, plan), *placement_notes(job, plan)]
