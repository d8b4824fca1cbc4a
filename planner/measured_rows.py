"""What did this run train, on what, and how was it laid out? From the cells of a file to a row that can be simulated.

The columns are those of compiled lists of training runs: `gpu`, `n_gpus`, `layers`, `hidden`, `tp`, `pp`, .... What a
row leaves open is taken from a catalogue model of the same name and size, from the framework's habits or from the
defaults below, and named in `assumed`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from planner import measured_notes
from planner.framework_habits import UNTOLD_HABITS, Habits, habits_of, tells_habits
from planner.hardware_names import accelerator_id
from planner.measured_file import BYTES_OF_A_WEIGHT, Cells, read_cells
from planner.measured_hardware import node_of
from planner.measured_recompute import NOT_GIVEN, recomputed
from planner.measured_runs import OUT_OF_MEMORY, Row
from planner.measured_sequences import context_exchange, document_cells, window_cells
from planner.measured_sharding import LAST_STAGE, shard_ranks, zero_stage
from planner.measured_words import is_usable, is_yes, known_kind
from planner.model_names import known_shape, ties_embeddings
from simulator import catalog
from simulator.errors import CapplanError, InputError
from simulator.lora import ATTENTION_PRODUCTS, AdaptedProduct
from simulator.model import ModelShape
from simulator.units import GIB

_Value = TypeVar("_Value")

USUAL_VOCABULARY = 51_200
"""GPT-2's vocabulary, padded as Megatron-LM pads it."""
PADDED_VOCABULARY = 128
"""Words of a tensor-parallel rank, which Megatron-LM fills up to a multiple of this."""
USUAL_HEAD_DIM = 128
USUAL_LORA_RANK = 32
"""NeMo's default (`LoRA.dim`)."""
PLAIN_FFN_RATIO = 4
"""Feed-forward width over hidden size of a block without gate; a narrower block is taken to have one."""
MOST_LAYERS_ADDED_FRACTION = 0.1
"""Layers that a pipeline of uneven stages may be given on top, so that every stage is as full as the fullest."""

LONGEST_NOTES = 200
"""Characters of the notes that a row keeps."""

