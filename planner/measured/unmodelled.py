"""What in a measured run does the simulator not model? Rows of other networks are left out; other parts get a remark."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.measured.cells.told import CannotModelError, Told
from planner.measured.cells.words import affirmed
from planner.measured.layout.sharding import COLUMN as SHARDING
from planner.measured.layout.sharding import LAST_STAGE, shares_weights, zero_stage
from planner.measured.software.offload import leaves_memory_open
from planner.measured.software.zero_variants import keeps_as_zero_3
from planner.measured.workload.adapters import keeps_frozen_weights
from planner.measured.workload.images import FROZEN as FROZEN_ENCODER
from planner.measured.workload.images import freezes_encoder
from planner.measured.workload.sequences import splits_sequence, splits_sequence_only
from simulator.domain.model import ModelShape
from simulator.errors import InputError

SPLIT_SEQUENCE = "sp"
_WINDOW = re.compile(r"sliding[- _]?window|\bswa\b", re.IGNORECASE)
_PACKED = re.compile(
    r"\b(sequence|sample)[-_ ]packing|\bpacked[-_ ](sequences?|samples?|documents?)", re.IGNORECASE
)
_PARTITIONED = re.compile(
    r"partition(?:ed|s|ing)?[-_ ](?:activations?|(?:activation[- ])?checkpoints?)\b|activations?[- ]partition"
    r"|zero[- ]?r\b|\bp_a\b|zero[- _]?100b\b",
    re.IGNORECASE,
)
"""ZeRO-R partitions checkpoints among tensor-parallel ranks (`partition_activations`), and ZeRO-100B has it (arXiv 1910.02054,
sections 6.1 and 10)."""

_WITH_STATES = (
    "mamba|jamba|zamba|bamba|hymba|rwkv|retnet|hyena|xlstm|griffin|recurrent-gemma|hunyuan-turbo|state-space",
    r"\bsamba\b|\blfm-?\d|\bssm\b|linear-attention|(kimi|ring)\b.*-linear|jet-nemotron|phi-4-mini-flash",
    r"nemotron-?\d?-?h\b|nemotron\b.*hybrid|nemotron-?3(?!-?(8|22|43)b)\b|nemotron\b.*nano.*-v2|falcon-?h1|granite-?4.*-(h|tiny)\b",
    r"qwen-?3(\.[5-8]|-?(coder-?)?next)|minimax-?(text-?|vl-?)?(01|m1)\b",
)
"""Networks with state-space or linear-attention layers, which do not attend to all tokens."""
_COMPRESSES = re.compile(r"deepseek-?v?4\b|\bdsv4")
"""Networks whose attention sees compressed tokens."""
_OTHER_NETWORKS = (
    r"\b(m|flan-?|u?m?)t5\b|bert(a|-\w+)?\b|\bul2\b|\bm?bart\b",
    r"\bvit\b|\bswin-?(v2|transformer|moe)|diffusion|\bsdxl\b|flux|whisper|\bdlrm",
)
_OF_ODD_LAYERS = re.compile(r"llama\b.*nemotron\b.*\b(super|ultra|(49|51|253)b)\b|decilm")
"""Networks found by architecture search: their layers differ, and some have no attention (arXiv 2411.19146)."""
_CHOOSES_TOKENS = re.compile(r"deepseek-?v3\.2|\bdsv3\.2|\bglm-?5\b")
"""Networks whose attention sees only the tokens that an indexer selects."""
_HAS_STATES = re.compile("|".join(_WITH_STATES))
_UNLIKE_A_DECODER = re.compile("|".join(_OTHER_NETWORKS))


def refuse_unlike_a_decoder(model: str, known: ModelShape | None = None) -> None:
    """Refuses networks whose layers are not those of a decoder-only transformer, except those of the catalogue.

    Args:
        model: its name.
        known: the catalogue's model of that name and size.

    Raises:
        CannotModelError: the model's name is that of such a network, or of one whose layers differ from one another.
    """
    name = _joined(model)
    if _HAS_STATES.search(name):
        if known and known.linear_attention:
            return
        rule = "layers with a state are known only of the catalogue's models (`capplan catalog models`)"
        raise CannotModelError(f"model {model}: {rule}")
    if _COMPRESSES.search(name):
        if known and known.compressed_attention:
            return
        rule = "compressed attention is known only of the catalogue's models (`capplan catalog models`)"
        raise CannotModelError(f"model {model}: {rule}")
    if _UNLIKE_A_DECODER.search(name):
        raise CannotModelError(f"model {model}: only decoder-only transformers are modelled")
    if _OF_ODD_LAYERS.search(name):
        raise CannotModelError(f"model {model}: its layers are unlike one another, which is not modelled")


def remark_chosen_tokens(told: Told, known: ModelShape | None) -> None:
    """Remarks that attention over selected tokens is simulated over all tokens, except in models of the catalogue."""
    if _CHOOSES_TOKENS.search(_joined(told.name("model"))) and not (known and known.indexer):
        told.remark(
            "model",
            "attention is simulated over all tokens, not over those that an indexer chooses: its sizes are known only of the "
            "catalogue's models",
        )


def _joined(name: str) -> str:
    return re.sub(r"[\s_/]+", "-", name.lower())


def leave_out_unknown_words(told: Told) -> None:
    """Treats cells that are not understood as empty, so that they do not discard a measured time.

    In runs without a time they are reported when they are read, and the row is left out.
    """
    if not told.cells.has_time:
        return
    columns = ((SPLIT_SEQUENCE, splits_sequence), (SHARDING, zero_stage), (FROZEN_ENCODER, freezes_encoder))
    for column, read in columns:
        try:
            read(told.text(column))
        except InputError:
            told.leave_out(column, "is not understood; the habit of the framework stands in")


def remark_packing(told: Told, *, has_documents: bool) -> None:
    """Remarks that attention over packed sequences of unknown documents is simulated over whole sequences."""
    if not has_documents and (found := affirmed(_PACKED, told.text("notes"))):
        meaning = "tokens are simulated to see all before them; give mean_document where documents see themselves only"
        told.remark("notes", f"{found[0]}: {meaning}")


def remark_window(told: Told, *, has_window: bool) -> None:
    """Remarks that windows of unknown width are not simulated."""
    if not has_window and "window" not in told.cells.numbers and affirmed(_WINDOW, told.text("notes")):
        told.remark("notes", "a window without its tokens is left out; give them in the column window")


def simulates_memory(told: Told, cells: Mapping[str, object]) -> bool:
    """Returns whether ranks keep the weights and checkpoints that are simulated; remarks where they do not.

    Args:
        told: the row.
        cells: fields of its plan and workload.
    """
    if splits_sequence_only(told.text("sp")) and cells["zero_stage"] != LAST_STAGE:
        meaning = "weights are simulated whole on every rank, which ISP may share out: memory is not judged"
        told.remark("sp", meaning)
        return False
    if shares_weights(told.text(SHARDING)):
        meaning = "optimizer states are simulated in the groups that share weights: memory is not judged"
        told.remark(SHARDING, meaning)
        return False
    has_frozen = bool(cells.get("lora_rank"))
    if (
        not keeps_as_zero_3(told)
        or leaves_memory_open(told)
        or (has_frozen and not keeps_frozen_weights(told))
    ):
        return False
    is_whole = cells["tensor_parallel"] != 1 and not cells["has_sequence_parallel"]
    columns = [
        name
        for name in ("recompute", "notes", "framework", SHARDING)
        if affirmed(_PARTITIONED, told.text(name))
    ]
    if not columns or not is_whole or cells["recompute"] == "none":
        return True
    told.remark(columns[0], "every rank is simulated to keep whole checkpoints: memory is not judged")
    return False
