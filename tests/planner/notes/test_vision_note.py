"""Is it told how much a vision encoder holds up the first stage, and which cut makes room for it?"""

from __future__ import annotations

import re

import pytest

from planner.notes.vision_note import vision_notes
from planner.one_design.simulated_design import simulate_plan
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.layout.chunks import split_layers
from tests.simulator.builders import changed, job_of, plan_of, step_of, table_of, training
from tests.simulator.vision import IMAGES, TOWER, on_images

MANY = changed(IMAGES, per_sequence=20)
LARGE = changed(TOWER, num_layers=24)
JOB = job_of(on_images(LARGE, MANY, model=training("llama-2-13b").model))
PIPELINE = plan_of(tensor=2, pipeline=4, data=8)


def told(job: Job, plan: Plan) -> str:
    return "\n".join(vision_notes(job, plan))


def with_workload(**fields: object) -> Job:
    return changed(JOB, workload=changed(JOB.workload, **fields))


def test_text_alone_has_no_such_notes() -> None:
    assert vision_notes(job_of(training()), plan_of()) == []


def test_the_time_of_the_encoder_is_told_in_layers_of_the_language_model() -> None:
    first = vision_notes(JOB, PIPELINE)[0]
    assert re.match(
        r"The vision encoder takes [\d.]+ ms of a micro-batch, as long as [\d.]+ layers of the language model, all of it on "
        r"the first stage \(docs/how-to/images.md\)\.",
        first,
    )
    assert first in simulate_plan(JOB, PIPELINE, with_sensitivities=False).warnings


def test_a_cut_that_makes_room_is_told_with_what_it_saves_and_how_to_search_it() -> None:
    note = vision_notes(JOB, PIPELINE)[1]
    found = re.search(r"cut as ([\dx ,]+), fewer .* \(-([\d.]+) %\): .*counts_as_layers=(\d+) searches", note)
    assert found is not None
    vision = changed(LARGE, counts_as_layers=int(found[3]))
    model = changed(JOB.workload.model, vision=vision)
    balanced = changed(JOB.workload, model=model, stage_layers="balanced")
    cut = split_layers(model, table_of(PIPELINE), "balanced").num_layers[0]
    assert cut[0] < 10
    listed = changed(JOB.workload, stage_layers=tuple(int(each) for each in cut))
    gain = 1.0 - step_listed_s(listed) / float(step_of(JOB.workload, PIPELINE).step_time_s[0])
    assert float(found[2]) == pytest.approx(100.0 * gain, abs=0.06)
    assert simulated_s(changed(JOB, workload=balanced)) == pytest.approx(step_listed_s(listed))


def step_listed_s(workload: object) -> float:
    return simulated_s(changed(JOB, workload=workload))


def simulated_s(job: Job) -> float:
    design = simulate_plan(job, PIPELINE, with_sensitivities=False).design
    assert design is not None
    return design.step_time_s


def test_nothing_is_told_of_cuts_that_the_job_lists_or_that_are_best_already() -> None:
    assert len(vision_notes(with_workload(stage_layers=(10, 10, 10, 10)), PIPELINE)) == 1
    few = changed(IMAGES, per_sequence=0.01)
    assert len(vision_notes(with_workload(images=few), PIPELINE)) == 1


def test_a_plan_without_a_pipeline_tells_that_others_were_tried_without_room() -> None:
    alone = plan_of(tensor=2, data=8)
    assert "Pipelines were tried with as many layers beside the encoder as elsewhere" in told(JOB, alone)
    counted = changed(JOB.workload.model, vision=changed(LARGE, counts_as_layers=3))
    assert "Pipelines were tried" not in told(with_workload(model=counted), alone)
    searched = changed(JOB, search=changed(JOB.search, pipeline_parallel=(1,)))
    assert "Pipelines were tried" not in told(searched, alone)
