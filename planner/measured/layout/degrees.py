"""How was a measured run laid out over its accelerators? Degrees, pipeline chunks and batches, from a row's columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.frameworks.habits import Habits
from planner.measured.frameworks.names import trains_whole_models
from planner.measured.layout.batches import MOST_ADDED_FRACTION, batches
from planner.measured.layout.sharding import LAST_STAGE, named_stage, zero_stage
from planner.measured.layout.stage_cuts import listed_chunks
from planner.measured.run_layout import RunLayout
from planner.measured.workload.sequences import splits_sequence_only
from simulator.layout.chunks import can_split_evenly

MOST_ADDED_LAYERS_FRACTION = 0.1
"""Share of layers that may be added to a pipeline whose layers do not make up its chunks, or that a guessed one may lack."""
TENSOR_DEGREES = (1, 2, 4, 8)
"""Possible tensor-parallel degrees of a run that does not state its own."""
LEAST_TENSOR_DEGREES = tuple(sorted(factor * 2**power for factor in (1, 3) for power in range(12)))
"""Possible tensor-parallel degrees of a run with FSDP and fewer sequences than accelerators: also those of 6,144 chips."""
GRADIENTS_STAGE = 2
"""Of ZeRO: DeepSpeed and Colossal-AI refuse pipelines with it (`PipelineEngine`, `HybridParallelPlugin`), so that a run which
names it, and neither `tp` nor `pp`, has replicas alone."""
CONTEXT_DEGREES = (2, 4, 8, 16, 32, 64)
"""Possible context-parallel degrees, if whole sequences do not fit."""
EXPERT_DEGREES = (1, 2, 4, 8, 16, 32, 64)
"""Possible expert-parallel degrees."""
MOST_STAGES = 256
"""Possible numbers of pipeline stages."""
LEAST_CONTEXT_TOKENS = 4096
"""Smallest number of tokens of a sequence per rank if context parallelism is derived from the other degrees."""
MOST_UNSPLIT_GPUS = 8
"""Number of accelerators up to which a run without stated degrees is taken to split nothing."""
GROUP_SIZE = "microbatch_group_size_per_vp_stage"
"""Column of the micro-batches of an interleaved group, by the name of Megatron Core's option."""

SCHEDULE_COLUMNS = ("pipeline_schedule", "pp_schedule", "schedule")
"""Columns that name the pipeline schedule; the first that says something counts."""


class OpenLayoutError(CannotModelError):
    """A run does not state how it splits products or layers over several nodes, or its expert-parallel degree."""

    def __init__(self, missing: Sequence[str], degrees: Sequence[Mapping[str, int]], of: str) -> None:
        verb = "is" if len(missing) == 1 else "are"
        super().__init__(f"{' and '.join(missing)} {verb} not given, of {of}")
        self.degrees = degrees
        """Possible degrees, by column."""


def layout_of(told: Told, habits: Habits, num_layers: int, num_experts: int | None) -> RunLayout:
    """Returns how the work is split, and the batch and sequence sizes.

    Raises:
        CannotModelError: a column without a default is missing.
        OpenLayoutError: the degrees of a run on more than one node are missing, or those of experts.
    """
    num_gpus = told.count("n_gpus")
    stage = zero_stage(told.text("zero_stage_or_fsdp"))
    is_sharded = LAST_STAGE in (habits.zero_stage, stage)
    left = {} if is_sharded else _left_degree(told, num_gpus, num_layers)
    is_whole = trains_whole_models(told.framework)
    is_split = (
        is_sharded
        or is_whole
        or bool(left)
        or GRADIENTS_STAGE in (named_stage(told.framework.lower()), stage)
    )
    _check_degrees(told, num_gpus, num_layers, num_experts, is_split=is_split)
    if not is_whole:
        _check_experts(told, habits, num_gpus, num_experts, is_sharded=is_sharded)
    degrees = _degrees(told, num_gpus, num_experts, left, is_sharded=is_sharded)
    t, p, c = (degrees[f"{name}_parallel"] for name in ("tensor", "pipeline", "context"))
    data = _replicas(told, t * p, c)
    micro_batch, batch = batches(told, data_parallel=data, num_stages=p, is_sharded=is_sharded)
    batch = _whole_batch(told, batch, data, micro_batch)
    return RunLayout(
        **degrees,
        num_gpus=num_gpus,
        virtual_pipeline=_chunks_per_stage(told, habits, p, num_layers),
        data_parallel=data,
        micro_batch_size=micro_batch,
        global_batch_size=batch,
        sequence_length=_whole_sequence(told, t, c),
    )


