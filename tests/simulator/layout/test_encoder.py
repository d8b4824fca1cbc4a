"""Which plans do the layers of a vision encoder see?"""

from __future__ import annotations

import pytest

from simulator.domain.plan import Recompute, shard_group
from simulator.layout.encoder import encoder_plans
from tests.simulator.builders import changed, plan_of, table_of
from tests.simulator.vision import IMAGES, TOWER, on_images


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_context_parallel_ranks_each_encode_whole_images_and_share_its_weights(zero: int) -> None:
    plans = table_of(plan_of(tensor=2, context=4, data=3, zero=zero))
    own = encoder_plans(on_images(), plans)
    assert own.context_parallel.tolist() == [1]
    assert own.data_parallel.tolist() == [12]
    assert shard_group(own).tolist() == shard_group(plans).tolist()


def test_ranks_that_run_all_of_it_are_no_tensor_parallel_ones() -> None:
    plans = table_of(plan_of(tensor=4, data=2))
    assert encoder_plans(on_images(), plans).tensor_parallel.tolist() == [4]
    whole = on_images(changed(TOWER, is_replicated=True))
    assert encoder_plans(whole, plans).tensor_parallel.tolist() == [1]


def test_it_recomputes_what_the_workload_says_where_it_is_trained() -> None:
    plans = table_of(plan_of(recompute=Recompute.FULL))
    again = changed(IMAGES, encoder_recompute=Recompute.SELECTIVE)
    assert encoder_plans(on_images(), plans).recompute.tolist() == [Recompute.NONE.code]
    assert encoder_plans(on_images(images=again), plans).recompute.tolist() == [Recompute.SELECTIVE.code]
    frozen = changed(again, trains_encoder=False)
    assert encoder_plans(on_images(images=frozen), plans).recompute.tolist() == [Recompute.NONE.code]
