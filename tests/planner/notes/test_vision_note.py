"""Is it told how much a vision encoder holds up the first stage, and which cut makes room for it?"""

from __future__ import annotations

import re

import pytest

from constraints.evaluation import evaluate
from planner.notes.cautions import cautions_on_answer, cautions_on_failure
from planner.notes.vision_note import memory_notes, pipeline_notes, text_notes, vision_notes
from planner.one_design.simulated_design import simulate_plan
from planner.recommended.recommendation import Design
from planner.recommended.same_accelerators import same_accelerators
from simulator.domain.job import Job
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.layout.chunks import split_layers
from tests.simulator.builders import changed, job_of, plan_of, table_of, training
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
        r"The vision encoder takes [\d.]+ ms of a micro-batch, as long as [\d.]+ of the language model's layers, all of it on "
        r"the first stage \(docs/how-to/images.md\)\.",
        first,
    )
    assert first in simulate_plan(JOB, PIPELINE, with_sensitivities=False).warnings


@pytest.mark.parametrize(("stages", "is_told"), [(1, False), (2, True)])
def test_where_it_stands_is_told_of_pipelines(stages: int, is_told: bool) -> None:
    first = vision_notes(JOB, plan_of(tensor=2, pipeline=stages, data=8))[0]
    assert ("all of it on the first stage" in first) == is_told


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
    even_s, listed_s, balanced_s = (
        simulated(changed(JOB, workload=each)).step_time_s for each in (JOB.workload, listed, balanced)
    )
    assert float(found[2]) == pytest.approx(100.0 * (1.0 - listed_s / even_s), abs=0.06)
    assert balanced_s == pytest.approx(listed_s)


def simulated(job: Job, plan: Plan = PIPELINE) -> Design:
    design = simulate_plan(job, plan, with_sensitivities=False).design
    assert design is not None
    return design


def test_nothing_is_told_of_cuts_that_the_job_lists_or_that_are_best_already() -> None:
    assert "layers cut as" not in told(with_workload(stage_layers=(10, 10, 10, 10)), PIPELINE)
    few = changed(IMAGES, per_sequence=0.01)
    assert "layers cut as" not in told(with_workload(images=few), PIPELINE)


def test_where_few_micro_batches_have_an_image_the_time_is_that_of_one_of_them() -> None:
    some = told(with_workload(images=changed(IMAGES, per_sequence=0.25)), PIPELINE)
    whole = told(with_workload(images=changed(IMAGES, per_sequence=1)), PIPELINE)
    assert "of a micro-batch with an image, one of 4, as long as" in some
    of_one, of_all = (re.search(r"takes ([\d.]+ ms) of", text) for text in (some, whole))
    assert of_one is not None
    assert of_all is not None
    assert of_one[1] == of_all[1]


class TestRecomputation:
    def test_what_it_saves_and_costs_is_told_as_simulated(self) -> None:
        note = vision_notes(JOB, PIPELINE)[2]
        found = re.search(r"would need ([\d.]+) GiB instead of ([\d.]+) GiB, .* be ([\d.]+) % longer", note)
        assert found is not None
        again = with_workload(images=changed(MANY, encoder_recompute=Recompute.FULL))
        before, after = (simulated(job).peak_memory_bytes / 2.0**30 for job in (JOB, again))
        assert (float(found[1]), float(found[2])) == pytest.approx((after, before), abs=0.06)
        longer = simulated(again).step_time_s / simulated(JOB).step_time_s - 1.0
        assert float(found[3]) == pytest.approx(100.0 * longer, abs=0.06)

    def test_nothing_is_told_where_it_saves_little_or_nothing(self) -> None:
        for images in (
            changed(MANY, encoder_recompute=Recompute.FULL),
            changed(MANY, trains_encoder=False),
            changed(IMAGES, per_sequence=0.01),
        ):
            job = with_workload(images=images)
            assert "encoder_recompute" not in told(job, PIPELINE)

    def test_where_no_design_fits_it_is_told_that_it_may_help(self) -> None:
        (note,) = memory_notes(JOB)
        assert "workload.images.encoder_recompute=full" in note
        assert "workload.images.trains_encoder=false" in note
        assert note in cautions_on_failure(JOB)
        assert not memory_notes(with_workload(images=changed(MANY, encoder_recompute=Recompute.FULL)))
        assert not memory_notes(job_of(training()))

    def test_it_is_not_told_where_the_schedules_rule_it_out(self) -> None:
        # The layout rule `weight_gradients`: schedules that delay weight gradients keep what these need.
        for schedules, is_told in (((Schedule.ZB_H1, Schedule.ZB_V), False), (tuple(Schedule), True)):
            search = changed(JOB.search, pipeline_schedules=schedules)
            assert bool(memory_notes(changed(JOB, search=search))) == is_told

    def test_what_may_help_a_failed_search_is_not_told_of_one_plan(self) -> None:
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZB_H1):
            plan = changed(PIPELINE, pipeline_schedule=schedule, recompute=Recompute.NONE, zero_stage=1)
            found = simulate_plan(JOB, plan, with_sensitivities=False)
            assert found.design is not None
            assert not set(memory_notes(JOB)) & set(found.warnings)


class TestPipelines:
    """Designs without a pipeline are best where pipelines are searched without room for the encoder."""

    ALONE = plan_of(tensor=4, data=4)

    def note(self, job: Job) -> str:
        return "\n".join(pipeline_notes(job, same_accelerators(job, self.ALONE)))

    def test_the_fastest_is_told_with_the_cut_that_makes_room(self) -> None:
        note = self.note(JOB)
        found = re.search(
            r"With fewer, TP (\d+) x PP (\d+) x DP (\d+) would take .*counts_as_layers=(\d+)", note
        )
        assert found is not None
        tensor, pipeline, data, _ = (int(each) for each in found.groups())
        assert tensor * pipeline * data == self.ALONE.num_gpus
        assert pipeline > 1
        others = same_accelerators(JOB, self.ALONE)
        front = evaluate(JOB, table_of(self.ALONE))
        assert note in cautions_on_answer(JOB, front, simulated(JOB, self.ALONE), None, others)

    def test_nothing_is_told_of_pipelines_that_are_slower_with_the_best_cut_too(self) -> None:
        fast = plan_of(tensor=2, data=8)
        assert fast.num_gpus == self.ALONE.num_gpus
        assert not pipeline_notes(JOB, same_accelerators(JOB, fast))

    def test_nothing_is_told_where_room_was_made_or_no_pipeline_searched(self) -> None:
        counted = changed(JOB.workload.model, vision=changed(LARGE, counts_as_layers=3))
        assert not self.note(with_workload(model=counted, stage_layers="balanced"))
        assert not self.note(changed(JOB, search=changed(JOB.search, pipeline_parallel=(1,))))


def test_a_language_model_that_is_trained_alone_is_told() -> None:
    (note,) = text_notes(job_of(training("qwen3-vl-8b")))
    assert note.startswith("The job has no images: the language model is trained alone")
    assert not text_notes(job_of(training("llama-3.1-8b")))
    assert not text_notes(JOB)