def _check_degrees(
    told: Told, num_gpus: int, num_layers: int, num_experts: int | None, *, is_split: bool
) -> None:
    """Raises `OpenLayoutError` if a run on several nodes splits products or layers but does not say how."""
    is_known = is_split or num_gpus <= MOST_UNSPLIT_GPUS or told.cells.count("dp") == num_gpus
    missing = tuple(column for column in ("tp", "pp") if not told.cells.count(column))
    if missing and not is_known:
        possible = open_degrees(told, num_layers, num_experts)
        if not possible:
            raise CannotModelError(_no_layout(told, missing, num_gpus, num_layers))
        raise OpenLayoutError(missing, possible, "a run on more than one node")


def _no_layout(told: Told, missing: Sequence[str], num_gpus: int, num_layers: int) -> str:
    """Returns that the degrees that are told leave none for those that are not."""
    given = ((column, told.cells.count(column)) for column in ("tp", "pp", "cp", "ep", "dp"))
    said = ", ".join(f"{column} {count}" for column, count in given if count)
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{' and '.join(missing)} {verb} not given, and with {said} no layout makes up {num_gpus} GPUs "
        f"and splits {num_layers} layers"
    )


def _check_experts(
    told: Told, habits: Habits, num_gpus: int, num_experts: int | None, *, is_sharded: bool
) -> None:
    """Raises `OpenLayoutError` if a run distributes experts but does not say over how many ranks."""
    is_spread = not is_sharded or "deduplicated" in (
        measured_notes.expert_dispatch(told.text("notes")),
        habits.expert_dispatch,
    )
    if num_experts and is_spread and not told.cells.count("ep") and num_gpus > 1:
        least = 2 if is_sharded else 1  # a run that sends tokens to other ranks has at least two
        spreads = [{"ep": ranks} for ranks in EXPERT_DEGREES if num_experts % ranks == 0 and ranks >= least]
        raise OpenLayoutError(("ep",), spreads, "a mixture of experts")


def _left_degree(told: Told, num_gpus: int, num_layers: int) -> dict[str, int]:
    """Returns the one of tensor and pipeline degree that is not told, by column, where the other degrees leave it.

    Ranks that share a sequence, and those of experts, may be among the replicas or not: with them nothing is sure, unless the
    ranks of one sequence alone make up the run.
    """
    given = {column: told.cells.count(column) for column in ("tp", "pp", "dp")}
    missing = [column for column in ("tp", "pp") if given[column] is None]
    context = told.cells.count("cp") or 1
    if len(missing) == 1 and context * (given["tp"] or given["pp"] or 1) == num_gpus:
        return {missing[0]: 1}
    is_open = context > 1 or (told.cells.count("ep") or 1) > 1
    if len(missing) != 1 or given["dp"] is None or is_open:
        return {}
    left, rest = divmod(num_gpus, math.prod(count for count in given.values() if count))
    is_possible = left > 0 and not rest
    if not is_possible or (missing == ["pp"] and _even_layers(num_layers, left) is None):
        return {}
    if left > 1:
        told.remark(missing[0], f"the other degrees leave {left} of {num_gpus} GPUs; taken as {left}")
    return {missing[0]: left}


def _degrees(
    told: Told, num_gpus: int, num_experts: int | None, left: Mapping[str, int], *, is_sharded: bool
) -> dict[str, int]:
    """Returns the degrees within a replica: tensor, pipeline, context and expert.

    A degree that is not stated is what the others leave (`left`), or a usual one.
    """
    names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
    usual = dict.fromkeys(names, 1) | dict(left)
    if is_sharded:
        usual["tp"] = _least_tensor(told, num_gpus)
    elif num_experts is None:
        usual["cp"] = _context_left(told, num_gpus)
    degrees = {
        f"{name}_parallel": told.cells.count(column) or usual[column] for column, name in names.items()
    }
    told.assumed += [
        column for column in names if not told.cells.count(column) and (num_experts or column != "ep")
    ]
    is_split_by_sequence = splits_sequence_only(told.text("sp")) and degrees["tensor_parallel"] > 1
    if is_split_by_sequence and degrees["context_parallel"] > 1:
        told.remark("sp", "tp splits products here, as cp says which ranks share the sequence")
    elif is_split_by_sequence:
        degrees |= {
            "tensor_parallel": 1,
            "context_parallel": degrees["tensor_parallel"],
        }
    return degrees


