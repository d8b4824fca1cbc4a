"""What do the notes of a measured run say about its layout, kernels, memory and overlap?

People write such things as free text. Every function returns what the text says, or nothing if it says nothing.
"""

from __future__ import annotations

import re

from planner.input.problems import shown
from planner.measured.cells.words import affirmed, affirmed_number, first_affirmed, is_denied
from simulator.errors import InputError, Problem

FUSED_LOGIT_BYTES = 2
"""A fused loss works in place on 16-bit logits (Transformer Engine)."""
_FUSED_LOSS = re.compile(r"\bfused (?:[a-z -]+, (?:and )?)*(?:cross[- ]entropy|loss)", re.IGNORECASE)
CHUNKED_LOSS = re.compile(
    r"\b(?:tiled?|chunked|(?:fused[- ])?linear|cut)[- ](?:cross[- ]entropy|ce\b|loss|logits)|\bliger\b",
    re.IGNORECASE,
)
"""A loss whose logits are never all in memory at once."""
_FUSED_OPERATORS = re.compile(
    r"\bfused (?:kernels|operators|ops|swiglu|(?:rms|layer)[- ]?norms?)\b"
    r"|\btorch[. _-]?compiled?\b|\bcompile(?= ?[=:]| (?:turned |switched )?off\b)|(?<=no )compile\b|(?<=without )compile\b"
    r"|(?:^|[;,+&]) *compile(?= *(?:$|[;,+&]))",
    re.IGNORECASE,
)
_OFFLOADED_LAYERS = re.compile(
    r"offload(?:s|ed|ing)? (?:of )?(?:the )?activations \(?(?:of|for|in)? ?(\d+) layers"
    r"|activations? (?:cpu )?offload(?:s|ed|ing)?:? ?(?:of|for|in|to cpu of|=)? ?(\d+) layers"
    r"|activations of (\d+) layers (?:are )?(?:cpu[- ])?offload"
    r"|(?<!optimizer )offload(?:s|ed|ing)? (?:of )?(\d+) ?(?:layers|l\b)"
    r"|(\d+) layers (?:are )?offloaded"
    r"|cpu_offloading_num_layers[ =:]+(\d+)",
    re.IGNORECASE,
)
_RECOMPUTED_LAYERS = re.compile(
    r"recompute[sd]?(?: of)? (\d+) layers?\b(?! in (?:every|each)\b)|\blayers recomputed:? (\d+)"
    r"|(\d+) layers? (?:are |is )?recomputed",
    re.IGNORECASE,
)
_LORA_RANK = re.compile(
    r"\b(?:(?<=lora )rank|(?:lora[-_])?(?:rank(?! 0\b)|r|dim))[ =:]+(-?\d{1,9})\b", re.IGNORECASE
)
"""`rank 0` alone is the first process."""
_ACCUMULATION = re.compile(
    r"\b(?:gradient[-_ ]accumulation(?:[-_ ]steps)?|grad[-_ ]accum(?:ulation)?(?:[-_ ]steps)?|accumulation[-_ ]steps|gas?)"
    r"(?: ?[=:x] ?| of | over |[- ])(\d{1,6})\b(?!\.\d)"
    r"|\b(\d{1,6})[- ](?:gradient[- ]|grad[- ])?accumulation[- ]steps\b",
    re.IGNORECASE,
)
_EXPERT_TENSOR = re.compile(
    r"\b(?:etp|expert[-_ ]tensor[-_ ]parallel(?:ism)?(?:[-_ ]size)?)[ =:]*([1-9]\d{0,3})\b", re.IGNORECASE
)
_CAST_DISPATCH = re.compile(r"fp8[ -]dispatch|dispatch(es)? in (fp8|8 bits)", re.IGNORECASE)
_SPARSE_ATTENTION = r"\bDSA\b|sparse attention|\bindexer\b(?![ _-]*loss)"
_ALL_TOKENS = r"dense attention|full attention|dense warm-?up"
_INDEXER_LOSS = r"\bindexer[ _-]*loss"
_FROZEN_INDEXER = (
    r"frozen indexer|indexer (is |was )?frozen|trains_indexer ?= ?false|indexer_loss_coeff ?= ?0(\.0*)?\b"
)
_SHARED_OVERLAP = re.compile(r"shared[- _]experts?[- _]overlap", re.IGNORECASE)
_MEMORY_KINDS = (("allocated", "allocated"), ("reserved", "reserved"), ("nvidia-smi|device memory", "device"))
_DISPATCHERS = (
    (r"hybrid[- ]?ep|deep[- ]?ep|\bflex\b(?![-_ ]?(?:attention|attn))", "deduplicated"),
    ("all-?to-?all|dispatcher a2a", "all_to_all"),
)
_OF_EXPERTS = r"(?:ep|a2a|all-?to-?all|moe|(?<!shared[-_ ])experts?)(?:[-_ ]parallel)?(?:[-_ ](?:a2a|all-?to-?all|comm\w*))?"
_EXPERTS_BESIDE = (
    rf"\b{_OF_EXPERTS}[-_ ]overlap"
    rf"|\boverlap(?:s|ped|ping)?[-_ ](?:of[-_ ])?(?:the[-_ ])?(?:moe[-_ ])?{_OF_EXPERTS}(?![A-Za-z]|[-_ ]shared)"
)
_HYBRID_EP = "hybrid[- ]?ep"
"""Megatron-Bridge's recipes with it do not hide what it makes short."""
_TENSOR_BESIDE = (
    r"(?:async(?:hronous)?[- ]?(?:tp|tensor)"
    r"|\b(?:tp|tensor(?:[- ]parallel)?)[ _-](?:comm(?:unication)?[ _-])?overlap)"
)

