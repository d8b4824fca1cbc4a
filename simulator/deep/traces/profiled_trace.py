"""How do a profile and an execution trace of PyTorch become an operator trace? Times from one, tensors from the other.

Operators are matched by `Record function id` where the profile has it, else the n-th of a name to the n-th of that name.
Operators that launched no kernel (views, `zero_grad`) are left out.

    parameter    read in the forward pass, made by no operator, and read by the optimizer or called `weight` or `bias`
    gradient     made in the backward pass, and read by the optimizer
    state        what else the optimizer reads; running means and variances
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from simulator.deep.traces.execution_graph import GraphOperator, read_execution_graph
from simulator.deep.traces.kineto import ProfiledOperator, read_profile
from simulator.deep.traces.reused_ids import GraphTensor
from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import MOST_FLOP, OperatorRecord, TensorRecord, build_trace
from simulator.deep.traces.trace_text import broken, problems_of
from simulator.errors import InputError

_SPLIT = ("conv", "linear", "matmul", "addmm", "bmm", "aten::mm", "embedding", "mmbackward")
"""Parts of the names of operators that tensor parallelism divides."""
_WEIGHTS, _STATES = ("weight", "bias"), ("running_mean", "running_var")


@dataclass(frozen=True)
class _Pair:
    timed: ProfiledOperator
    graph: GraphOperator


def read_profiled(profile: Path, graph: Path, *, batch_size: int, name: str = "") -> OperatorTrace:
    """Returns the operator trace of one step from its profile and its execution trace.

    Args:
        profile: JSON of `torch.profiler`, gzipped or not.
        graph: JSON of `ExecutionTraceObserver` for the same step, gzipped or not.
        batch_size: samples of the step, which neither file says.
        name: name of the trace; default: that of the profile.

    Raises:
        InputError: a file is invalid, or the two are not of the same step; names file, place, field and rule.
    """
    return joined(
        read_profile(profile), graph, batch_size=batch_size, name=name or profile.name.partition(".")[0]
    )


def joined(profiled: Sequence[ProfiledOperator], graph: Path, *, batch_size: int, name: str) -> OperatorTrace:
    """Returns the operator trace of one step from the operators of its profile; see `read_profiled`."""
    timed = [operator for operator in profiled if operator.duration_s > 0.0]
    pairs = _pairs(timed, read_execution_graph(graph))
    if len(pairs) < len(timed) / 2:
        rule = f"has {len(pairs)} of the {len(timed)} operators with kernels of the profile: are they of the same step?"
        raise broken(graph, "nodes", "", rule)
    categories = _categories(pairs)
    tensors = {
        tensor.id: tensor
        for pair in reversed(pairs)
        for tensor in chain(pair.graph.outputs, pair.graph.inputs)
    }
    try:
        records = [
            TensorRecord(
                id=str(number),
                num_bytes=tensor.num_bytes,
                category=categories.get(tensor.storage, Category.ACTIVATION),
                storage=str(tensor.storage),
            )
            for number, tensor in sorted(tensors.items())
        ]
        operators = [_record(pair) for pair in pairs]
    except ValidationError as error:
        raise InputError(problems_of(error, "operators and their tensors"), str(graph)) from error
    return build_trace(name, batch_size, records, operators)


def _pairs(timed: Sequence[ProfiledOperator], graph: Sequence[GraphOperator]) -> list[_Pair]:
    """Matches the operators of both files, in the order of the profile."""
    by_id = {operator.record_id: operator for operator in graph}
    if any(operator.record_id in by_id for operator in timed):
        return [
            _Pair(operator, by_id[operator.record_id]) for operator in timed if operator.record_id in by_id
        ]
    waiting: dict[str, list[GraphOperator]] = {}
    for node in reversed(graph):
        waiting.setdefault(node.name, []).append(node)
    return [_Pair(operator, waiting[operator.name].pop()) for operator in timed if waiting.get(operator.name)]


def _categories(pairs: Sequence[_Pair]) -> dict[int, Category]:
    """What each storage holds; activations are left out."""
    read: dict[Phase, set[int]] = {phase: set() for phase in Phase}
    made: dict[Phase, set[int]] = {phase: set() for phase in Phase}
    allocated: set[int] = set()
    called: dict[int, set[str]] = {}
    for pair in pairs:
        read[pair.timed.phase] |= {tensor.storage for tensor in pair.graph.inputs}
        made[pair.timed.phase] |= {tensor.storage for tensor in pair.graph.outputs}
        if (
            pair.timed.phase is Phase.FORWARD
        ):  # views of inputs do not count: a compiled region makes views of weights
            allocated |= {tensor.storage for tensor in pair.graph.outputs} - {
                tensor.storage for tensor in pair.graph.inputs
            }
        for tensor in pair.graph.inputs:
            called.setdefault(tensor.storage, set()).add(tensor.argument)
    kept = read[Phase.OPTIMIZER]
    named = {storage for storage, names in called.items() if names.intersection(_WEIGHTS)}
    running = {storage for storage, names in called.items() if names.intersection(_STATES)}
    parameters = (read[Phase.FORWARD] - allocated) & (kept | named)
    gradients = (made[Phase.BACKWARD] & kept) - parameters
    states = ((kept - parameters - gradients) | running) - allocated
    return {
        **dict.fromkeys(states, Category.STATE),
        **dict.fromkeys(gradients, Category.GRADIENT),
        **dict.fromkeys(parameters, Category.PARAMETER),
    }


def _record(pair: _Pair) -> OperatorRecord:
    operator, graph = pair.timed, pair.graph
    lower = operator.name.lower()
    return OperatorRecord(
        name=operator.name,
        phase=operator.phase,
        duration_s=operator.duration_s,
        num_flop=_num_flop(graph) if operator.phase is Phase.FORWARD else 0.0,
        can_split=operator.phase is not Phase.OPTIMIZER and any(part in lower for part in _SPLIT),
        inputs=tuple(str(tensor.id) for tensor in graph.inputs),
        outputs=tuple(str(tensor.id) for tensor in graph.outputs),
    )


def _num_flop(graph: GraphOperator) -> float:
    """Operations of a product with a weight: two for each output and each input that contributes to it.

    An embedding multiplies nothing: its `indices` choose rows of the weight.
    """
    weights: list[GraphTensor] = [
        tensor for tensor in graph.inputs if tensor.argument == "weight" and len(tensor.shape) > 1
    ]
    is_lookup = any(tensor.argument == "indices" for tensor in graph.inputs)
    if is_lookup or not weights or not graph.outputs or not weights[0].shape[0]:
        return 0.0
    per_output = weights[0].num_elements / weights[0].shape[0]
    return min(2.0 * per_output * graph.outputs[0].num_elements, MOST_FLOP)