def _context_left(told: Told, num_gpus: int) -> int:
    """Returns over how many ranks long sequences are split by what tensor and pipeline parallelism and replicas leave, or 1."""
    given = [told.cells.count(column) for column in ("tp", "pp", "dp")]
    if told.cells.count("cp") or None in given[:2]:
        return 1
    if given[2] is None:
        return _context_of_rounds(told, num_gpus)
    left, rest = divmod(num_gpus, math.prod(count for count in given if count))
    if rest or left < 2 or not _keeps_long_shares(told, left):
        return 1
    told.remark("cp", f"tp, pp and dp leave {left} of {num_gpus} GPUs, which are taken to share sequences")
    return left


def _context_of_rounds(told: Told, num_gpus: int) -> int:
    """Returns the fewest ranks that share a sequence with which a pipeline of chunks has whole rounds, or 1."""
    names = ("tp", "pp", "vpp", "global_batch")
    tensor, stages, chunks, batch = (told.cells.count(column) or 1 for column in names)
    groups, rest = divmod(num_gpus, tensor * stages)
    if chunks == 1 or stages == 1 or rest or groups == 0 or told_group_size(told):
        return 1
    size = told.cells.count("micro_batch") or 1
    if -(-batch // (groups * size)) % stages == 0:
        return 1
    for context in (count for count in CONTEXT_DEGREES if groups % count == 0):
        if batch % (groups // context * size * stages) == 0 and _keeps_long_shares(told, context):
            meaning = f"with the batch and vpp {chunks} only shared sequences fit; {context} ranks are taken to share each"
            told.remark("cp", meaning)
            return context
    return 1


def _keeps_long_shares(told: Told, context: int) -> bool:
    return (told.cells.count("seq_len") or 0) >= LEAST_CONTEXT_TOKENS * context


def _least_tensor(told: Told, num_gpus: int) -> int:
    """Returns over how many ranks products are split at least, where there are more accelerators than sequences."""
    batch = told.cells.count("global_batch")
    if batch is None or told.cells.count("tp") or told.cells.count("dp"):
        return 1
    ranks = (told.cells.count("pp") or 1) * (told.cells.count("cp") or 1)
    least = -(-num_gpus // (batch * ranks))
    if least == 1:
        return 1
    enough = (tensor for tensor in LEAST_TENSOR_DEGREES if tensor >= least)
    whole = (tensor for tensor in enough if _shares_out(batch, num_gpus, tensor * ranks))
    tensor = next(whole, 1 << (least - 1).bit_length())
    meaning = f"of fewer sequences than accelerators: tensor parallelism of {tensor} is assumed"
    told.remark("global_batch", meaning)
    return tensor


def _shares_out(batch: int, num_gpus: int, ranks: int) -> bool:
    """Returns whether replicas of so many ranks make up a run and share its batch evenly."""
    return num_gpus % ranks == 0 and batch % (num_gpus // ranks) == 0


def open_degrees(told: Told, num_layers: int, num_experts: int | None) -> tuple[Mapping[str, int], ...]:
    """Returns the possible values of the degrees that a run does not state, by column."""
    given = {column: told.cells.count(column) for column in ("tp", "pp", "cp", "ep", "dp")}
    num_gpus, context, data = told.count("n_gpus"), given["cp"] or 1, given["dp"]
    tensors = [given["tp"]] if given["tp"] else TENSOR_DEGREES
    pipelines = [given["pp"]] if given["pp"] else range(1, min(num_layers, MOST_STAGES) + 1)
    experts = EXPERT_DEGREES if num_experts and not given["ep"] else [given["ep"] or 1]
    return tuple(
        {"tp": t, "pp": p, "ep": e}
        for t in tensors
        for p in pipelines
        if num_gpus % (t * p * context) == 0
        and (data is None or num_gpus in (t * p * data, t * p * context * data))
        and _even_layers(num_layers, p) is not None
        for e in experts
        if e == given["ep"] or (num_experts or 1) % e == 0
    )


def _whole_batch(told: Told, batch: int, replicas: int, micro_batch: int) -> int:
    """Returns the batch, or a little more, or else less, if replicas cannot share it evenly: the fullest set the pace."""
    unit = replicas * micro_batch
    nearby = (-(-batch // unit) * unit, batch // unit * unit)
    whole = next((size for size in nearby if abs(size - batch) <= batch * MOST_ADDED_FRACTION), batch)
    if whole == batch:
        return batch
    meaning = f"{replicas} replicas with micro-batches of {micro_batch} do not divide it; taken as {whole}"
    told.remark("global_batch", meaning)
    return told.default("global_batch", whole)


def _whole_sequence(told: Told, tensor: int, context: int) -> int:
    """Returns the tokens of a sequence, or a few more where its ranks cannot share them evenly: software pads it.

    Args:
        told: the row.
        tensor: ranks that share products, and under sequence parallelism tokens.
        context: ranks that share the sequence, each with two pieces of it.
    """
    given, pieces = told.count("seq_len"), tensor * (2 * context if context > 1 else 1)
    whole = -(-given // pieces) * pieces
    if context == 1 or whole == given or whole > given * (1.0 + MOST_ADDED_FRACTION):
        return given
    told.remark("seq_len", f"{context} ranks with two pieces each do not divide it; taken as {whole}")
    return whole


def _replicas(told: Told, ranks: int, context: int) -> int:
    """Returns the replicas: as given, or what the other degrees leave, also if the two are inconsistent.

    Some publishers count context-parallel ranks as replicas.
    """
    given, num_gpus = told.cells.count("dp"), told.count("n_gpus")
    if given is None:
        return max(1, num_gpus // (ranks * context))
    if context > 1 and given * ranks == num_gpus and given % context == 0:
        told.remark("dp", f"counts the {context} ranks of context parallelism; taken as {given // context}")
        return given // context
    if given * ranks * context != num_gpus and num_gpus % (ranks * context) == 0:
        left = num_gpus // (ranks * context)
        told.remark("dp", f"with the other degrees does not make up {num_gpus} GPUs; taken as {left}")
        return told.default("dp", left)
    return given


def _chunks_per_stage(told: Told, habits: Habits, num_stages: int, num_layers: int) -> int:
    """Returns the chunks per stage: as given, or from the framework's usual chunk size, counting embedding and output."""
    given = told.cells.count("vpp") or 1
    if num_stages == 1 and given > 1:
        told.remark("vpp", "left out: without a pipeline there are no chunks of a stage")
        return 1
    if "vpp" in told.cells.numbers or num_stages == 1:
        return given
    cells = (told.text(column) for column in SCHEDULE_COLUMNS)
    if scheduled := next(filter(None, map(measured_notes.scheduled_chunks, cells)), None):
        told.remark("vpp", f"{scheduled}, as the schedule says")
        return scheduled
    notes = told.text("notes")
    layers = measured_notes.layers_of_a_chunk(notes)
    noted = measured_notes.virtual_pipeline(notes) or listed_chunks(notes, num_stages)
    noted = noted or (layers and -(-num_layers // (layers * num_stages)))
    if noted:
        told.remark("vpp", f"{noted}, as the notes say")
        return told.default("vpp", noted)
    if habits.chunk_layers is None:
        return told.default("vpp", 1)
    chunks, rest = divmod(num_layers + 2, num_stages * habits.chunk_layers)
    return told.default("vpp", 1 if rest else chunks)


def told_group_size(told: Told) -> int | None:
    """Returns the micro-batches per interleaved group that a row names in its column or its notes."""
    return told.cells.count(GROUP_SIZE) or measured_notes.interleaved_group_size(told.text("notes"))


def can_split(num_layers: int, layout: RunLayout, chunks_per_stage: int) -> bool:
    """Returns whether stages can have so many chunks, with a few more layers at most."""
    return _filling_layers(num_layers, layout.pipeline_parallel * chunks_per_stage) is not None


def split_layers(told: Told, num_layers: int, layout: RunLayout) -> int:
    """Returns the layers, or a few more where they do not make up all chunks."""
    layers = _filling_layers(num_layers, layout.num_chunks) or num_layers
    return layers if layers == num_layers else told.default("layers", layers)


def _filling_layers(num_layers: int, chunks: int) -> int | None:
    """Returns the layers if each of the chunks can have some, else the fewest more that split evenly, as below."""
    return num_layers if chunks <= num_layers else _even_layers(num_layers, chunks)


def _even_layers(num_layers: int, chunks: int) -> int | None:
    """Returns the fewest layers from those that there are which split evenly; `None` where too many would be added."""
    most = int(num_layers * (1.0 + MOST_ADDED_LAYERS_FRACTION))
    counts = np.arange(num_layers, most + 1)
    even: list[int] = counts[can_split_evenly(counts, np.array(chunks))].tolist()
    return next(iter(even), None)
