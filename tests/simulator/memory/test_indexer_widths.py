"""What does attention to chosen tokens keep and work with, counted by hand for 16 heads on one, two and four ranks?"""

from __future__ import annotations

import pytest

from simulator.domain.hardware import Precision
from simulator.domain.token_indexer import TokenIndexer
from simulator.memory.indexer_widths import core_width, keys_width, queries_width, working_bytes
from tests.simulator.builders import changed, plan_of, table_of, training
from tests.simulator.sparse import DENSE, SMALL, with_indexer

RUN = training(SMALL, sequence_length=4096, global_batch_size=8)
WITHOUT_LOSS = changed(RUN, trains_indexer=False)
# Latents: 768 of queries, 512 of keys and values, with 64 rotary values; heads of 128. Indexer: 16 heads of 128, 1,024 tokens.
KEY, VALUES, HIDDEN, QUERY_RANK = 512 + 64, 512, 2048, 768


class TestKept:
    @pytest.mark.parametrize("tensor", [1, 2, 4])
    def test_ranks_split_queries(self, tensor: int) -> None:
        (width,) = queries_width(RUN, table_of(plan_of(tensor=tensor)))
        assert width == 2 * 16 / tensor * ((128 + 64) + KEY)

    def test_the_key_is_shared_by_all_heads_and_with_a_loss_that_of_the_indexer_is_there(self) -> None:
        assert keys_width(RUN) == 2 * (KEY + 128)
        assert keys_width(WITHOUT_LOSS) == 2 * KEY

    @pytest.mark.parametrize("tensor", [1, 4])
    def test_a_core_keeps_a_tile_of_64_heads_however_few_a_rank_has(self, tensor: int) -> None:
        (width,) = core_width(WITHOUT_LOSS, table_of(plan_of(tensor=tensor)))
        assert width == 64 * (2 * VALUES + 4) + 4 * 1024

    def test_keys_of_other_ranks_are_gathered(self) -> None:
        alone, shared = core_width(WITHOUT_LOSS, table_of(plan_of(), plan_of(context=4)))
        assert shared - alone == 3 * 2 * KEY

    def test_places_are_no_more_than_tokens(self) -> None:
        short = changed(WITHOUT_LOSS, sequence_length=512)
        (width,) = core_width(short, table_of(plan_of()))
        assert width == 64 * (2 * VALUES + 4) + 4 * 512

    @pytest.mark.parametrize(
        ("tensor", "precision", "inputs"),
        [
            (1, Precision.BF16, 0),  # others keep them
            (4, Precision.BF16, 2 * (HIDDEN + QUERY_RANK)),
            (1, Precision.FP8, 1 * (2 * HIDDEN + QUERY_RANK)),
            (4, Precision.FP8, 1 * (2 * HIDDEN + QUERY_RANK)),
        ],
    )
    def test_a_loss_keeps_inputs_a_key_and_early_gradients(
        self, tensor: int, precision: Precision, inputs: int
    ) -> None:
        plans = table_of(plan_of(tensor=tensor, context=2, precision=precision))
        (width,), (without,) = core_width(RUN, plans), core_width(WITHOUT_LOSS, plans)
        gathered = 2 * 128  # the key of the indexer on the other rank
        gradients = 2 * (16 * 128 + 16 + 2 * 128)
        assert width - without == pytest.approx(gathered + inputs + 2 * 128 + gradients)

    def test_layers_that_share_an_indexer_keep_its_part_once(self) -> None:
        indexer = TokenIndexer(num_heads=16, head_dim=128, chosen_tokens=1024, layer_step=4)
        few = changed(RUN, model=with_indexer(DENSE, indexer))  # 1 + 7 // 4 = 2 of 8 layers
        plans = table_of(plan_of(tensor=4))
        (all_have,), (two_have,), (none,) = (core_width(each, plans) for each in (RUN, few, WITHOUT_LOSS))
        assert two_have - none == pytest.approx(0.25 * (all_have - none))


def backward_bytes(*, tokens: int, context: int) -> float:
    """Bytes of the backward pass of a core with a tile of 64 heads, of which 16 are there."""
    of_heads = 2 * (2 * 64 * (KEY + 2 * VALUES) + 64 * KEY + 16 * VALUES)
    return tokens * (of_heads + 4 * context * KEY + 2 * 4 * 1024)


class TestAtWork:
    def test_long_ranks_work_with_tensors_of_their_tiles(self) -> None:
        (found,) = working_bytes(RUN, table_of(plan_of()))
        assert found == backward_bytes(tokens=4096, context=1)

    def test_keys_of_all_ranks_have_gradients_in_32_bits(self) -> None:
        one, two = working_bytes(RUN, table_of(plan_of(micro_batch=1), plan_of(context=2, micro_batch=2)))
        assert two - one == 4096 * 4 * KEY  # as many tokens a rank, with keys of twice as many

    def test_scores_of_long_sequences_are_computed_a_gibibyte_at_a_time(self) -> None:
        (found,) = working_bytes(changed(RUN, sequence_length=1_048_576), table_of(plan_of(context=1024)))
        assert found == max(backward_bytes(tokens=1024, context=1024), 3 * 2**30) == 3 * 2**30

    def test_scores_of_shorter_sequences_need_no_more_than_they_have(self) -> None:
        (found,) = working_bytes(changed(RUN, sequence_length=524_288), table_of(plan_of(context=1024)))
        scores = 4 * 512 * 524_288
        assert scores == 2**30
        (fewer,) = working_bytes(changed(RUN, sequence_length=262_144), table_of(plan_of(context=512)))
        assert (found, fewer) == (3 * scores, 3 * scores / 2)
        assert backward_bytes(tokens=512, context=512) < 3 * scores / 2
