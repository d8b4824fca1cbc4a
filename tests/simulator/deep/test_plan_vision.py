"""Does the deep depth play a vision encoder as the fast depth prices it?"""

from __future__ import annotations

import pytest

from simulator.deep.plans.compute_parts import VISION_ENCODER, compute_parts
from simulator.deep.plans.plan_items import collectives_of, works_of
from simulator.deep.plans.plan_step import parts_and_shape, plan_step
from simulator.domain.hardware import Precision
from simulator.domain.images import Images
from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, Recompute, Schedule
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from simulator.step.model_parts import ModelParts, part_times
from simulator.step.parts import VISION, Part
from tests.simulator.builders import changed, job_of, plan_of, step_of
from tests.simulator.vision import DEEP_TOWER, IMAGES, TOWER, on_images

FROZEN = changed(IMAGES, trains_encoder=False)
WHOLE = changed(TOWER, is_replicated=True)
WORKLOADS: dict[str, Workload] = {
    "trained": on_images(),
    "frozen": on_images(images=FROZEN),
    "recomputed": on_images(DEEP_TOWER, changed(IMAGES, encoder_recompute=Recompute.FULL)),
    "cores recomputed": on_images(images=changed(IMAGES, encoder_recompute=Recompute.SELECTIVE)),
    "replicated": on_images(WHOLE, has_sequence_parallel=False),
    "few images": on_images(images=changed(IMAGES, per_sequence=0.3)),
    "adapters": on_images(DEEP_TOWER, lora=Lora(rank=16)),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("tensor", [1, 4])
def test_operators_and_collectives_of_every_part_take_its_time(name: str, tensor: int) -> None:
    parts, _ = parts_and_shape(job_of(WORKLOADS[name]), plan_of(tensor=tensor, pipeline=2, data=2))
    for part in VISION:
        passes, times = parts.passes[part], part_times(parts.rank, part)
        for items, computed_s, whole_s in (
            (passes.forward, times.forward_compute_s, times.forward_s),
            (passes.backward, times.backward_compute_s, times.backward_s),
        ):
            works_s = sum(each.duration_s for each in works_of(items) if not each.label.startswith("cores"))
            assert works_s == pytest.approx(float(computed_s[0]), abs=1e-12)
            moved_s = sum(each.alone_s for each in collectives_of(items))
            assert moved_s >= float((whole_s - computed_s)[0]) - 1e-12


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_frozen_has_no_backward_pass(name: str) -> None:
    parts, _ = parts_and_shape(job_of(WORKLOADS[name]), plan_of(data=4, zero=3))
    for part in VISION:
        trained = {"frozen": {Part.PROJECTOR}, "adapters": set()}.get(name, set(VISION))
        assert bool(parts.passes[part].backward) == (part in trained)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(data=8),
        plan_of(tensor=2, pipeline=2, data=2),
        plan_of(tensor=2, context=2, data=2),
        plan_of(pipeline=2, virtual=2, data=4),
        plan_of(data=8, zero=3),
        plan_of(data=8, zero=2),
        plan_of(pipeline=4, data=2, schedule=Schedule.ZB_H1),
    ],
    ids=["replicas", "stages", "context", "chunks", "ZeRO-3", "ZeRO-2", "zero bubble"],
)
def test_both_depths_take_as_long(name: str, plan: Plan) -> None:
    workload = WORKLOADS[name]
    fast_s = float(step_of(workload, plan).step_time_s[0])
    assert plan_step(job_of(workload), plan).step_time_s == pytest.approx(fast_s, rel=5e-3)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8])
@pytest.mark.parametrize("tower", [TOWER, DEEP_TOWER])
def test_operators_sum_to_the_computation_of_a_step(precision: Precision, tower: VisionEncoder) -> None:
    again = changed(IMAGES, encoder_recompute=Recompute.FULL)
    workload = on_images(tower, again, precisions=(precision,))
    plan = plan_of(tensor=2, pipeline=2, data=2, precision=precision)
    found = {each.name: each for each in compute_parts(job_of(workload), plan)}
    total_s = sum(each.forward_s + each.backward_s + each.recomputed_s for each in found.values())
    assert total_s == pytest.approx(float(step_of(workload, plan).compute_s[0]), rel=1e-6)
    encoder = found[VISION_ENCODER]
    assert min(encoder.forward_s, encoder.backward_s, encoder.recomputed_s) > 0.0


def test_the_encoder_runs_on_the_first_stage_alone() -> None:
    parts, _ = parts_and_shape(job_of(on_images()), plan_of(pipeline=2, virtual=2, data=2))
    first, *others = parts.kinds
    assert first[:9] == (Part.PATCHES, *[Part.ENCODER] * 6, Part.PROJECTOR, Part.EMBEDDING)
    assert not any(kind in VISION for chunk in others for kind in chunk)
    fast = ModelParts.of(parts.rank, parts.chunks)
    assert fast.counts[Part.ENCODER].tolist() == [[6.0, 0.0, 0.0, 0.0]]


def test_more_images_than_one_micro_batch_of_text() -> None:
    """Images that fill a sequence take as many patches as four sequences have tokens."""
    filled = on_images(images=Images(tokens_per_image=1024, per_sequence=4))
    assert parts_and_shape(job_of(filled), plan_of())[0].num_items > 0
