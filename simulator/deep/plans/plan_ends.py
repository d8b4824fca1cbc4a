"""Which operators and collectives belong to the model's ends: embedding, output layer, modules of multi-token prediction?"""

from __future__ import annotations

from dataclasses import replace

from simulator.deep.plans.plan_input_gradients import with_sums
from simulator.deep.plans.plan_items import PartPasses, work
from simulator.deep.plans.plan_operators import layer_passes
from simulator.deep.plans.tensor_ends import TensorEnds
from simulator.layers.input_gradients import entered_in_output
from simulator.layers.model_ends import embedding, look_up_of_module, output_layer
from simulator.layers.part_times import PartTimes
from simulator.layers.token_prediction import (
    JOINT,
    PROJECTION,
    SHIFTS,
    entered_in_projection,
    projection_operators,
    projection_weight_gradients_s,
)
from simulator.layers.weight_gradients import output_layer_weight_gradients_s
from simulator.machine.rank import Rank
from simulator.memory.predicted_tokens import plans_of_modules, repeats_projection

OUTPUT = "output layer"
"""Name of its product and the loss in sentences."""


def embedding_passes(rank: Rank) -> PartPasses:
    """Returns the passes through the input embedding."""
    return _look_up(rank, embedding(rank))


def _look_up(rank: Rank, times: PartTimes) -> PartPasses:
    ends = TensorEnds.of(rank)
    is_trained = rank.workload.lora is None
    backward = (*ends.leaving[1], *work("embedding", float(times.backward_compute_s[0]), has_weights=True))
    return PartPasses(
        forward=(*work("embedding", float(times.forward_compute_s[0])), *ends.leaving[0]),
        backward=backward if is_trained else (),
        weight_gradient_s=float(times.backward_compute_s[0]),
    )


def output_passes(rank: Rank) -> PartPasses:
    """Returns the passes through the output layer and the loss, for each predicted token."""
    times, ends = output_layer(rank), TensorEnds.of(rank)
    number = rank.workload.model.num_predicted_tokens
    forward = (*ends.entering[0], *work(OUTPUT, float(times.forward_compute_s[0]) / number))
    products = work(OUTPUT, float(times.backward_compute_s[0]) / number, has_weights=True)
    backward = with_sums(rank, products, OUTPUT, [entered_in_output(rank)], ends.entering[1])
    return PartPasses(
        forward=number * forward,
        backward=number * backward,
        weight_gradient_s=float(output_layer_weight_gradients_s(rank)[0]),
    )


def module_passes(rank: Rank) -> PartPasses:
    """Returns the passes through a module of multi-token prediction, without its logits."""
    in_layer = replace(rank, plans=plans_of_modules(rank.workload, rank.plans))
    first = _projection_passes(rank)
    layer = layer_passes(in_layer, is_expert=rank.workload.model.has_expert_modules)
    return PartPasses(
        forward=(*first.forward, *layer.forward),
        backward=(*layer.backward, *first.backward),
        weight_gradient_s=first.weight_gradient_s + layer.weight_gradient_s,
    )


def _projection_passes(rank: Rank) -> PartPasses:
    """Returns the passes through what precedes the layer in a module of multi-token prediction, and its norms."""
    found, ends = _look_up(rank, look_up_of_module(rank)), TensorEnds.of_projection(rank)
    forward, backward = (
        {
            name: work(name, float(seconds[way][0]), has_weights=way == 1 and name == PROJECTION)
            for name, seconds in projection_operators(rank).items()
        }
        for way in (0, 1)
    )
    again = (*forward[JOINT], *ends.entering[0], *forward[PROJECTION], *ends.leaving[0])
    repeated = again if repeats_projection(rank.workload, rank.plans)[0] else ()
    return PartPasses(
        forward=(*forward[SHIFTS], *found.forward, *again),
        backward=(
            *repeated,
            *ends.leaving[1],
            *with_sums(
                rank, backward[PROJECTION], PROJECTION, [entered_in_projection(rank)], ends.entering[1]
            ),
            *backward[JOINT],
            *found.backward,
        ),
        weight_gradient_s=float(projection_weight_gradients_s(rank)[0]),
    )
