"""What do the losses of several predicted tokens, and of the micro-batches that wait, keep?"""

from __future__ import annotations

import pytest

from simulator.domain.plan import Schedule
from simulator.memory.loss_memory import logits_bytes
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
