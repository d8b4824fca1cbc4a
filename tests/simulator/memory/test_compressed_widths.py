"""What does attention to windows and compressed tokens keep and work with, counted by hand for each kind of layer?"""

from __future__ import annotations

import pytest

from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.workload import Workload
from simulator.memory.compressed_widths import (
    compressed_width,
    compressed_working_bytes,
    queries_again_width,
)
from tests.simulator.builders import changed, plan_of, table_of, training
from tests.simulator.compressed import DENSE, of_one_kind

# 16 heads of 512, latents of 512, 8 groups with 1,024 values each; windows of 128 tokens; one compressed token for 4, of which
# 256 are chosen, or one for 128, all of which are seen; an indexer of 64 heads of 128.
HEADS, WIDTH, LATENT, GROUPS = 16, 512, 512, 8 * 1024
WINDOW = of_one_kind(DENSE)
CHOSEN, HEAVY = of_one_kind(DENSE, chosen=True), of_one_kind(DENSE, heavy=True)
PLAN = table_of(plan_of())


def run_of(model: ModelShape, *, tokens: int = 4096, trains_indexer: bool = False) -> Workload:
    return changed(
        training(model, sequence_length=tokens, global_batch_size=8), trains_indexer=trains_indexer
    )


def kept(*, places: float, made: float, series: int) -> float:
    """Bytes per token without a loss: queries twice, outputs, latents and keys before and behind norms, groups, compressors."""
    values = 3 * HEADS * WIDTH + 2 * WIDTH * (1 + made) + LATENT + GROUPS + 2 * series * WIDTH
    return 2 * values + 2 * LATENT + 4 * (HEADS + places)


class TestKept:
    def test_layers_with_windows_alone_make_nothing(self) -> None:
        (width,) = compressed_width(run_of(WINDOW), PLAN)
        assert width == kept(places=128, made=0.0, series=0)

    def test_overlapping_groups_have_two_series_of_keys_and_weights(self) -> None:
        (width,) = compressed_width(run_of(CHOSEN), PLAN)
        assert width == kept(places=128 + 256, made=1 / 4, series=2)

    def test_heavily_compressed_tokens_are_all_seen(self) -> None:
        (width,) = compressed_width(run_of(HEAVY), PLAN)
        assert width == kept(places=128 + 4096 / 128, made=1 / 128, series=1)

    def test_short_sequences_have_fewer_places(self) -> None:
        (width,) = compressed_width(run_of(CHOSEN, tokens=512), PLAN)
        assert width == kept(places=128 + 512 / 4, made=1 / 4, series=2)

    def test_a_model_keeps_the_mean_of_its_layers(self) -> None:
        kinds = [(WINDOW, 1), (CHOSEN, 4), (HEAVY, 3)]
        widths = [float(compressed_width(run_of(model), PLAN)[0]) * number for model, number in kinds]
        (width,) = compressed_width(run_of(DENSE), PLAN)
        assert width == pytest.approx(sum(widths) / 8, rel=1e-12)

    @pytest.mark.parametrize(("precision", "inputs"), [(Precision.BF16, 0), (Precision.FP8, LATENT)])
    def test_a_loss_keeps_early_gradients_and_what_its_compressor_reads(
        self, precision: Precision, inputs: int
    ) -> None:
        plans = table_of(plan_of(precision=precision))
        (width,) = compressed_width(run_of(CHOSEN, trains_indexer=True), plans)
        (without,) = compressed_width(run_of(CHOSEN), plans)
        gradients, keys = 64 * 128 + 64 + 128 / 4, 4 * 128 + 128 / 4
        assert width - without == 2 * (gradients + keys) + inputs

    @pytest.mark.parametrize("model", [WINDOW, HEAVY])
    def test_layers_without_an_indexer_have_no_loss(self, model: ModelShape) -> None:
        assert compressed_width(run_of(model, trains_indexer=True), PLAN) == compressed_width(
            run_of(model), PLAN
        )

    def test_queries_and_the_key_before_its_norm_can_be_made_again(self) -> None:
        assert queries_again_width(run_of(DENSE)) == 2 * (2 * HEADS * WIDTH + WIDTH)


class TestAtWork:
    def test_windows_have_gradients_of_queries_outputs_and_joined_keys(self) -> None:
        (found,) = compressed_working_bytes(run_of(WINDOW), PLAN)
        assert found == 4096 * (2 * 2 * HEADS * WIDTH + 4 * WIDTH)

    def test_keys_are_joined_with_compressed_ones(self) -> None:
        (found,) = compressed_working_bytes(run_of(HEAVY), PLAN)
        assert found == 4096 * (2 * 2 * HEADS * WIDTH + 4 * WIDTH * (1 + 1 / 128))

    def test_scores_of_compressed_tokens_decide_where_sequences_are_long(self) -> None:
        plans = table_of(plan_of(), plan_of(micro_batch=2))
        short, more = compressed_working_bytes(run_of(CHOSEN, tokens=16_384), plans)
        assert short == 3 * 4 * 16_384 * 16_384 / 4
        assert more == 2 * short
        (long,) = compressed_working_bytes(run_of(CHOSEN, tokens=65_536), PLAN)
        assert long == 3 * 2**30

    def test_layers_without_an_indexer_have_no_scores(self) -> None:
        (found,) = compressed_working_bytes(run_of(HEAVY, tokens=16_384), PLAN)
        assert found == 16_384 * (2 * 2 * HEADS * WIDTH + 4 * WIDTH * (1 + 1 / 128)) < 3 * 4 * 16_384**2 / 4