_GRADIENTS_BESIDE = (
    r"\b(?:dp|data[- ]parallel|grad(?:ient)?s?(?:[ _-](?:reduce|sync|reduction))?)[ _-](?:comm\w*[ _-])?overlap"
    r"|\boverlap(?:s|ped|ping)?[ _-](?:of[ _-])?(?:the[ _-])?(?:dp\b|data[- ]parallel|grad(?:ient)?s?)"
    r"(?:[ _-](?:reduce|reductions?|sync\w*|all[ _-]?reduces?|comm(?:unication)?s?)\b)?"
)
_PARAMETERS_BESIDE = (
    r"\boverlap(?:s|ped|ping)?[-_ ](?:of[-_ ])?param(?:eter)?s?[-_ ](?:all[-_ ]?)?gathers?(?![a-z])"
    r"|\bparam(?:eter)?s?[-_ ](?:all[-_ ]?)?gather[-_ ]overlap"
)
_CAST_GATHERS = (
    r"\b(?:fp8|float8|8[- ]?bit)[-_ ](?:(?:param(?:eter)?s?|weights?)[-_ ])?(?:all)?[-_ ]?gather"
    r"|\benable_fsdp_float8_all_gather\b"
)
_WHOLE_GRAPHS = (
    r"\bcuda[-_ ]?graphs?(?:[-_ ](?!off|no|none|disabled)[a-z]+)?[ =:\[(]*full[-_ ]iteration\b"
    r"|\bfull[-_ ]iteration (?:cuda[-_ ]?)?graphs?\b"
)
_CHUNKS = re.compile(
    r"(?<!per[-_ ])(?<![a-z])(?:vpp?[ =:]*|virtual[- _]pipeline(?:[- _]\w+)?[ =:]+)([1-9]\d?)(?![\d.])",
    re.IGNORECASE,
)
_INTERLEAVED_CHUNKS = re.compile(
    r"\binterleav\w*[^;.]{0,30}?\b([1-9]\d?)[- ](?:(?:model|virtual|pipeline)[- ])?chunks?\b"
    r"|\binterleav\w*[ ,:(]{1,3}[mv] ?= ?([1-9]\d?)\b"
    r"|\b([1-9]\d?)[- ](?:virtual[- ](?:pipeline[- ])?stages|model[- ]chunks)\b(?! in total)",
    re.IGNORECASE,
)
_EXPERT_LAYERS = re.compile(
    r"\b(?:moe|experts?)(?: layers?)? (?:in |on |at )?(?:every|each) (?:(?P<two>other|second)|(?P<nth>[2-9])(?:nd|rd|th)?)\b"
    r"|\binterleave_moe_layer_step[ =:]+(?P<step>[1-9])\b|\bmoe[-_ ]layer[-_ ]freq\w*[ =:]+(?P<freq>[2-9])\b"
    r"|(?P<alone>\binterleaved moe\b)",
    re.IGNORECASE,
)
"""One in how many layers has experts, as in GShard, GLaM or Llama 4 Maverick."""
_CHUNKS_OF_SCHEDULE = re.compile(
    rf"{_CHUNKS.pattern}|\b(?:v|chunks?)[ =:]*([1-9]\d?)\b"
    r"|\b([1-9]\d?)[- ]?(?:(?:model|pipeline)[- ])?(?:chunks?|(?:virtual|interleaved)[- ]stages|stages (?:per|a) rank)\b",
    re.IGNORECASE,
)
"""The same beside the name of a schedule: `interleaved (v=5)`, `interleaved 1F1B, 5 chunks`."""
_LAYERS_OF_A_CHUNK = re.compile(
    r"\b(?:num[-_]layers[-_]per[-_]virtual[-_]pipeline|layers[-_]per)[-_]stage[ =:]+([1-9]\d?)\b",
    re.IGNORECASE,
)
"""Options of Megatron Core and of NeMo Automodel."""
_GROUP_SIZE = re.compile(
    r"\bmicro-?batch[-_ ]group[-_ ]size[-_ ]per[-_ ](?:vpp?|virtual[-_ ]pipeline)[-_ ]stage[ =:]+([1-9]\d{0,5})\b",
    re.IGNORECASE,
)