_UNLIKE_A_DECODER = re.compile(
    r"mamba|nemotron-?h\b|nemotron-?3\b|jamba|zamba|deepseek-?v4|\bt5\b|\bbert\b|\bvit\b|diffusion|flux|whisper",
    re.IGNORECASE,
)
_PARTLY_TRAINED = re.compile(r"inference|single-layer|forward only", re.IGNORECASE)
_PRODUCTION = re.compile(r"production(?! steady)|whole[- ]run", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(r"out[- ]of[- ]memory|\boom\b", re.IGNORECASE)
_PRECISIONS = (
    (r"mxfp4|int8|fp32|tf32", ""),
    ("fp4", "fp4"),
    ("fp8|e4m3|hybrid8", "fp8"),
    ("bf16|bfloat16", "bf16"),
    ("fp16|float16|half", "fp16"),
)
"""Number formats by what their names contain; empty: the simulator has no constants for them."""


class _CannotModelError(CapplanError):
    """A row says too little, or something that the simulator does not know."""


@dataclass(frozen=True, kw_only=True)
class Unmodelled:
    """A row that is not simulated."""

    row_id: str
    group: str
    reason: str
    step_time_s: str
    """What was measured; empty where nothing was."""


def read_measured(path: Path) -> list[Row | Unmodelled]:
    """Returns the rows of a file in its order, each ready to be simulated or with the reason why not.

    Raises:
        InputError: the file is no table of measured runs.
    """
    rows = read_cells(path)
    count = Counter(_id_of(cells) for cells in rows)
    return [_translated(cells, is_shared=count[_id_of(cells)] > 1) for cells in rows]


def _id_of(cells: Cells) -> str:
    return cells.text.get("id") or f"row {cells.line}"


def _translated(cells: Cells, *, is_shared: bool) -> Row | Unmodelled:
    """Returns a row; one that shares its id with another is told apart by where it stands."""
    row_id = _id_of(cells) + (f" (row {cells.line})" if is_shared else "")
    group = cells.text.get("source") or "source not named"
    try:
        return _Translation(cells, row_id, group).row()
    except _CannotModelError as error:
        reason = str(error)
    except InputError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
    return Unmodelled(row_id=row_id, group=group, reason=reason, step_time_s=_as_text(cells.step_time_s))


class _Translation:
    """One row on its way; collects what had to be assumed."""

    def __init__(self, cells: Cells, row_id: str, group: str) -> None:
        self.cells, self.row_id, self.group = cells, row_id, group
        self.assumed: list[str] = []
        self.model = self._text("model")
        self._refuse_broken_cells()
        self.kind = known_kind(self._text("metric_kind"))
        self.splits_sequence = is_yes("sp", self._text("sp"))
        self._refuse_what_is_no_pretraining_of_a_decoder()
        self.accelerator = accelerator_id(self._text("gpu") or "not named")
        self.node = node_of(cells, self.accelerator)
        self.assumed += self.node.assumed
        self.precision = self._precision()
        family = catalog.accelerator(self.accelerator).family
        self.habits: Habits = habits_of(
            self._text("framework"),
            family,
            self.precision,
            is_fully_sharded=zero_stage(self._text("zero_stage_or_fsdp")) == LAST_STAGE,
        )
        if not tells_habits(self._text("framework")):
            self.assumed.append("framework")
        self.known: ModelShape | None = known_shape(
            self.model, cells.count("layers"), cells.count("hidden"), cells.count("heads")
        )

    def row(self) -> Row:
        """Returns the row, its sizes as text like all its cells."""
        shape, layout = self._shape(), self._layout()
        if self.habits.pads_vocabulary:
            unit = PADDED_VOCABULARY * layout["tensor_parallel"]
            shape["vocabulary_size"] = unit * math.ceil(shape["vocabulary_size"] / unit)
        shape["num_layers"] = self._split_layers(shape["num_layers"], layout)
        habits = self._habits(layout, shape["num_layers"])
        sizes = {**shape, **self._experts(shape), **layout, **self.node.cells, **habits}
        cells: dict[str, object] = {
            "row_id": self.row_id,
            "group": self.group,
            "model": self.model[:100] or "model not named",
            "precision": self.precision,
            "is_production": bool(_PRODUCTION.search(self.kind)),
            "tier": self._text("tier"),
            **sizes,
            **self._sequences(layout),
            **self._measured(),
            "notes": " ".join(self._text("notes").split())[:LONGEST_NOTES],
            "left_out_because": OUT_OF_MEMORY if _OUT_OF_MEMORY.search(self.kind) else None,
            "assumed": " ".join(self.assumed),
        }
        row = {name: _as_text(value) for name, value in cells.items()}
        design = "|".join(value for name, value in row.items() if name not in _NO_PART_OF_THE_DESIGN)
        return {**row, "config_key": self._text("config_key") or design}

    def _refuse_broken_cells(self) -> None:
        if self.cells.problems:
            raise _CannotModelError("; ".join(self.cells.problems))

    def _refuse_what_is_no_pretraining_of_a_decoder(self) -> None:
        if _UNLIKE_A_DECODER.search(self.model):
            raise _CannotModelError(f"model {self.model}: only decoder-only transformers are modelled")
        if _PARTLY_TRAINED.search(f"{self.kind} {self.model}"):
            raise _CannotModelError(f"metric_kind {self.kind or self.model}: only steps of training")
        if not is_usable(self._text("usable")):
            raise _CannotModelError("usable: the row is marked as unusable")

    def _precision(self) -> str:
        written = self._text("precision") or self._default("precision", "bf16")
        found = next((known for words, known in _PRECISIONS if re.search(words, written.lower())), "")
        if not found:
            raise _CannotModelError(f"precision {written}: only fp16, bf16, fp8 and nvfp4 are modelled")
        return found

    def _shape(self) -> dict[str, int]:
        known = self.known.model_dump() if self.known else {}
        hidden = self._count("hidden", known.get("hidden_size"))
        head_dim = self.cells.count("head_dim")
        usual_heads = max(1, hidden // (head_dim or USUAL_HEAD_DIM))
        heads = self._count("heads", known.get("num_heads"), usual_heads)
        plain = PLAIN_FFN_RATIO * hidden
        ffn = self._count("ffn_hidden", known.get("ffn_hidden_size"), plain)
        is_gated = known.get("is_gated", bool(self.cells.count("experts")) or ffn < plain)
        return {
            "num_layers": self._count("layers", known.get("num_layers")),
            "hidden_size": hidden,
            "num_heads": heads,
            "num_kv_heads": self._count("kv_heads", known.get("num_kv_heads"), heads),
            "head_dim": self._count("head_dim", known.get("head_dim"), max(1, hidden // heads)),
            "ffn_hidden_size": ffn,
            "is_gated": self._count("mlp_matrices", 3 if is_gated else 2) == 3,
            "vocabulary_size": self._count("vocab", known.get("vocabulary_size"), USUAL_VOCABULARY),
            "has_tied_embeddings": known.get("has_tied_embeddings", ties_embeddings(self.model)),
        }

    def _experts(self, shape: dict[str, int]) -> dict[str, int | None]:
        experts, latent = (self.known.experts, self.known.latent_attention) if self.known else (None, None)
        parts: dict[str, int | None] = dict(latent.model_dump()) if latent else {}
        if not self._has_experts():
            return {**parts, "num_experts": None}
        known = experts.model_dump() if experts else {}
        width = known.get("expert_ffn_hidden_size", shape["ffn_hidden_size"])
        return {
            **parts,
            "num_experts": self._count("experts", known.get("num_experts")),
            "experts_per_token": self._count("topk", known.get("experts_per_token")),
            "expert_ffn_hidden_size": self._count("moe_ffn_hidden", width),
            "shared_ffn_hidden_size": self._or_known(
                "shared_expert_ffn", known.get("shared_ffn_hidden_size")
            ),
            "num_dense_layers": self._or_known("dense_layers", known.get("num_dense_layers")),
            **{name: known[name] for name in ("num_groups", "groups_per_token") if name in known},
        }

    def _has_experts(self) -> bool:
        """Returns whether a row has routed experts; 0 says that it has none, an empty cell as little as no column."""
        is_known = bool(self.known and self.known.experts) and "experts" not in self.cells.numbers
        return bool(self.cells.count("experts")) or is_known

    def _layout(self) -> dict[str, int]:
        num_gpus = self._count("n_gpus")
        sharded = (
            self.habits.zero_stage == LAST_STAGE or zero_stage(self._text("zero_stage_or_fsdp")) == LAST_STAGE
        )
        is_split = sharded or num_gpus <= 8 or self.cells.count("dp") == num_gpus
        for column in ("tp", "pp"):
            if not is_split and not self.cells.count(column):
                raise _CannotModelError(
                    f"{column} is not given, and a layout on more than one node cannot be guessed"
                )
        names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
        degrees = {f"{name}_parallel": self._count(column, 1) for column, name in names.items()}
        t, p, c, _ = degrees.values()
        data = self.cells.count("dp") or max(1, num_gpus // (t * p * c))
        micro_batch, batch = self._batch(data, sharded=sharded)
        return {
            **degrees,
            "num_gpus": num_gpus,
            "virtual_pipeline": self.cells.count("vpp") or 1,
            "data_parallel": data,
            "micro_batch_size": micro_batch,
            "global_batch_size": batch,
            "sequence_length": self._count("seq_len"),
        }

    def _split_layers(self, num_layers: int, layout: dict[str, int]) -> int:
        """Returns the layers, or a few more where they do not split evenly: the fullest stage sets the pace."""
        chunks = layout["pipeline_parallel"] * layout["virtual_pipeline"]
        most = int(num_layers * (1.0 + MOST_LAYERS_ADDED_FRACTION))
        for layers in range(num_layers, most + 1):
            if layers % chunks == 0 or (layers + 2) % chunks == 0:
                return layers if layers == num_layers else self._default("layers", layers)
        return num_layers

    def _batch(self, data_parallel: int, *, sharded: bool) -> tuple[int, int]:
        """Returns micro-batch and global batch; frameworks that shard everything seldom accumulate gradients."""
        micro_batch, batch = self.cells.count("micro_batch"), self.cells.count("global_batch")
        if batch is None:
            if micro_batch is None:
                raise _CannotModelError("neither global_batch nor micro_batch is given")
            return micro_batch, self._default("global_batch", micro_batch * data_parallel)
        whole = max(1, batch // data_parallel)
        return micro_batch or self._default("micro_batch", whole if sharded else 1), batch

    def _habits(self, layout: dict[str, int], num_layers: int) -> dict[str, object]:
        habits = self.habits
        stage = zero_stage(self._text("zero_stage_or_fsdp"))
        again = recomputed(self._text("recompute"), self._text("notes")) or NOT_GIVEN
        if not again.is_exact:
            self._default("recompute", again.kind)
        return {
            "fp8_recipe": measured_notes.fp8_recipe(self._text("precision")),
            "recompute": again.kind,
            "recompute_num_layers": again.num_layers,
            "recompute_method": again.method,
            "zero_stage": self._default("zero_stage_or_fsdp", habits.zero_stage) if stage is None else stage,
            "shard_ranks": self._shard_ranks(layout),
            "has_sequence_parallel": self._splits_sequence() if layout["tensor_parallel"] > 1 else False,
            "logit_bytes": measured_notes.logit_bytes(self._text("notes")) or habits.logit_bytes,
            "activation_offload_fraction": self._offload_fraction(num_layers),
            **{name: getattr(habits, name) for name in UNTOLD_HABITS},
            **{name: self.cells.numbers.get(name, getattr(habits, name)) for name in BYTES_OF_A_WEIGHT},
            **self._expert_habits(layout),
            **self._adapters(),
        }

    def _splits_sequence(self) -> bool:
        if self.splits_sequence is None:
            return self._default("sp", self.habits.has_sequence_parallel)
        return self.splits_sequence

    def _offload_fraction(self, num_layers: int) -> float | None:
        """Returns the share of the layers that the notes say are offloaded; nothing where they say nothing."""
        return min(1.0, measured_notes.offloaded_layers(self._text("notes")) / num_layers) or None

    def _shard_ranks(self, layout: dict[str, int]) -> int | None:
        replicas = layout["data_parallel"] * layout["context_parallel"]
        node_ranks = self.node.num_accelerators // layout["tensor_parallel"]
        return shard_ranks(self._text("zero_stage_or_fsdp"), replicas=replicas, node_ranks=node_ranks)

    def _adapters(self) -> dict[str, object]:
        """Rank and products of low-rank adapters, where a row has them: NeMo's where it does not say which."""
        written = f"{self.model} {self.kind} {self._text('notes')}"
        if not re.search(r"\blora\b", written, re.IGNORECASE):
            return {}
        products = ATTENTION_PRODUCTS if self._has_experts() else tuple(AdaptedProduct)
        rank = measured_notes.lora_rank(self._text("notes"))
        if rank is None:
            rank = self._default("lora_rank", USUAL_LORA_RANK)
        return {"lora_rank": rank, "lora_targets": " ".join(product.value for product in products)}

    def _expert_habits(self, layout: dict[str, int]) -> dict[str, object]:
        """How tokens travel to their experts, and whether anything hides it: as the notes say, or the framework's habit."""
        if not self._has_experts():
            return {}
        notes = self._text("notes")
        is_far = layout["expert_parallel"] > self.node.link_domain_size
        is_hidden = measured_notes.hides_expert_exchange(notes)
        if is_hidden is None:
            is_hidden = self._default("expert_overlap", self.habits.overlaps_far_experts and is_far)
        dispatch = measured_notes.expert_dispatch(notes)
        return {
            "expert_dispatch": dispatch or self._default("expert_dispatch", self.habits.expert_dispatch),
            "expert_products": self._default("expert_products", self.habits.expert_products),
            "overlaps_expert_exchange": is_hidden,
            "expert_capacity_factor": measured_notes.capacity_factor(notes),
            "expert_tensor_parallel": self.cells.count("etp") or measured_notes.expert_tensor_parallel(notes),
            "dispatches_in_8_bits": measured_notes.dispatches_in_8_bits(notes),
            "overlaps_shared_experts": measured_notes.overlaps_shared_experts(notes) and not is_hidden,
        }

    def _sequences(self, layout: dict[str, int]) -> dict[str, object]:
        """Windows, packed documents, and the exchange of context-parallel ranks where there are several."""
        found = {**window_cells(self.cells, self.known), **document_cells(self.cells)}
        if layout["context_parallel"] == 1:
            return found
        exchange, is_assumed = context_exchange(self.cells, self.habits, has_window="window_tokens" in found)
        return {
            **found,
            "context_exchange": self._default("context_exchange", exchange) if is_assumed else exchange,
        }

    def _measured(self) -> dict[str, object]:
        memory = self.cells.numbers.get("peak_mem_gib_per_gpu")
        written = f"{self.kind} {self._text('notes')}"
        return {
            "step_time_s": self.cells.step_time_s,
            "peak_memory_bytes": memory and memory * GIB,
            "memory_kind": measured_notes.memory_kind(written) or self.habits.memory_kind,
        }

    def _text(self, column: str) -> str:
        return self.cells.text.get(column, "")

    def _count(self, column: str, *defaults: int | None) -> int:
        """Returns the number in a column or the first default that there is."""
        if found := self.cells.count(column):
            return found
        default = next((value for value in defaults if value is not None), None)
        if default is None:
            raise _CannotModelError(f"{column} is not given")
        return self._default(column, default)

    def _or_known(self, column: str, known: int | None) -> int:
        """Returns a number for which 0 is a value; of a known model where the cell is empty."""
        return int(self.cells.numbers.get(column, known or 0))

    def _default(self, column: str, value: _Value) -> _Value:
        self.assumed.append(column)
        return value


_NO_PART_OF_THE_DESIGN = (
    "row_id",
    "tier",
    "step_time_s",
    "peak_memory_bytes",
    "memory_kind",
    "left_out_because",
    "notes",
    "assumed",
)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
