"""What do the losses of several predicted tokens, and of the micro-batches that wait, keep, and for how long?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Recompute, Schedule
from simulator.memory.activations import Activations
from simulator.memory.loss_memory import embedding_at_work, logits_bytes
from simulator.memory.peak import memory_by_stage
from tests.simulator.builders import plan_of, table_of, training


@pytest.mark.parametrize(("logit_bytes", "kept"), [(2, 2.0), (6, 4.0)])
def test_every_further_prediction_keeps_probabilities_in_32_bits_or_its_logits_if_these_take_less(
    logit_bytes: int, kept: float
) -> None:
    # Eight micro-batches of a GPipe wait together: seven beside the current one.
    plans = table_of(plan_of(pipeline=4, tensor=4, schedule=Schedule.GPIPE))
    usual = training("llama-3.1-8b", global_batch_size=8).model_copy(update={"logit_bytes": logit_bytes})
    model = usual.model.model_copy(update={"num_mtp_layers": 2})
    (current, waiting), (current_more, waiting_more) = (
        logits_bytes(workload, plans) for workload in (usual, usual.model_copy(update={"model": model}))
    )
    logits = usual.sequence_length * usual.model.vocabulary_size / 4
    assert current_more - current == pytest.approx(2 * kept * logits)
    assert waiting_more - waiting == pytest.approx(7 * 2 * kept * logits)


@pytest.mark.parametrize("num_micro_batches", [2, 4, 8])
def test_zb_h1_keeps_gradients_of_logits_of_no_more_micro_batches_than_there_are(
    num_micro_batches: int,
) -> None:
    # Up to four on four stages, in 16 bits, with the inputs of the final norm and of the output layer.
    plans = table_of(plan_of(pipeline=4, schedule=Schedule.ZB_H1))
    workload = training("llama-3.1-8b", global_batch_size=num_micro_batches)
    of_one = 2.0 * workload.model.vocabulary_size + 2 * 2.0 * workload.model.hidden_size
    waiting = (min(4, num_micro_batches) - 1) * workload.sequence_length * of_one
    assert logits_bytes(workload, plans)[1] == pytest.approx(waiting)


@pytest.mark.parametrize("has_input", [True, False])
def test_the_embedding_gradient_of_a_module_stands_beside_the_working_layer_of_the_first_stage(
    *, has_input: bool
) -> None:
    # The module goes backward first, and its activations are gone; both gradients are there when the layers have gone, too.
    # On a stage without the embedding that of the module leaves at once.
    usual = training("llama-3.1-8b")
    workload = usual.model_copy(update={"model": usual.model.model_copy(update={"num_mtp_layers": 1})})
    gradient = 2.0 * usual.model.vocabulary_size * usual.model.hidden_size
    kept, released, of_module, at_work = (np.array([gigabytes * 1e9]) for gigabytes in (5.0, 4.0, 0.5, 1.0))
    activations = Activations(
        kept_bytes=kept, released_bytes=released, at_work_bytes=at_work, on_host_bytes=0.0 * kept,
        of_modules_bytes=of_module,
    )  # fmt: skip
    embedding, layer = embedding_at_work(
        workload, table_of(plan_of()), activations, has_input=np.array([float(has_input)]), modules=1.0
    )
    assert layer == pytest.approx(1e9 + has_input * (gradient - 0.5e9))
    assert embedding == pytest.approx(max(2.0 * has_input * gradient - 4e9, gradient - 0.5e9))


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_the_gradients_of_the_last_layer_stay_until_the_embedding_has_its_own(zero: int) -> None:
    # One layer of 218,112,000 weights on the first of two stages, of which full recomputation keeps the input alone.
    workload = training("llama-3.1-8b", global_batch_size=64, sequence_length=512)
    shape = workload.model.model_copy(update={"num_layers": 2})
    plan = plan_of(pipeline=2, data=8, zero=zero, recompute=Recompute.FULL)
    first = memory_by_stage(workload.model_copy(update={"model": shape}), plan).workspace_bytes[0]
    embedding = 2.0 * 128_256 * 4096
    layer_input = 2.0 * 512 * 4096
    expected = workload.sync_buffer_bytes + 2.0 * 218_112_000 + embedding - layer_input
    assert first == pytest.approx(expected, rel=1e-9)