def logit_bytes(notes: str) -> int | None:
    """Returns the bytes that the loss needs for each logit."""
    return FUSED_LOGIT_BYTES if affirmed(_FUSED_LOSS, notes) or affirmed(CHUNKED_LOSS, notes) else None


def fuses_operators(notes: str) -> bool | None:
    """Returns whether norms, activations and similar operators are separate kernels; `None` if the notes do not say."""
    return _is_on(_FUSED_OPERATORS, notes)


def replays_whole_steps(notes: str) -> bool:
    """Returns whether all kernels of a step are replayed from a CUDA graph; graphs of parts leave the others to the host."""
    return bool(affirmed(_WHOLE_GRAPHS, notes))


def offloaded_layers(notes: str) -> int:
    """Returns the layers whose activations are offloaded to main memory."""
    return affirmed_number(_OFFLOADED_LAYERS, notes) or 0


def hides_tensor_traffic(notes: str) -> bool | None:
    """Returns whether tensor-parallel collectives overlap with their products; `None` if the notes do not say."""
    return _is_on(_TENSOR_BESIDE, notes)


def hides_gradient_traffic(notes: str) -> bool | None:
    """Returns whether the reduction of gradients overlaps with the backward pass; `None` if the notes do not say."""
    return _is_on(_GRADIENTS_BESIDE, notes)


def waits_for_weights(notes: str) -> bool:
    """Returns whether the weights that replicas gather once per step are complete before the first forward pass."""
    return is_denied(_PARAMETERS_BESIDE, notes)


def gathers_cast_weights(notes: str) -> bool | None:
    """Returns whether ranks that share weights gather them in 8 bits; `None` where nothing is said."""
    return _is_on(_CAST_GATHERS, notes)


def virtual_pipeline(notes: str) -> int | None:
    """Returns the chunks of a pipeline stage."""
    return affirmed_number(_CHUNKS, notes) or affirmed_number(_INTERLEAVED_CHUNKS, notes)


