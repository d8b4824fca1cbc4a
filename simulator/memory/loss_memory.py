"""How much memory do the ends of the model need: logits, inputs of the output layer, the gradient of the embedding?

The loss of a micro-batch is finished with its logits before the last layer begins its backward pass, so 1F1B, interleaved or
not, holds the logits of one micro-batch. If the last interleaved group has R micro-batches and the others N, the last chunk
runs that group's forward passes (v - 1) (N - R) micro-batches ahead of its backward passes. GPipe computes the losses of all
micro-batches before the first backward pass (`ScheduleGPipe` of PyTorch), and ZB-H1 keeps gradients of logits until those of
the output layer's weights are computed. Losses of multi-token prediction come before the model's own loss and wait for it, as
it goes backward first (`process_mtp_loss` of Megatron Core). PyTorch's pipelines return the outputs of a step: the last stage
keeps all of them (`output_chunks` of its `stage.py`), without what their loss needed, and concatenates them when nothing else
is left.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable, Schedule, interleaved_groups
from simulator.domain.workload import Workload
from simulator.layout.kept_inputs import ACTIVATION_BYTES, sequence_split
from simulator.layout.micro_batches import micro_batch_tokens, num_micro_batches
from simulator.memory.activations import Activations
from simulator.pipeline.groups import last_group_size
from simulator.table import Floats, Integers

SOFTMAX_BYTES = 4.0
"""A probability in 32 bits, which the loss turns into its gradient."""


def logits_bytes(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns what the end of the model keeps on one rank, `(n,)`: of the current micro-batch, and of those that wait.

    What multi-token prediction passes to the output layer counts as activations. The first result is for the loss, or for
    the backward pass of the output layer, which holds gradients of logits, the gathered input and its gradient.
    """
    is_late = plans.pipeline_schedule == Schedule.ZB_H1.code
    tokens = micro_batch_tokens(workload, plans)
    logits = tokens * workload.model.vocabulary_size / plans.tensor_parallel
    inputs = tokens * _kept_inputs_width(workload, plans)
    backward = ACTIVATION_BYTES * logits + tokens * _whole_inputs_width(workload, plans)
    of_loss = min(float(workload.logit_bytes), SOFTMAX_BYTES)
    waiting = np.where(is_late, ACTIVATION_BYTES, of_loss)
    num_modules = workload.model.num_mtp_layers
    return (
        np.maximum(workload.logit_bytes * logits, backward) + inputs + num_modules * of_loss * logits,
        (_num_held(workload, plans) - 1) * (workload.model.num_predicted_tokens * waiting * logits + inputs),
    )


def joined_logits_bytes(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns kept logits of other micro-batches, and logits of all together with their concatenated copy, `(n,)` each."""
    tokens = micro_batch_tokens(workload, plans)
    one = ACTIVATION_BYTES * tokens * workload.model.vocabulary_size / plans.tensor_parallel
    one = np.where(plans.pipeline_parallel > 1, one, 0.0)
    num_all = num_micro_batches(workload, plans)
    return (num_all - 1.0) * one, 2.0 * num_all * one


def embedding_gradient_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the gradient of the input embedding on one rank, `(n,)`: of all rows, however few the tokens are (PyTorch).

    It is in 16 bits before accumulation. A frozen embedding has none.
    """
    weights = 0 if workload.lora else workload.model.embedding_parameters
    return np.asarray(ACTIVATION_BYTES * weights / plans.tensor_parallel)


def embedding_at_work(
    workload: Workload,
    plans: PlanTable,
    activations: Activations,
    *,
    has_input: Floats,
    modules: Floats | float,
) -> tuple[Floats, Floats]:
    """Returns embedding gradients beyond the activations freed by then, and the working layer's needs at that time.

    Gradients of one weight from several places wait until all are there, and are then added. Multi-token prediction has its own
    once its modules have gone backward; where the stage also has the embedding, they wait for all layers.

    Args:
        workload: what is trained.
        plans: `(n,)` designs.
        activations: of one stage of each, or of s stages.
        has_input: whether the stage has the embedding.
        modules: of multi-token prediction on the stage.
    """
    gradient = embedding_gradient_bytes(workload, plans)
    behind_all, at_work = has_input * gradient - activations.released_bytes, activations.at_work_bytes
    if not workload.model.num_mtp_layers:
        return behind_all, at_work
    has_modules, gone = np.sign(modules), activations.of_modules_bytes
    waiting = has_input * has_modules * gradient
    behind_modules = has_modules * np.minimum(2.0, modules) * gradient - gone
    embedding = np.maximum(behind_all + waiting, behind_modules)
    return embedding, np.maximum(at_work, at_work + waiting - gone)


def _kept_inputs_width(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token of the inputs of the final norm and of the output layer, which needs none if it is not trained.

    Streams of the residual that become one in front of that norm are kept as well; those of modules count with these.
    """
    model = workload.model
    num_kept = 1.0 if workload.lora else 2.0
    streams = model.stream_width if model.hyper_connections else 0
    width = (num_kept * model.hidden_size + streams) / sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * width)


def _whole_inputs_width(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token of the output layer's input gradient and, with sequence parallelism, of its gathered input."""
    is_gathered = (plans.tensor_parallel > 1) & workload.has_sequence_parallel & (workload.lora is None)
    return np.asarray(ACTIVATION_BYTES * (1.0 + is_gathered) * workload.model.hidden_size)


def _num_of_last_group(plans: PlanTable, num_all: Integers) -> Integers:
    """Micro-batches of the last interleaved group whose losses wait at once: min(R, (v - 1) (N - R) + 1); otherwise 1."""
    is_grouped = (plans.interleaved_group_size > 0) & (plans.pipeline_schedule == Schedule.ONE_F_ONE_B.code)
    group = interleaved_groups(plans)
    last = last_group_size(num_all, group)
    early = np.maximum(0, (plans.virtual_pipeline - 1) * (group - last))
    return np.where(is_grouped, np.minimum(last, early + 1), 1)


def _num_held(workload: Workload, plans: PlanTable) -> Integers:
    """Number of micro-batches whose loss or gradients of logits are held at once."""
    num_all = num_micro_batches(workload, plans)
    is_late = plans.pipeline_schedule == Schedule.ZB_H1.code
    held = np.where(is_late, np.minimum(plans.pipeline_parallel, num_all), _num_of_last_group(plans, num_all))
    return np.where(plans.pipeline_schedule == Schedule.GPIPE.code, num_all, held)