def expert_layer_step(notes: str) -> int | None:
    """Returns n if one in n layers has experts."""
    found = affirmed(_EXPERT_LAYERS, notes)
    if found is None:
        return None
    return 2 if found["two"] or found["alone"] else int(found["nth"] or found["step"] or found["freq"])


def layers_of_a_chunk(notes: str) -> int | None:
    """Returns the layers of a chunk of a pipeline stage."""
    return affirmed_number(_LAYERS_OF_A_CHUNK, notes)


def scheduled_chunks(schedule: str) -> int | None:
    """Returns the same by a cell that names a schedule."""
    return affirmed_number(_CHUNKS_OF_SCHEDULE, schedule)


def interleaved_group_size(notes: str) -> int | None:
    """Returns the micro-batches that an interleaved stage takes through one chunk before the next (Megatron Core's option)."""
    return affirmed_number(_GROUP_SIZE, notes)


def recomputed_layers(notes: str) -> int | None:
    """Returns the layers of a chunk that are computed again, where only some are."""
    return affirmed_number(_RECOMPUTED_LAYERS, notes)


def lora_rank(notes: str) -> int | None:
    """Returns the inner size of low-rank adapters.

    Raises:
        InputError: it is none that adapters could have.
    """
    found = _LORA_RANK.search(notes)
    if found and int(found[1]) < 1:
        rule = "the rank of LoRA adapters must be at least 1; leave it out for NeMo's, 32"
        raise InputError([Problem(path="notes", value=shown(found[0]), rule=rule)])
    return int(found[1]) if found else None


def accumulation_steps(notes: str) -> int | None:
    """Returns the number of micro-batches in which a rank processes its share of a batch."""
    return affirmed_number(_ACCUMULATION, notes) or None


def memory_kind(notes: str) -> str:
    """Returns what a published peak counts, a `simulator.memory.peak.MemoryKind`."""
    return first_affirmed(_MEMORY_KINDS, notes) or ""


def expert_dispatch(notes: str) -> str:
    """Returns how tokens reach their experts, a `simulator.domain.model.ExpertDispatch`."""
    return first_affirmed(_DISPATCHERS, notes) or ""


def hides_expert_exchange(notes: str) -> bool | None:
    """Returns whether expert traffic is hidden behind other micro-batches."""
    is_on = _is_on(_EXPERTS_BESIDE, notes)
    return False if is_on is None and affirmed(_HYBRID_EP, notes) else is_on


def dispatches_by_hybrid_ep(notes: str) -> bool:
    """Returns whether tokens travel by Hybrid-EP, for which ranks gather the routing of all tokens before a dispatch.

    It hands tokens over in whole groups of rows (`pad_multiple`).
    """
    return bool(affirmed(_HYBRID_EP, notes))


def expert_tensor_parallel(notes: str) -> int | None:
    """Returns how many ranks share each expert."""
    found = _EXPERT_TENSOR.search(notes)
    return int(found[1]) if found else None


def dispatches_in_8_bits(notes: str) -> bool:
    """Returns whether tokens travel to their experts in 8 bits."""
    return bool(affirmed(_CAST_DISPATCH, notes))


def overlaps_shared_experts(notes: str) -> bool:
    """Returns whether expert traffic is hidden behind shared experts."""
    return bool(affirmed(_SHARED_OVERLAP, notes))


def attends_to_all(notes: str) -> bool:
    """Returns whether attention sees all tokens, although the model has an indexer: without it, or while it warms up."""
    return is_denied(_SPARSE_ATTENTION, notes) or bool(affirmed(_ALL_TOKENS, notes))


def freezes_indexer(notes: str) -> bool:
    """Returns whether no loss trains an indexer."""
    return is_denied(_INDEXER_LOSS, notes) or bool(affirmed(_FROZEN_INDEXER, notes))


def _is_on(words: str | re.Pattern[str], text: str) -> bool | None:
    """Returns whether a text says that something is on or off; `None` if it does not name it."""
    if is_denied(words, text):
        return False
    return True if affirmed(words, text) else None
