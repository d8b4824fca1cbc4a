"""Do the words that people write into a measured run mean what they mean to its framework, or are they refused?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.cells.numbers import number_in, sequences_in
from planner.measured.hardware.accelerator_names import accelerator_id
from planner.measured.layout.sharding import zero_stage
from planner.measured.recomputation.cell import recomputed
from planner.measured.recomputation.recomputed import Recomputed
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled
from planner.measured.runs import OUT_OF_MEMORY, Row, job_of, known_reason
from simulator.domain.choices import RecomputeModule
from simulator.errors import CatalogError, InputError
from tests.planner.measured_rows import RUN, the_row

MIXTURE: Mapping[str, object] = {"model": "qwen3-30b-a3b", "ep": 8}
SOME = "does not say what; taken as none, or as what makes room: memory is not judged"
BRIDGE = "Megatron-Bridge/NeMo 25.09"


def read(folder: Path, **changes: object) -> Row | Unmodelled:
    return the_row(folder, {**RUN, **changes})


def row_of(folder: Path, **changes: object) -> Row:
    row = read(folder, **changes)
    assert not isinstance(row, Unmodelled), row
    return row


def reason_of(folder: Path, **changes: object) -> str:
    row = read(folder, **changes)
    assert isinstance(row, Unmodelled), row
    return row.reason


class TestRecomputation:
    @pytest.mark.parametrize(
        "written",
        [
            "none",
            "no",
            "off",
            "False",
            "0",
            "disabled",
            "full (0 of 80)",
            "none, offloads 4 layers",
        ],
    )
    def test_words_for_none(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="none")

    @pytest.mark.parametrize(
        "written",
        [
            "full",
            "full_block",
            "yes",
            "true",
            "on",
            "1",
            "activation checkpointing",
            "layer",
            "per-layer",
            "layerwise",
            "partition activations",
            "P_a",
        ],
    )
    def test_words_for_all_layers(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="full")

    @pytest.mark.parametrize(
        ("written", "num_layers", "method"),
        [
            ("5 layers", 5, "block"),
            ("partial, 3 layers", 3, "block"),
            ("full, 1 layer", 1, "uniform"),
            ("full (uniform), 2 layers", 2, "uniform"),
            ("block 4", 4, "block"),
            ("full/block/4", 4, "block"),
            ("uniform, 2", 2, "uniform"),
            ("recompute granularity full method block num-layers 10", 10, "block"),
            ("recompute_num_layers=5", 5, "block"),
            ("full@20", 20, "block"),
            ("full (10)", 10, "uniform"),
            ("full=1", None, None),
            ("full 8 bits", None, None),
            ("checkpoint every 2 layers", 2, "uniform"),
            ("full, uniform, 1", None, None),
            ("nothing_saveable", None, None),
            ("ckpt", None, None),
            ("20 of 80 layers", 20, "block"),
            ("full, 20/80 layers", 20, "block"),
            ("50% layers", 50, "block"),
        ],
    )
    def test_layers_are_those_of_a_chunk_or_of_a_group(
        self, written: str, num_layers: int | None, method: str | None
    ) -> None:
        found = recomputed(written, "")
        assert found is not None
        assert (found.kind, found.num_layers, found.method) == ("full", num_layers, method)

    @pytest.mark.parametrize(
        ("written", "cells", "num_layers", "remark"),
        [
            ("16 of 32 layers", {"pp": 4}, "4", ""),
            ("full (16 of 32)", {"pp": 4}, "4", ""),
            ("full 25%", {"pp": 1}, "8", ""),
            ("selective 1/2", {"pp": 1}, "16", ""),
            ("selective 0.25", {"pp": 1}, "8", ""),
            ("AC 1/4", {"pp": 1}, "8", ""),
            ("full for 1 of every 2 layers", {"pp": 1}, "16", ""),
            ("2 (every 2nd layer)", {"pp": 1}, "16", ""),
            ("selective 2", {"pp": 1}, "16", ""),
            ("selective (layer=2)", {"pp": 1}, "16", ""),
            ("SAC every 2", {"pp": 1}, "16", ""),
            ("half the layers", {"pp": 1}, "16", ""),
            ("50% of layers", {"pp": 1}, "16", ""),
            ("checkpoint=0.5", {"pp": 1}, "16", ""),
            ("full 8 layers", {"pp": 4}, "", ""),
            ("full 4 layers", {"pp": 4}, "4", ""),
            ("50%", {"pp": 1}, "16", "taken as 16 in each of 1 chunks"),
            # PyTorch's compiler keeps so much of the activations
            ("budget 0.25", {"pp": 1}, "24", "taken as 24 in each of 1 chunks"),
            ("checkpoint_ratio 0.5", {"pp": 1}, "16", ""),
            ("every 4 layers", {"pp": 1}, "4", "taken as groups of 4 layers"),
            ("full (10)", {"pp": 1}, "10", "taken as groups of 10 layers"),
            ("32 of 32 layers", {"pp": 4}, "", ""),
            ("32 layers", {"pp": 4}, "", ""),
            ("4 of 32 layers", {"pp": 8, "vpp": 2}, "1", "taken as 1 in each of 16 chunks"),
            ("ckpt 16/32", {"pp": 4}, "4", ""),
            ("remat 50%", {"pp": 4}, "4", ""),
            ("each layer", {"pp": 4}, "", ""),
        ],
    )
    def test_layers_of_the_whole_network_are_dealt_out_to_the_chunks(
        self, tmp_path: Path, written: str, cells: Mapping[str, object], num_layers: str, remark: str
    ) -> None:
        row = row_of(tmp_path, **{"tp": 1, "recompute": written, **cells})
        assert (row["recompute"], row["recompute_num_layers"]) == ("full", num_layers)
        assert (remark in row["remarks"], bool(remark)) == (True, bool(row["remarks"]))
        assert ("recompute" in row["assumed"].split()) is bool(remark)
        assert reason_against(row) == ""

    @pytest.mark.parametrize(("written", "num_layers"), [("block 9", ""), ("uniform 9", "8")])
    def test_more_layers_than_a_chunk_has_are_all_of_them(
        self, tmp_path: Path, written: str, num_layers: str
    ) -> None:
        row = row_of(tmp_path, tp=1, pp=4, recompute=written)
        assert (row["recompute"], row["recompute_num_layers"]) == ("full", num_layers)
        assert "9 layers of a chunk, which has 8; taken as all of them" in row["remarks"]
        assert "recompute" not in row["assumed"].split()

    @pytest.mark.parametrize(
        "written",
        [
            "selective",
            "sel",
            "selective (core_attn)",
            "core-attention",
            "op",
            "sac",
            "attn",
            "op (saves every other matmul)",
            "every 2nd op",
        ],
    )
    def test_words_for_the_core_of_attention(self, written: str) -> None:
        assert recomputed(written, "") == Recomputed(kind="selective")

    @pytest.mark.parametrize(
        ("written", "modules"),
        [
            ("selective: mla_up_proj, moe_act", ("mla_up_proj", "moe_act")),
            ("RMSNorm and MLA up-projection", ("mla_up_proj", "layernorm")),
            ("moe_act, layernorm", ("layernorm", "moe_act")),
            ("selective (core_attn, no layernorm, shared_experts)", ("core_attn", "shared_experts")),
            ("moe layers", ("moe",)),
            ("selected_modules: blocks.*.feed_forward", ("mlp",)),
            ("save_dot_except_mlp", ("core_attn", "mlp")),
            ("minimal_with_context", ()),
            ("experts", ("moe",)),
            ("expert MLP", ("moe",)),
            ("shared experts", ("shared_experts",)),
            ("expert activation", ("moe_act",)),
            ('recompute_modules=["core_attn"]', ()),
            ("partial (mlp)", ("mlp",)),
            ("partial (mla_up_proj)", ("mla_up_proj",)),
            ("partial attention", ()),
        ],
    )
    def test_modules_are_those_that_are_named(
        self, written: str, modules: tuple[RecomputeModule, ...]
    ) -> None:
        found = recomputed(written, "")
        assert found is not None
        assert (found.kind, found.modules) == ("selective", modules)

    def test_notes_name_modules_where_the_cell_says_selective(self) -> None:
        found = recomputed("selective", "SFT; recompute modules mlp+core_attn; layernorm fused")
        assert found == Recomputed(kind="selective", modules=("core_attn", "mlp"))

    @pytest.mark.parametrize("cell", ["", "partial", "some", "selective"])
    @pytest.mark.parametrize(
        ("notes", "modules"),
        [
            ("selective recompute [mlp]", ("mlp",)),
            ("selective recompute (mlp, layernorm)", ("layernorm", "mlp")),
            ("recompute: mlp, layernorm", ("layernorm", "mlp")),
            ("recipe: recompute mlp (recipe at repo HEAD, moe layout matches)", ("mlp",)),
            ("recompute MLA up-projection and moe_act", ("mla_up_proj", "moe_act")),
            ("recompute mlp, moe dispatcher all-to-all", ("mlp",)),
            ("activation recomputation of the mlp only", ("mlp",)),
            ("recompute: attention", ()),
        ],
    )
    def test_notes_list_modules_where_a_cell_leaves_them_open(
        self, cell: str, notes: str, modules: tuple[RecomputeModule, ...]
    ) -> None:
        assert recomputed(cell, notes) == Recomputed(kind="selective", modules=modules)

    @pytest.mark.parametrize(
        "notes",
        [
            "no recompute of mlp",
            "no recompute, mlp 14336",
            "recompute MLP width 14336",
            "recompute (no mlp)",
            "9 GiB without recompute: attention is fused",
        ],
    )
    def test_other_words_behind_recomputation_list_none(self, notes: str) -> None:
        found = recomputed("", notes)
        assert found is None or found.kind == "none"

    def test_some_that_is_not_told_is_neither_none_nor_all(self, tmp_path: Path) -> None:
        for cell in ("partial", "partial recompute", "some layers"):
            row = row_of(tmp_path, recompute=cell)
            assert (row["recompute"], row["recomputes_some"]) == ("none", "true")
            assert row["remarks"] == f"recompute = '{cell}': {SOME}"
        for notes, kind in (("recompute of 3 layers", "full"), ("selective recompute", "selective")):
            row = row_of(tmp_path, recompute="partial", notes=notes)
            assert (row["recompute"], row["recomputes_some"]) == (kind, "false")

    def test_modules_that_the_network_lacks_are_left_out_and_told(self, tmp_path: Path) -> None:
        # Qwen3-30B-A3B has experts in every layer, and no latents.
        row = row_of(tmp_path, recompute="mla_up_proj, moe_act, layernorm", **MIXTURE)
        assert (row["recompute"], row["recompute_modules"]) == ("selective", "layernorm moe_act")
        assert row["remarks"].endswith("mla_up_proj needs latent attention; left out")
        assert "recompute" not in row["assumed"].split()
        assert job_of(row).workload.recompute_modules == ("layernorm", "moe_act")
        none = row_of(tmp_path, recompute="mlp", **MIXTURE)
        assert (none["recompute"], "recompute_modules" in none) == ("none", False)

    def test_modules_without_a_name_are_told_to_be_assumed(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, recompute="some modules")
        assert row["recompute"] == "selective"
        assert "recompute" in row["assumed"].split()

    def test_other_words_are_none_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, recompute="gelu")
        assert (row["recompute"], row["remarks"]) == (
            "none",
            "recompute = 'gelu': is not understood; taken as none",
        )
        assert "recompute" in row["assumed"].split()

    @pytest.mark.parametrize("written", ["none/full", "yes or no", "none, selective"])
    def test_words_that_contradict_each_other_leave_out_the_row(self, tmp_path: Path, written: str) -> None:
        assert reason_of(tmp_path, recompute=written).startswith(f"recompute = '{written}': says both")

    @pytest.mark.parametrize(
        ("notes", "kind"),
        [
            ("LoRA; activation checkpointing on", "full"),
            ("lora_r: 32, gradient_checkpointing: true", "full"),
            ("FSDP2, AC full, compile", "full"),
            ("full AC", "full"),
            ("AC selective + float8", "selective"),
            ("gradient_checkpointing=False", "none"),
            ("FSDP2, AC off", "none"),
            ("full activation recompute", "full"),
            ("recompute full", "full"),
            ("recompute: full; SFT", "full"),
            ("recompute_granularity=full", "full"),
            ("recompute selective", "selective"),
            ("recompute, full fine-tuning", None),
            ("recompute: full-iteration graphs", None),
            ("selective activation checkpointing", "selective"),
            ("per-op SAC, compile", "selective"),
            ("activation_checkpoint.mode=selective, selective_ac_option=op", "selective"),
            ("activation_checkpoint.mode=full", "full"),
            ("full activation checkpoint", "full"),
            ("--checkpoint-activations", "full"),
            ("a full checkpoint every 100 steps", None),
            ("no SAC", None),
            ("no recompute", "none"),
            ("gradient checkpointing off", "none"),
            ("59 GiB without recompute, 10 GiB with it", None),
            ("full recompute of the next row", None),
        ],
    )
    def test_notes_say_it_beside_an_empty_cell(self, tmp_path: Path, notes: str, kind: str | None) -> None:
        row = row_of(tmp_path, recompute="", notes=notes)
        assert row["recompute"] == (kind or "none")
        assert ("recompute" in row["assumed"].split()) is (kind is None)

    @pytest.mark.parametrize(("written", "kind"), [("\u2714", "full"), ("\u2717", "none")])
    def test_ticks_of_tables_are_yes_and_no(self, tmp_path: Path, written: str, kind: str) -> None:
        row = row_of(tmp_path, recompute=written, zero_stage_or_fsdp=written)
        assert (row["recompute"], row["zero_stage"] == "0") == (kind, kind == "none")
        assert "recompute" not in row["assumed"].split()

    @pytest.mark.parametrize("written", ["blocks 1-10", "stage 1 only"])
    def test_numbers_of_other_things_are_no_yes(self, tmp_path: Path, written: str) -> None:
        row = row_of(tmp_path, recompute=written)
        assert (row["recompute"], "is not understood" in row["remarks"]) == ("none", True)

    def test_an_empty_cell_is_an_assumption(self, tmp_path: Path) -> None:
        assert "recompute" in row_of(tmp_path, recompute="")["assumed"].split()


class TestSharding:
    @pytest.mark.parametrize(
        ("written", "stage"),
        [
            ("FULL_SHARD", 3),
            ("FSDP2", 3),
            ("HSDP", 3),
            ("ZeRO-3 offload", 3),
            ("ZeRO-Infinity", 3),
            ("ZeRO++", 3),
            ("zeropp", 3),
            ("qwZ+hpZ+qgZ", 3),
            ("os+g+p", 3),
            ("fully_shard", 3),
            ("MiCS 16", 3),
            ("SHARD_GRAD_OP", 2),
            ("FSDP2 (reshard_after_forward=False)", 2),
            ("FSDP2, no reshard", 2),
            ("FSDP2 without resharding", 2),
            ("FSDP2, reshard off", 2),
            ("FSDP2 reshard, no TP", 3),
            ("ZeRO-Offload", 2),
            ("fsdp (SHARD_GRAD_OP)", 2),
            ("os+g", 2),
            ("zero_1", 1),
            ("Z3", 3),
            ("full sharding", 3),
            ("dp_replicate=2", 3),
            ("distributed optimizer", 1),
            ("distopt", 1),
            ("hybrid zero 8", 1),
            ("1.0", 1),
            ("P_os", 1),
            ("Pos+g", 2),
            ("Megatron-FSDP (optim_grads)", 2),
            ("sharded optimizer", 1),
            ("weight update sharding", 1),
            ("NO_SHARD", 0),
            ("DDP", 0),
            ("replicate", 0),
            ("dp", 0),
            ("0", 0),
            ("unsharded", 0),
            ("dist. opt.", 1),
            ("optimizer states", 1),
            ("Megatron-FSDP (optim)", 1),
            ("DP+TP+PP", None),
            ("3D parallelism", None),
        ],
    )
    def test_words_of_pytorch_and_deepspeed_are_stages(self, written: str, stage: int | None) -> None:
        # FSDP2 that does not reshard keeps its weights gathered until the step ends, as SHARD_GRAD_OP does.
        # ZeRO-Infinity and ZeRO++ build on stage 3 (arXiv 2104.07857, 2306.10209); SHARD_GRAD_OP shards gradients and
        # optimizer states during computation (torch.distributed.fsdp.ShardingStrategy).
        assert zero_stage(written) == stage

    @pytest.mark.parametrize(
        ("written", "ranks"),
        [
            ("MiCS 4", "4"),
            ("hybrid zero", "8"),
            ("dp_shard=2", "2"),
            ("HSDP", "8"),
            ("FSDP within a node", "8"),
            ("ZeRO-1, intra-node", "8"),
            ("HSDP replicate=2", "32"),
            ("FSDP2, dp_replicate=4, dp_shard=-1", "16"),
            ("HSDP 2x32", "32"),
            ("HSDP (shard degree 32)", "32"),
            ("HSDP (16 replicas)", "4"),
            ("HSDP 16", "16"),
            ("HSDP16", "16"),
            ("HSDP (32)", "32"),
            ("HSDP (32 shard)", "32"),
            ("HSDP 4*16", "16"),
            ("HSDP (4, 16)", "16"),
            ("HSDP (4 groups of 16)", "16"),
            ("HSDP, 16 GPUs per shard group", "16"),
            ("HSDP over 16 GPUs", "16"),
            ("FSDP across 16 GPUs", "16"),
            ("HSDP over 2 nodes", "8"),
            ("FSDP2", ""),
            ("FSDP 16, DDP 4", "16"),
            ("hybrid zero 16", "16"),
            ("zero1=4", "4"),
            ("zero1 (size=4)", "4"),
            ("zero1=dict(size=4)", "4"),
            ("zero1: size=4", "4"),
            ("zero1(4)", "4"),
            ("zero1 (size=-1, fsdp=False)", ""),
            ("zero1 (16-bit gradients)", ""),
            ("hybrid zero (16)", "16"),
            ("HYBRID_SHARD (16)", "16"),
            ("FULL_SHARD (2.4)", ""),
            ("FSDP shard group 16", "16"),
            ("FSDP2 (16-way)", "16"),
            ("16-way FSDP", "16"),
            ("fsdp2 16", "16"),
            ("dp_replicate=4", "16"),
            ("ici_fsdp_parallelism=16, dcn_data_parallelism=4", "16"),
            ("FSDP, DP over 4 slices", "16"),
            ("ici_fsdp_parallelism=16, dcn_fsdp_parallelism=4", ""),
        ],
    )
    def test_groups_are_as_written_or_of_a_node(self, tmp_path: Path, written: str, ranks: str) -> None:
        row = row_of(tmp_path, n_gpus=64, tp=1, pp=1, zero_stage_or_fsdp=written)
        assert (row["zero_stage"] != "0", row["shard_ranks"], row["remarks"]) == (True, ranks, "")

    @pytest.mark.parametrize(
        ("column", "notes", "stage", "ranks"),
        [
            ("FSDP2", "reshard_after_forward=False, compile", "2", ""),
            ("FSDP", "HSDP 4x16", "3", "16"),
            ("FSDP2", "data_parallel_replicate_degree=8", "3", "8"),
            ("FSDP2", "no HSDP", "3", ""),
            ("FSDP2", "HSDP is 4% slower", "3", ""),
            ("HSDP 2x32", "dp_replicate=8", "3", "32"),
            ("ZeRO-1", "HSDP 8x8", "1", ""),
            ("FSDP2", "weight parallel 8", "3", ""),
        ],
    )
    def test_notes_say_more_than_fsdp(
        self, tmp_path: Path, column: str, notes: str, stage: str, ranks: str
    ) -> None:
        row = row_of(tmp_path, n_gpus=64, tp=1, pp=1, zero_stage_or_fsdp=column, notes=notes)
        assert (row["zero_stage"], row["shard_ranks"]) == (stage, ranks)
        assert ("as the notes say" in row["remarks"]) is (
            (stage, ranks) not in {("3", ""), ("3", "32"), ("1", "")}
        )

    @pytest.mark.parametrize(
        ("framework", "notes", "stage", "remark"),
        [
            ("Megatron-LM", "no distributed optimizer", "0", "no distributed optimizer, as the notes say"),
            ("NeMo 25.02", "use_distributed_optimizer=False", "0", "no distributed optimizer, as the notes"),
            (
                "Megatron-LM",
                "distributed optimizer; overlap on",
                "1",
                "distributed optimizer, as the notes say",
            ),
            ("Megatron-FSDP", "no distributed optimizer", "3", ""),
        ],
    )
    def test_notes_tell_of_the_distributed_optimizer(
        self, tmp_path: Path, framework: str, notes: str, stage: str, remark: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, zero_stage_or_fsdp="", notes=notes)
        assert (row["zero_stage"], remark in row["remarks"]) == (stage, True)

    @pytest.mark.parametrize(
        ("cells", "stage", "ranks"),
        [
            ({"zero_stage_or_fsdp": "wp=8"}, "3", "8"),
            ({"zero_stage_or_fsdp": "zero1=16, weight parallel 4"}, "3", "4"),
            ({"zero_stage_or_fsdp": "zero1=16", "notes": "weight=dict(size=4, overlap=True)"}, "3", "4"),
            ({"zero_stage_or_fsdp": "zero1=16", "notes": "WP 1"}, "1", "16"),
            ({"zero_stage_or_fsdp": "", "notes": "weight parallel size 64"}, "3", ""),
        ],
    )
    def test_ranks_of_internevo_share_weights(
        self, tmp_path: Path, cells: Mapping[str, str], stage: str, ranks: str
    ) -> None:
        # Weights are gathered before they are used and dropped afterwards (arXiv 2401.09149, ISP).
        row = row_of(tmp_path, n_gpus=64, tp=1, pp=1, framework="InternEvo", **cells)
        assert (row["zero_stage"], row["shard_ranks"]) == (stage, ranks)
        assert row["has_memory_verdict"] == ("false" if stage == "3" else "true")

    @pytest.mark.parametrize(("framework", "stage"), [("Megatron-LM 2021", "1"), ("PyTorch FSDP", "3")])
    @pytest.mark.parametrize("written", ["ZeRO-DP", "sharded", "yes"])
    def test_shards_of_no_stage_are_those_of_the_framework_and_told(
        self, tmp_path: Path, written: str, framework: str, stage: str
    ) -> None:
        row = row_of(tmp_path, zero_stage_or_fsdp=written, framework=framework)
        assert (row["zero_stage"], "does not say what is sharded" in row["remarks"]) == (stage, True)
        assert "zero_stage_or_fsdp" in row["assumed"].split()

    @pytest.mark.parametrize(("written", "tp"), [("HSDP", 8), ("HSDP replicate=3", 1), ("FSDP 48", 1)])
    def test_groups_that_cannot_be_are_all_replicas_and_told(
        self, tmp_path: Path, written: str, tp: int
    ) -> None:
        row = row_of(tmp_path, n_gpus=64, tp=tp, pp=1, zero_stage_or_fsdp=written)
        assert row["shard_ranks"] == ""
        assert "sharded over all of them" in row["remarks"]

    @pytest.mark.parametrize(
        ("cells", "fraction", "is_remarked"),
        [
            ({"zero_stage_or_fsdp": "ZeRO-Offload"}, "1.0", False),
            ({"zero_stage_or_fsdp": "zero1", "notes": "optimizer offload"}, "1.0", False),
            ({"zero_stage_or_fsdp": "FSDP, CPU offload"}, "1.0", True),
            ({"notes": "CPU offload optimizer 50%"}, "0.5", False),
            ({"notes": "CPU offload of the optimizer"}, "1.0", False),
            ({"notes": "optimizer_offload_fraction=0.25, optimizer offload"}, "0.25", False),
            ({"notes": "optimizer CPU offload, fraction 1.0"}, "1.0", False),
            ({"zero_stage_or_fsdp": "FSDP, no offload", "notes": "activation CPU offload False"}, "", False),
        ],
    )
    def test_optimizers_wait_in_main_memory_where_they_say_so(
        self, tmp_path: Path, cells: Mapping[str, object], fraction: str, is_remarked: bool
    ) -> None:
        row = row_of(tmp_path, **cells)
        assert (row["optimizer_offload_fraction"], bool(row["remarks"])) == (fraction, is_remarked)

    @pytest.mark.parametrize(
        ("cells", "remark", "is_judged"),
        [
            ({"zero_stage_or_fsdp": "ZeRO++"}, "ZeRO++ is simulated as ZeRO-3", True),
            ({"zero_stage_or_fsdp": "ZeRO++ (qwZ+qgZ)"}, "ZeRO++ is simulated as ZeRO-3", True),
            ({"zero_stage_or_fsdp": "ZeRO++ (qwZ+qgZ), hpZ"}, "ZeRO++ is simulated as ZeRO-3", False),
            ({"zero_stage_or_fsdp": "ZeRO++ (qwZ+hpZ+qgZ)"}, "second copies of weights", False),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "quantized weights and gradients, hpZ 16"},
                "second copies of weights",
                False,
            ),
            (
                {"notes": "zero_hpz_partition_size=8", "framework": "DeepSpeed (ZeRO-3)"},
                "second copies of weights",
                False,
            ),
            ({"framework": "DeepSpeed ZeRO++ 2023"}, "ZeRO++ is simulated as ZeRO-3", True),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "quantized gradient all-to-all"},
                "simulated as ZeRO-3",
                True,
            ),
            ({"zero_stage_or_fsdp": "ZeRO-Infinity"}, "weights are simulated to stay", False),
            (
                {"zero_stage_or_fsdp": "ZeRO-Infinity", "notes": "NVMe offload"},
                "weights are simulated to stay",
                False,
            ),
            ({"framework": "DeepSpeed ZeRO-Infinity"}, "weights are simulated to stay", False),
            ({"zero_stage_or_fsdp": "zero3, param offload"}, "weights are simulated to stay", False),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "NVMe offload"},
                "what waits on disks is not told",
                False,
            ),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "optimizer offload to NVMe"},
                "simulated as main memory",
                True,
            ),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "no hpZ, without ZeRO++; checkpoints of weights"},
                "",
                True,
            ),
            ({"zero_stage_or_fsdp": "zero1", "notes": "ZeRO-Infinity has more room"}, "", True),
            (
                {"zero_stage_or_fsdp": "zero3", "notes": "quantized weights (int4); checkpoints on NVMe"},
                "",
                True,
            ),
        ],
    )
    def test_what_is_more_than_the_stages_of_zero_is_told(
        self, tmp_path: Path, cells: Mapping[str, object], remark: str, *, is_judged: bool
    ) -> None:
        row = row_of(tmp_path, **cells)
        assert (row["zero_stage"], row["has_memory_verdict"]) == (
            "1" if "zero1" in cells.values() else "3",
            str(is_judged).lower(),
        )
        assert (remark in row["remarks"], bool(remark)) == (True, bool(row["remarks"]))

    def test_nothing_said_is_no_stage(self) -> None:
        assert zero_stage("") is zero_stage("unknown") is None

    @pytest.mark.parametrize("written", ["zero7", "deepspeed", "some"])
    def test_other_words_are_refused(self, written: str) -> None:
        with pytest.raises(InputError, match=f"zero_stage_or_fsdp = '{written}'"):
            zero_stage(written)


class TestYesAndNo:
    @pytest.mark.parametrize(
        "written",
        ["yes", "\u2713", "True", "ON", "1.0", "megatron", "TP-SP", "sequence-parallel", "msp", "8"],
    )
    def test_words_for_yes(self, tmp_path: Path, written: str) -> None:
        assert row_of(tmp_path, tp=2, pp=1, sp=written)["has_sequence_parallel"] == "true"

    @pytest.mark.parametrize("written", ["no", "False", "OFF", "0.0", "none", "mtp", "no (ring)"])
    def test_words_for_no(self, tmp_path: Path, written: str) -> None:
        row = row_of(tmp_path, tp=2, pp=1, sp=written, framework="NeMo 25.02")  # whose habit it is
        assert row["has_sequence_parallel"] == "false"

    def test_an_empty_cell_is_the_habit_of_the_framework_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, tp=2, pp=1, sp="", framework="NeMo 25.02")
        assert row["has_sequence_parallel"] == "true"
        assert "sp" in row["assumed"].split()
        assert "sp" not in row_of(tmp_path, tp=1, pp=1, sp="")["assumed"].split()

    @pytest.mark.parametrize(
        ("cells", "is_split"),
        [
            ({"recompute": "selective + SP", "framework": "Megatron-LM 2.0"}, "true"),
            ({"notes": "sequence_parallel=True", "framework": "Megatron-LM 2.0"}, "true"),
            ({"notes": "TP-SP, 4 nodes", "framework": "Megatron-LM 2.0"}, "true"),
            ({"recompute": "full recompute, no SP", "framework": "NeMo 25.02"}, "false"),
            ({"notes": "sequence parallelism", "sp": "no", "framework": "NeMo 25.02"}, "false"),
            ({"notes": "SP=8", "framework": "Megatron-LM 2.0"}, "false"),
        ],
    )
    def test_where_its_cell_is_empty_notes_and_recomputation_may_say(
        self, tmp_path: Path, cells: Mapping[str, object], is_split: str
    ) -> None:
        row = row_of(tmp_path, **{"tp": 2, "pp": 1, "sp": "", **cells})
        assert row["has_sequence_parallel"] == is_split

    @pytest.mark.parametrize("written", ["ulysses", "DeepSpeed-Ulysses", "Ulysses SP", "ring", "cp", "USP"])
    @pytest.mark.parametrize(("framework", "habit"), [("NeMo 25.02", "true"), ("DeepSpeed", "false")])
    def test_context_parallelism_says_nothing_of_tensor_parallel_ranks(
        self, tmp_path: Path, written: str, framework: str, habit: str
    ) -> None:
        row = row_of(tmp_path, tp=2, pp=1, cp=2, sp=written, framework=framework)
        assert row["has_sequence_parallel"] == habit
        assert "sp" in row["assumed"].split()

    @pytest.mark.parametrize(
        ("column", "written", "way_out"),
        [
            (
                "sp",
                "oui",
                "write yes, true, on, y, 1, enabled, megatron, .* or no, false, off, n, 0, disabled, none",
            ),
            (
                "usable",
                "maybe",
                "write yes, true, on, y, 1, enabled, caution or no, false, off, n, 0, disabled, unusable",
            ),
            ("metric_kind", "banana", "name what was measured, such as iteration time, throughput"),
            ("cp_comm_type", "pigeon", "write p2p, all_gather, gathered_ring, a2a or a2a[+]p2p"),
        ],
    )
    def test_other_words_leave_out_the_row_with_column_value_and_known_words(
        self, tmp_path: Path, column: str, written: str, way_out: str
    ) -> None:
        reason = reason_of(tmp_path, cp=2, tp=1, pp=1, **{column: written, "step_time_s": ""})
        assert reason.startswith(f"{column} = '{written}': ")
        assert re.search(way_out, reason)

    @pytest.mark.parametrize(
        "written", ["TGS", "tokens/s/GPU", "tps", "samples/sec", "single log line", "performance card"]
    )
    def test_words_for_speed_are_known(self, tmp_path: Path, written: str) -> None:
        assert row_of(tmp_path, metric_kind=written)["remarks"] == ""

    def test_unknown_words_do_not_lose_a_measured_time(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, metric_kind="banana")
        assert row["remarks"].startswith("metric_kind = 'banana': is not understood")
        assert row["step_time_s"] == "10.0"
        assert known_reason(row) == row["remarks"]

    @pytest.mark.parametrize("column", ["sp", "zero_stage_or_fsdp"])
    def test_unknown_words_for_a_split_do_not_lose_it_either(self, tmp_path: Path, column: str) -> None:
        empty = row_of(tmp_path, tp=2, pp=1, framework="NeMo 25.02", **{column: ""})
        row = row_of(tmp_path, tp=2, pp=1, framework="NeMo 25.02", **{column: "oui"})
        remark = f"{column} = 'oui': is not understood; the habit of the framework stands in"
        assert row == {**empty, "remarks": remark}

    def test_what_stands_behind_yes_or_no_changes_nothing(self, tmp_path: Path) -> None:
        rows = [
            row_of(tmp_path, usable=written) for written in ("yes", "caution: a single log line", "yes (A)")
        ]
        assert rows[0] == rows[1] == rows[2]

    @pytest.mark.parametrize("written", ["off", "0", "N", "unusable"])
    def test_every_word_for_no_marks_a_row_as_unusable(self, tmp_path: Path, written: str) -> None:
        assert reason_of(tmp_path, usable=written) == "usable: the row is marked as unusable"


class TestAccelerators:
    @pytest.mark.parametrize(
        ("written", "known"),
        [
            ("HGX B200", "b200-sxm-180gb"),
            ("DGX H100", "h100-sxm5-80gb"),
            ("H100-SXM5-HBM3", "h100-sxm5-80gb"),
            ("H100-80GB-HBM2e", "h100-pcie-80gb"),
            ("H100 (96GB HBM2e, 500W)", "h100-sxm5-96gb"),
            ("NVIDIA V100 (PCIe)", "v100-pcie-32gb"),
            ("NVIDIA custom A100 64 GB HBM2e", "a100-sxm4-64gb"),
            ("NVIDIA H100 64GB HBM2e", "h100-sxm5-64gb"),
            ("H100 PCIe 94GB", "h100-nvl-94gb"),
            ("H100-94GB", "h100-nvl-94gb"),
            ("HGX H100 8-GPU", "h100-sxm5-80gb"),
            ("A100 (Perlmutter, 40GB)", "a100-sxm4-40gb"),
            ("H20-3e 141GB", "h20-sxm-141gb"),
            ("NVIDIA H200 NVL", "h200-nvl-141gb"),
            ("l40s", "l40s-pcie-48gb"),
            ("H100 (a3-megagpu-8g)", "h100-sxm5-80gb"),
            ("2x8 H100", "h100-sxm5-80gb"),
            ("MI250X GCD", "mi250x-gcd"),
            ("NVIDIA B300 SXM6", "b300"),
            ("B200-192GB", "b200-sxm-180gb"),
            ("a100-sxm-40", "a100-sxm4-40gb"),
            ("a100-pcie-80", "a100-pcie-80gb"),
            ("V100 32", "v100-sxm2-32gb"),
            ("8xA100-80", "a100-sxm4-80gb"),
            ("DGX-A100 (40G)", "a100-sxm4-40gb"),
            ("8x H100 80GB", "h100-sxm5-80gb"),
            ("H100s", "h100-sxm5-80gb"),
            ("GB200-NVL36", "gb200"),
            ("DGX A100 640GB", "a100-sxm4-80gb"),
            ("DGX A100 320GB", "a100-sxm4-40gb"),
            ("GB200 (per GPU)", "gb200"),
            ("NVIDIA GH200 120GB", "gh200-96gb"),
            ("DGX-2 (V100-16GB)", "v100-sxm2-16gb"),
            ("MI250X-64GB", "mi250x-gcd"),
            ("Gaudi2 HL-225H", "gaudi2"),
            ("TPU v6e Trillium", "tpu-v6e"),
            ("TPU7x (Ironwood)", "tpu-v7"),
            ("TPU v5p-12288 (6,144 chips)", "tpu-v5p"),
            ("trn1n.32xlarge", "trainium1"),
            ("H100-80GB (p5.48xlarge)", "h100-sxm5-80gb"),
            ("A100 (p4d.24xlarge)", "a100-sxm4-40gb"),
            ("DGX-2H V100-32GB", "v100-sxm2-32gb"),
            ("Gaudi3 HL-325L", "gaudi3"),
            ("v5litepod-256", "tpu-v5e"),
            ("H100 PCIe (HBM2e)", "h100-pcie-80gb"),
            ("H100 SXM5 94GB", "h100-sxm5-96gb"),
            ("V100 NVLink", "v100-sxm2-32gb"),
            ("H800-80GB NVLink", "h800-sxm5-80gb"),
            ("GH200 Superchip", "gh200-96gb"),
            ("Grace Blackwell GB200", "gb200"),
            ("NVIDIA DGX SuperPOD H100", "h100-sxm5-80gb"),
            ("A100_80GB_SXM", "a100-sxm4-80gb"),
            ("H100x8", "h100-sxm5-80gb"),
            ("MI300X 8x", "mi300x"),
            ("GB200 NVL36x2", "gb200"),
            ("DGX-1", "v100-sxm2-32gb"),
            ("p3.16xlarge", "v100-sxm2-16gb"),
            ("p4de.24xlarge", "a100-sxm4-80gb"),
            ("p5en.48xlarge", "h200-sxm-141gb"),
            ("a3-megagpu-8g", "h100-sxm5-80gb"),
            ("ND96amsr_A100_v4", "a100-sxm4-80gb"),
            ("tpu7x-256", "tpu-v7"),
            ("H200-141GB", "h200-sxm-141gb"),
            ("AMD Instinct MI355X", "mi355x"),
            ("v5e", "tpu-v5e"),
            ("GB300 Blackwell Ultra", "gb300"),
            ("NVIDIA Vera Rubin NVL72", "vr200"),
            ("VRNVL72", "vr200"),
            ("AMD Instinct MI455X 432GB", "mi455x"),
            ("trn3u.48xlarge", "trainium3"),
            ("Huawei Ascend 910C", "ascend-910c"),
        ],
    )
    def test_forms_and_machines_are_no_part_of_the_name(self, written: str, known: str) -> None:
        assert accelerator_id(written) == known

    @pytest.mark.parametrize("written", ["Rubin Ultra", "Rubin CPX", "Ascend 910B"])
    def test_other_parts_of_a_generation_are_not_taken_for_the_known_one(self, written: str) -> None:
        with pytest.raises(CatalogError, match="is not among the catalogue's accelerators"):
            accelerator_id(written)

    @pytest.mark.parametrize(
        ("gpu", "notes", "known"),
        [
            ("H100", "96 GB HBM2e, 500 W", "h100-sxm5-96gb"),
            ("NVIDIA H100", "H100 with 96GB", "h100-sxm5-96gb"),
            ("H100", "HBM3, not HBM2e", "h100-sxm5-80gb"),
            ("H100", "96 GB of host memory", "h100-sxm5-80gb"),
            ("H100-80GB", "HBM2e in the other cluster", "h100-sxm5-80gb"),
        ],
    )
    def test_notes_tell_which_h100_a_bare_name_means(
        self, tmp_path: Path, gpu: str, notes: str, known: str
    ) -> None:
        row = row_of(tmp_path, gpu=gpu, notes=notes, framework="torchtitan", source="torchtitan 2024")
        is_noted = known == "h100-sxm5-96gb"
        assert (row["accelerator"], "as the notes say" in row["remarks"]) == (known, is_noted)
        assert ("gpu" in row["assumed"].split()) is (gpu == "H100" and not is_noted)

    @pytest.mark.parametrize(
        ("written", "known"),
        [
            ("Frontier MI250X", "mi250x"),
            ("HL-225 Gaudi2", "gaudi2"),
            ("H100 SXM 700W", "h100-sxm5-80gb"),
            ("Trillium v6e-256", "tpu-v6e"),
        ],
    )
    def test_words_beside_a_name_are_left_out_and_told(
        self, tmp_path: Path, written: str, known: str
    ) -> None:
        row = row_of(tmp_path, gpu=written, n_gpus=16, tp=1, pp=1)
        assert row["accelerator"].removesuffix("-gcd") == known
        assert f"gpu = '{written}': taken as {known}; other words are not read" in row["remarks"].splitlines()

    @pytest.mark.parametrize("written", ["", "N/A", "nan"])
    def test_a_row_without_one_says_so(self, tmp_path: Path, written: str) -> None:
        assert reason_of(tmp_path, gpu=written) == "gpu is not given"

    @pytest.mark.parametrize(
        ("written", "nearest"),
        [
            ("RTX 4090", "; nearest: l40s-pcie-48gb;"),
            ("B100", "; nearest: b200-sxm-180gb;"),
            ("MI300A", "; nearest: mi300x;"),
            ("Ampere", "; nearest: a100-sxm4-40gb, a100-sxm4-64gb, a100-sxm4-80gb, a800-sxm4-80gb;"),
            ("NVIDIA RTX A6000 48GB", "; nearest: a100-pcie-40gb;"),
            # Another device than the one that some of the words name, or two of them.
            ("H100 80GB HBM3 MIG 3g.40gb", ""),
            ("A100 and H100", ""),
            ("A100 foo PCIe", ""),
            ("MI250X/2", ""),
        ],
    )
    def test_a_reason_names_what_is_nearest(self, tmp_path: Path, written: str, nearest: str) -> None:
        reason = reason_of(tmp_path, gpu=written)
        assert f"gpu = {written}: is not among the catalogue's accelerators{nearest}" in reason

    @pytest.mark.parametrize(
        ("written", "known"),
        [
            ("A100-96GB", "a100-sxm4-80gb (80 GiB)"),
            ("H20-64GB", "h20-sxm-96gb (96 GiB)"),
        ],
    )
    def test_another_memory_is_another_accelerator(self, tmp_path: Path, written: str, known: str) -> None:
        reason = reason_of(tmp_path, gpu=written)
        assert reason.startswith(f"gpu = '{written}': has another memory than {known}")

    def test_machines_that_stand_for_their_accelerators_have_their_network(self, tmp_path: Path) -> None:
        # p4d.24xlarge: four cards of 100 Gb/s (AWS, `Accelerated computing instances`); a DGX A100 has 8 x 200 Gb/s.
        layout = {"n_gpus": 16, "tp": 1, "pp": 1}
        row = row_of(tmp_path, gpu="A100 (p4d.24xlarge)", interconnect="", **layout)
        told = row_of(tmp_path, gpu="A100 40GB", interconnect="p4d.24xlarge", **layout)
        assert float(row["network_bytes_per_s"]) == 4 * 100e9 / 8
        assert {**row, "remarks": ""} == {**told, "remarks": ""}
        assert row["remarks"].startswith("gpu = 'A100 (p4d.24xlarge)': taken as p4d.24xlarge, with 400 Gb/s")
        other = row_of(tmp_path, gpu="A100 (p4d.24xlarge)", interconnect="8x200G HDR", **layout)
        assert float(other["network_bytes_per_s"]) == 8 * 200e9 / 8

    def test_two_racks_of_36_share_their_links(self, tmp_path: Path) -> None:
        assert (
            row_of(tmp_path, gpu="GB200 NVL36x2", n_gpus=72, tp=1, pp=1, global_batch=72)["link_domain_size"]
            == "72"
        )

    def test_racks_share_the_links_that_they_are_named_by(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, gpu="GB200-NVL36", n_gpus=72, tp=1, pp=1, zero_stage_or_fsdp="FSDP")
        assert row["link_domain_size"] == "36"


class TestNumbers:
    @pytest.mark.parametrize(
        ("column", "written", "value", "is_told"),
        [
            ("n_gpus", "1,024", 1024, False),
            ("n_gpus", "16x8", 128, True),
            ("n_gpus", "16 nodes x 8 GPUs", 128, True),
            ("n_gpus", "64 H100s", 64, False),
            ("n_gpus", "64 NVIDIA GB200 GPUs", 64, False),
            ("n_gpus", "512xMI300X", 512, False),
            ("gpus_per_node", "8 GPUs per node", 8, False),
            ("gpus_per_node", "8/node", 8, False),
            ("gpus_per_node", "8xA100", 8, False),
            ("seq_len", "8k", 8192, True),
            ("seq_len", "8.5k", 8704, True),  # of 1,024, as the power of two nearby is 8.2k
            ("vocab", "50k", 50000, True),
            ("kv_heads", "MQA", 1, False),
            ("kv_heads", "8 (GQA)", 8, False),
            ("mlp_matrices", "SwiGLU", 3, False),
            ("vpp", "no", 0, False),
            ("pp", "2 (interleaved)", 2, True),
            ("ep", "EP64", 64, False),
            ("tp", "TP=8", 8, False),
            ("dp", "dp 16", 16, False),
            ("pp", "8 stages", 8, False),
            ("tp", "8-way", 8, False),
            ("vpp", "4 chunks", 4, False),
            ("vpp", "VP 4", 4, False),
            ("vpp", "2 virtual stages", 2, False),
            ("experts", "256 routed experts", 256, False),
            ("experts", "256 routed + 1 shared", 256, True),
            ("topk", "8 + 1", 8, True),
            ("topk", "8 of 256", 8, False),
            ("topk", "8/256", 8, False),
            ("kv_heads", "8 KV", 8, False),
            ("topk", "top-8", 8, False),
            ("topk", "8 + 1 shared", 8, True),
            ("global_batch", "GBS 1024", 1024, False),
            ("micro_batch", "2 per GPU", 2, False),
            ("micro_batch", "2 per chip", 2, False),
            ("micro_batch", "2 seqs/rank", 2, False),
            ("step_time_s", "2100 ms", 2.1, False),
            ("step_time_s", "2.13 \u00b1 0.02 s", 2.13, True),
            ("tokens_per_s_per_gpu", "8,200 +/- 1%", 8200, True),
            ("tokens_per_s_per_gpu", "3.4k", 3400, True),
            ("seq_len", "131K", 131_072, True),
            ("seq_len", "33k", 32_768, True),
            ("seq_len", "3k", 3_072, True),
            ("seq_len", "1M", 2**20, True),
            ("seq_len", "16 384", 16_384, False),
            ("seq_len", "16'384", 16_384, False),
            ("tokens_per_s_per_gpu", "1\u2019024.5", 1_024.5, False),
            ("peak_mem_gib_per_gpu", "80000 MiB", 78.125, False),
            ("peak_mem_gib_per_gpu", "80 GB", 74.505806, True),
        ],
    )
    def test_separators_units_and_words_are_read(
        self, column: str, written: str, value: float, is_told: bool
    ) -> None:
        found = number_in(column, written, may_be_0=column == "vpp")
        assert found is not None
        assert found.value == pytest.approx(value)
        assert found.is_exact != is_told

    @pytest.mark.parametrize(
        ("column", "written"),
        [
            ("global_batch", "4M"),
            ("n_gpus", "8 nodes"),
            ("kv_heads", "GQA"),
            ("ep", "TP8"),
            ("dp", "dp2 x fsdp8"),
            ("topk", "256 of 8"),
            ("topk", "top"),
            ("experts", "256 + 16 zero"),
            ("tp", "8 nodes"),
        ],
    )
    def test_other_words_are_no_numbers(self, column: str, written: str) -> None:
        assert number_in(column, written, may_be_0=False) is None

    @pytest.mark.parametrize(
        ("written", "sequences"),
        [
            ("4M tokens", "1024"),
            ("4,194,304 tokens", "1024"),
            ("2M", "512"),
            ("2^22 tokens", "1024"),
            ("2**22", "1024"),
            ("4.096M tokens", "1000"),
            ("524288", "128"),
            ("4 194 304", "1024"),
            ("512K tokens", "128"),
            ("16M", "4096"),  # 2^24
            ("16.8M tokens", "4096"),  # 2^24 are 16.78 million
            ("63M tokens", "15360"),  # DeepSeek-V3's 62.9 million, arXiv 2412.19437
            ("67M tokens", "16384"),  # Kimi K2's 2^26, arXiv 2507.20534
            ("1.6M tokens", "384"),  # of 378.4 to 402.8 sequences the one with most factors of two: 384
        ],
    )
    def test_batches_of_tokens_are_counted_in_sequences_and_told(
        self, tmp_path: Path, written: str, sequences: str
    ) -> None:
        row = row_of(tmp_path, seq_len=4096, global_batch=written, tp=1, pp=1)
        assert row["global_batch_size"] == sequences
        assert f"global_batch = '{written}': taken as {sequences}" in row["remarks"]

    def test_heads_that_are_not_told_are_as_many_as_their_width_leaves(self, tmp_path: Path) -> None:
        told = {"model": "mine", "layers": 32, "hidden": 4096, "heads": "", "kv_heads": "", "tp": 1, "pp": 1}
        for width, heads in ((64, "64"), ("", "32")):  # 128 wide are usual
            assert row_of(tmp_path, **told, head_dim=width)["num_heads"] == heads

    def test_a_bare_batch_of_as_many_sequences_as_the_largest_steps_have_is_not_of_tokens(
        self, tmp_path: Path
    ) -> None:
        # DeepSeek-V3: 15,360 sequences of 4,096 tokens, arXiv 2412.19437
        row = row_of(tmp_path, seq_len=4096, global_batch="15360", tp=1, pp=1)
        assert row["global_batch_size"] == "15360"
        assert "global_batch" not in row["remarks"]
        assert sequences_in("15360", 4096) is None

    def test_a_number_that_its_author_doubts_is_read_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, global_batch="1024 ?", micro_batch="1?", tp=1, pp=1)
        assert (row["global_batch_size"], row["micro_batch_size"]) == ("1024", "1")
        assert row["remarks"].splitlines()[:2] == [
            "global_batch = '1024 ?': taken as 1024",
            "micro_batch = '1?': taken as 1",
        ]

    def test_micro_batches_of_tokens_are_counted_in_sequences_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, seq_len=4096, micro_batch="8192 tokens", tp=1, pp=1)
        assert (row["micro_batch_size"], row["remarks"]) == ("2", "micro_batch = '8192 tokens': taken as 2")

    @pytest.mark.parametrize("column", ["step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib_per_gpu"])
    def test_a_run_without_room_says_so_in_the_place_of_what_was_measured(
        self, tmp_path: Path, column: str
    ) -> None:
        row = row_of(tmp_path, **{"step_time_s": "", column: "OOM"})
        said = row_of(tmp_path, step_time_s="", metric_kind="out of memory")
        assert row == said
        assert row["left_out_because"] == OUT_OF_MEMORY

    @pytest.mark.parametrize("written", ["\N{EN DASH}", "\N{EM DASH}", "n.a.", "not reported"])
    def test_dashes_and_words_for_nothing_are_empty_cells(self, tmp_path: Path, written: str) -> None:
        cells = {"heads": written, "sp": written, "recompute": written, "interconnect": written}
        assert row_of(tmp_path, **cells) == row_of(tmp_path, **dict.fromkeys(cells, ""))

    @pytest.mark.parametrize("written", ["MLA", "MLA (kv_lora_rank 512)", "latent", "512 (MLA)"])
    def test_latent_attention_is_told_of_models_that_are_not_known_for_it(
        self, tmp_path: Path, written: str
    ) -> None:
        sizes = {"model": "Foo", "layers": 8, "hidden": 4096, "heads": 32}
        row = row_of(tmp_path, kv_heads=written, **sizes)
        assert (row["num_kv_heads"], "latent attention is left out" in row["remarks"]) == ("32", True)
        layout = {"n_gpus": 256, "tp": 1, "pp": 8, "ep": 32, "global_batch": 256}
        assert row_of(tmp_path, model="DeepSeek-V3", kv_heads=written, **layout)["remarks"] == ""

    @pytest.mark.parametrize("written", ["MHA", "same"])
    def test_kinds_of_attention_leave_the_heads_as_usual(self, tmp_path: Path, written: str) -> None:
        assert row_of(tmp_path, kv_heads=written) == row_of(tmp_path, kv_heads="")

    def test_shared_experts_that_are_counted_have_the_width_of_routed_ones(self, tmp_path: Path) -> None:
        shape = {
            "model": "Foo",
            "layers": 8,
            "hidden": 1024,
            "experts": 8,
            "topk": 2,
            "moe_ffn_hidden": 512,
            "ep": 1,
        }
        row = row_of(tmp_path, **shape, shared_expert_ffn=2)
        assert row["shared_ffn_hidden_size"] == "1024"
        assert "shared_expert_ffn = '2': taken as 2 x 512" in row["remarks"]
        assert row_of(tmp_path, **shape, shared_expert_ffn=512)["remarks"] == ""

    @pytest.mark.parametrize(
        ("changes", "width"),
        [
            ({"experts": "16 + 1 shared"}, "512"),
            ({"experts": "16 routed, 2 shared experts"}, "1024"),
            ({"topk": "2+1"}, "512"),
            ({"topk": "top-2 + 2 shared"}, "1024"),
            ({"experts": "16 + 1 shared", "shared_expert_ffn": 2048}, "2048"),
            ({"experts": "16 + 1 shared", "shared_expert_ffn": 0}, "0"),
            ({"experts": 16}, "0"),
        ],
    )
    def test_shared_experts_beside_routed_ones_are_as_wide(
        self, tmp_path: Path, changes: Mapping[str, object], width: str
    ) -> None:
        shape = {"model": "Foo", "layers": 8, "hidden": 1024, "topk": 2, "moe_ffn_hidden": 512, "ep": 1}
        row = row_of(tmp_path, **{**shape, "experts": 16, **changes})
        assert (row["num_experts"], row["shared_ffn_hidden_size"]) == ("16", width)
        is_remarked = "the shared ones are taken as" in row["remarks"]
        assert is_remarked is (width != "0" and "shared_expert_ffn" not in changes)

    def test_shared_experts_of_known_models_have_their_own_width(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, model="DeepSeek-V2-Lite", experts="64 + 2 shared", ep=1, pp=1)
        assert row["shared_ffn_hidden_size"] == "2816"  # two of 1,408
        assert "the shared ones" not in row["remarks"]

    @pytest.mark.parametrize("written", ["OOM", "0", "<80"])
    def test_memory_that_is_not_read_costs_no_time(self, tmp_path: Path, written: str) -> None:
        row = row_of(tmp_path, peak_mem_gib_per_gpu=written)
        assert (row["step_time_s"], row["peak_memory_bytes"]) == ("10.0", "")
        assert row["remarks"].startswith("peak_mem_gib_per_gpu")


class TestPrecision:
    @pytest.mark.parametrize(
        ("written", "precision", "remark"),
        [
            ("16-mixed", "fp16", ""),
            ("AMP O2", "fp16", ""),
            ("mixed", "bf16", ""),
            ("nf4", "bf16", ""),
            ("BF16 (FP8 comm)", "bf16", "sent or kept"),
            ("BF16 + MXFP8 experts", "fp8", "all products"),
            ("bf16, int8 (AQT)", "fp8", "8-bit integers"),
            ("bf16, int8 gradients", "bf16", "sent or kept"),
            ("bf16, fp8 all-gather", "bf16", "sent or kept"),
            ("bf16 (float8 allgather)", "bf16", "sent or kept"),
            ("float8 (fp8 all-gather)", "fp8", ""),
            ("fp8_param_gather", "fp8", ""),
            ("nvfp4, fp8 attention", "fp4", "in 4 bits"),
            ("NVFP4 (mxfp8 for last layers)", "fp4", "keep a wider one"),
            ("nvfp4 + bf16 first/last", "fp4", "keep a wider one"),
        ],
    )
    def test_only_products_count(self, tmp_path: Path, written: str, precision: str, remark: str) -> None:
        row = row_of(tmp_path, precision=written, gpu="B200")
        assert (row["precision"], remark in row["remarks"], bool(remark)) == (
            precision,
            True,
            bool(row["remarks"]),
        )
        assert ("precision" in row["assumed"].split()) is (written in ("mixed", "nf4"))

    @pytest.mark.parametrize(
        ("written", "is_gathered"), [("fp8, fp8 all-gather", "true"), ("fp8, no fp8 all-gather", "false")]
    )
    def test_weights_may_be_gathered_in_8_bits(self, tmp_path: Path, written: str, is_gathered: str) -> None:
        row = row_of(tmp_path, precision=written, framework="PyTorch FSDP2")
        assert row["gathers_cast_weights"] == is_gathered


class TestWhatIsLeftOut:
    def test_an_empty_cell_does_not_make_a_mixture_of_experts_dense(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, model="qwen3-30b-a3b", experts="", ep=8)
        assert row["num_experts"] == "128"
        assert "experts" in row["assumed"].split()
        assert row_of(tmp_path, model="qwen3-30b-a3b", experts=0)["num_experts"] == ""


class TestNotes:
    @pytest.mark.parametrize(
        ("notes", "is_hidden"),
        [
            ("AsyncTP float8 all-gather", True),
            ("async TP", True),
            ("TP communication overlap", True),
            ("tp overlap", True),
            ("tp_comm_overlap off", False),
            ("no TP overlap", False),
            ("", False),
        ],
    )
    def test_tensor_traffic_is_hidden_where_they_say_so(
        self, tmp_path: Path, notes: str, is_hidden: bool
    ) -> None:
        row = row_of(tmp_path, tp=2, pp=1, framework="torchtitan", notes=notes)
        assert job_of(row).workload.overlaps_tensor_comm is is_hidden

    @pytest.mark.parametrize(
        "notes",
        [
            "CPU activation offloading of 20 layers",
            "offloads activations of 20 layers",
            "cpu_offloading_num_layers=20",
            "offload 20 layers to CPU",
            "offloading of activations (20 layers)",
            "activation offloading: 20 layers",
            "20 layers offloaded",
            "offloads 20L",
        ],
    )
    def test_activations_of_some_layers_wait_in_main_memory(self, tmp_path: Path, notes: str) -> None:
        assert row_of(tmp_path, notes=notes)["activation_offload_fraction"] == str(20 / 32)

    def test_layers_that_a_cell_offloads_are_not_computed_again(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, recompute="CPU offload 16 layers")
        assert (row["recompute"], row["activation_offload_fraction"]) == ("none", "0.5")
        assert "taken as offloading the activations of 16 layers" in row["remarks"]

    @pytest.mark.parametrize(
        ("notes", "remark"),
        [
            ("CUDA graphs", "the host launches every kernel"),
            ("MTP", "taken as one module"),
            ("Muon", "simulated as Adam"),
            ("AdamW 8-bit", "simulated as Adam"),
            ("paged_adamw_8bit", "simulated as Adam"),
            ("optimizer states in 8 bits", "simulated as Adam"),
            ("SGD", "simulated as Adam"),
            ("LAMB optimizer", "simulated as Adam"),
            ("optimizer states bf16", "give optimizer_bytes"),
            ("Adam moments in BF16", "give optimizer_bytes"),
            ("master weights kept in bf16", "give optimizer_bytes"),
            ("fp16 optimizer states", "give optimizer_bytes"),
            ("AdamW, bf16", ""),
            ("AdamW; 8 bits", ""),
            ("fp32 optimizer states, bf16 gradients", ""),
            ("no SGD", ""),
            ("power capped to 500 W", "full power"),
            ("without CUDA graphs, no MTP", ""),
            ("MTP not included", ""),
            ("MTP module left out", ""),
            ("MTP layers are not trained", ""),
            ("MTP ignored", ""),
        ],
    )
    def test_what_is_named_and_not_simulated_is_told(self, tmp_path: Path, notes: str, remark: str) -> None:
        remarks = row_of(tmp_path, notes=notes)["remarks"]
        assert (remark in remarks, bool(remarks)) == (True, bool(remark))

    @pytest.mark.parametrize(
        ("notes", "kernel_launch", "is_remarked"),
        [
            ("CUDA graphs local [full_iteration] (recipe at repo HEAD, layout matches)", "graph", False),
            ("CUDA graphs full_iteration []", "graph", False),
            ("cuda_graph_scope=full_iteration", "graph", False),
            ("cuda_graph_impl=local, cuda_graph_scope=attn", "eager", True),
            ("full-iteration CUDA graph", "graph", False),
            ("CUDA graphs transformer_engine [attn, moe_router]", "eager", True),
            ("CUDA graphs", "eager", True),
            ("CUDA graphs off, full iteration measured", "eager", False),
            ("no full-iteration CUDA graphs", "eager", False),
        ],
    )
    def test_graphs_of_whole_steps_leave_the_host_nothing_to_launch(
        self, tmp_path: Path, notes: str, kernel_launch: str, *, is_remarked: bool
    ) -> None:
        row = row_of(tmp_path, notes=notes)
        assert (row["kernel_launch"], bool(row["remarks"])) == (kernel_launch, is_remarked)

    @pytest.mark.parametrize(
        "notes", ["num_layers_per_virtual_pipeline_stage=2", "--num-layers-per-virtual-pipeline-stage 2"]
    )
    def test_layers_of_a_chunk_say_how_many_chunks_there_are(self, tmp_path: Path, notes: str) -> None:
        row = row_of(tmp_path, tp=1, pp=4, vpp="", notes=notes)  # 32 layers, 8 on a stage
        assert row["virtual_pipeline"] == "4"
        assert "4, as the notes say" in row["remarks"]

    @pytest.mark.parametrize("notes", ["TP1 PP4 VP2", "vpp2", "interleaving m=2", "interleaved (v=2)"])
    def test_chunks_are_read_as_tables_and_papers_write_them(self, tmp_path: Path, notes: str) -> None:
        assert row_of(tmp_path, tp=1, pp=4, vpp="", notes=notes)["virtual_pipeline"] == "2"

    @pytest.mark.parametrize(
        ("notes", "is_hidden"),
        [
            ("overlap grad reduce off", "false"),
            ("overlap-grad-reduce=False", "false"),
            ("overlap of DP communication disabled", "false"),
            ("--overlap-grad-reduce", "true"),
            ("overlaps gradients; TP overlap off", "true"),
        ],
    )
    def test_overlap_of_gradients_is_denied_behind_what_is_reduced(
        self, tmp_path: Path, notes: str, is_hidden: str
    ) -> None:
        for framework in ("Megatron-LM 0.12", "NeMo 25.02"):
            row = row_of(tmp_path, tp=1, framework=framework, notes=notes)
            assert row["overlaps_gradient_sync"] == is_hidden

    def test_chunks_and_overlap_are_read(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, tp=1, pp=4, vpp="", notes="vpp=2, no overlap of DP", framework="NeMo 25.02")
        assert (row["virtual_pipeline"], row["overlaps_gradient_sync"]) == ("2", "false")

    def test_offloading_that_a_cell_only_mentions_is_remarked(self, tmp_path: Path) -> None:
        assert "offloading is left out" in row_of(tmp_path, recompute="none (offload)")["remarks"]

    @pytest.mark.parametrize(
        ("written", "is_known"), [("PCIe only", False), ("carrier pigeon", False), ("8x400G", True)]
    )
    def test_links_that_are_not_understood_are_remarked(
        self, tmp_path: Path, written: str, is_known: bool
    ) -> None:
        assert (row_of(tmp_path, interconnect=written)["remarks"] == "") is is_known

    @pytest.mark.parametrize(
        ("gpu", "written", "is_told", "is_bridged"),
        [
            ("H100 PCIe", "NVLink bridges between pairs", False, True),
            ("H100 PCIe", "PCIe 5.0, no NVLink", True, False),
            ("H100 PCIe", "", False, False),
            ("H100", "NVLink4", True, False),
        ],
    )
    def test_bridges_between_cards_are_left_out_and_told(
        self, tmp_path: Path, gpu: str, written: str, *, is_told: bool, is_bridged: bool
    ) -> None:
        row = row_of(tmp_path, gpu=gpu, n_gpus=4, tp=1, pp=1, interconnect=written)
        assert ("interconnect" not in row["assumed"].split()) is is_told
        assert ("bridges between cards are left out" in row["remarks"]) is is_bridged


@pytest.mark.parametrize(
    ("cells", "column", "read"),
    [
        ({"schedule": "1F1B (non-interleaved)", "pp": 4}, "virtual_pipeline", "1"),
        ({"notes": "no zero bubble; 1F1B, not DualPipe", "pp": 4}, "pipeline_schedule", ""),
        ({"recompute": "0 of 80 layers"}, "recompute", "none"),
        ({"recompute": "no full recompute"}, "recompute", "none"),
        ({"recompute": "full, not selective"}, "recompute", "full"),
        ({"precision": "", "gpu": "V100-32GB"}, "precision", "fp16"),
        ({"precision": "bf16 (no fp8)"}, "precision", "bf16"),
        ({"precision": "bf16, fp8: off"}, "precision", "bf16"),
        ({"precision": "fp8 scaling: delayed"}, "fp8_recipe", "delayed"),
        ({"precision": "FP8 scaled, per-tensor"}, "fp8_recipe", "tensorwise"),
        ({"precision": "fp8_sc, not delayed"}, "fp8_recipe", "blockwise"),
        ({"zero_stage_or_fsdp": "without FSDP"}, "zero_stage", "0"),
        ({"zero_stage_or_fsdp": "n/a (LoRA)", "framework": "MaxText"}, "zero_stage", "3"),
        ({"zero_stage_or_fsdp": "GSPMD", "framework": "MaxText"}, "zero_stage", "3"),
        ({"zero_stage_or_fsdp": "no distributed optimizer"}, "zero_stage", "0"),
        ({"zero_stage_or_fsdp": "FSDP, no TP"}, "zero_stage", "3"),
        ({"notes": "full fine-tuning, no LoRA"}, "lora_rank", ""),
        ({"notes": "no fused loss; LoRA"}, "lora_rank", "32"),
        ({"notes": "fused linear cross entropy"}, "logit_bytes", "2"),
        ({"notes": "Liger kernels"}, "logit_bytes", "2"),
        ({"precision": "FP8-BLK"}, "fp8_recipe", "blockwise"),
        ({"precision": "FP8 (DeepSeek-style)"}, "fp8_recipe", "blockwise"),
        ({"precision": "FP8, fine-grained scaling"}, "fp8_recipe", "blockwise"),
        ({"recompute": "--recompute-activations"}, "recompute", "selective"),
        ({"framework": "PyTorch DDP", "zero_stage_or_fsdp": ""}, "zero_stage", "0"),
        ({"framework": "FSDP", "zero_stage_or_fsdp": "DP+TP+PP"}, "zero_stage", "3"),
        ({"precision": "fp8 (mx)", "gpu": "B200"}, "fp8_recipe", "mxfp8"),
        ({"precision": "FP8 (DS)"}, "fp8_recipe", "delayed"),
        ({"precision": "fp8, 1x128/128x128 tiles"}, "fp8_recipe", "blockwise"),
        ({"notes": "packed, mean length 700"}, "mean_tokens", "700"),
        ({"notes": "documents of 700 tokens on average"}, "mean_tokens", "700"),
        ({"notes": "mean samples/s 12"}, "mean_tokens", ""),
        ({**MIXTURE, "notes": "Hybrid EP"}, "fills_expert_rows", "true"),
        ({**MIXTURE, "notes": "Hybrid EP"}, "overlaps_expert_exchange", "false"),
        ({**MIXTURE, "notes": "expert tensor parallel 2"}, "expert_tensor_parallel", "2"),
        ({"notes": "tp_comm_overlap=0", "tp": 2}, "overlaps_tensor_comm", "false"),
        ({"notes": "TP overlap is off", "tp": 2}, "overlaps_tensor_comm", "false"),
        ({"notes": "fp8 all-gather", "framework": "PyTorch FSDP2"}, "gathers_cast_weights", "true"),
        ({"notes": "fp8_param_gather=True"}, "gathers_cast_weights", "true"),
        ({"notes": "no float8 allgather", "framework": "torchtitan"}, "gathers_cast_weights", "false"),
        ({"notes": "fp8_param_gather=False", "framework": BRIDGE}, "gathers_cast_weights", "false"),
        ({"notes": "fp8 weights", "framework": "Megatron-LM 0.12"}, "gathers_cast_weights", "false"),
        ({**MIXTURE, "notes": "no fp8 dispatch"}, "dispatches_in_8_bits", "false"),
        ({**MIXTURE, "notes": "DeepEP not used; all-to-all"}, "expert_dispatch", "all_to_all"),
        ({**MIXTURE, "notes": "dispatcher hybridep"}, "fills_expert_rows", "true"),
        ({**MIXTURE, "notes": "dispatcher hybridep"}, "gathers_routing_maps", "true"),
        ({**MIXTURE, "notes": "DeepEP"}, "gathers_routing_maps", "false"),
        ({**MIXTURE, "notes": "tokendrop"}, "fills_expert_rows", "false"),
        ({**MIXTURE, "notes": "tokendrop", "framework": BRIDGE}, "fills_expert_rows", "true"),
        ({**MIXTURE, "notes": "tokendrop", "framework": BRIDGE}, "expert_dispatch", "all_to_all"),
        ({**MIXTURE, "notes": "token-drop settings not stated"}, "expert_capacity_factor", ""),
    ],
)
def test_words_mean_what_their_neighbours_make_of_them(
    tmp_path: Path, cells: Mapping[str, object], column: str, read: str
) -> None:
    row = row_of(tmp_path, **{"tp": 1, "pp": 1, "framework": "Megatron-LM 0.12", **cells})
    assert row.get(column, "") == read


@pytest.mark.parametrize(
    ("column", "written", "meaning"),
    [
        ("notes", "activation offloading to CPU", "left out; say of how many layers"),
        ("notes", "activation checkpoint offload to CPU", "left out; say of how many layers"),
        ("notes", "gradient checkpointing offload", "left out; say of how many layers"),
        ("notes", "tiled MLP", "feed-forward networks are simulated whole"),
        ("notes", "TiledMLP", "feed-forward networks are simulated whole"),
        ("notes", "AdEMAMix", "the optimizer is simulated as Adam"),
        ("optimizer", "Adam-mini", "the optimizer is simulated as Adam"),
        ("notes", "chunked cross entropy", "the loss is simulated in place on all logits"),
        ("notes", "FP8 attention", "the attention core is simulated in 16 bits"),
        ("notes", "precision-aware optimizer", "give optimizer_bytes"),
        ("notes", "BF16 Adam moments", "give optimizer_bytes"),
        ("notes", "sequence packing", "give mean_document"),
        ("recompute", "selective (layernorm, rope)", "rope: no known module; left out"),
        ("recompute", "SwiGLU", "moe_act"),
        ("precision", "fp8 grouped gemms", "not some of them alone"),
        ("precision", "fp8, last layers bf16", "also those that keep a wider one"),
    ],
)
def test_what_is_simulated_in_another_way_is_told(
    tmp_path: Path, column: str, written: str, meaning: str
) -> None:
    assert meaning in row_of(tmp_path, **{column: written})["remarks"]


@pytest.mark.parametrize(
    "changes",
    [
        {"notes": "offloads activations of 20 layers"},
        {"recompute": "selective: mlp and core attention modules only"},
        {"notes": "activation offload False; no sequence packing"},
        {"notes": "sequence packing", "mean_document": 700},
        {"notes": "BF16 Adam moments", "optimizer_bytes": 8},
    ],
)
def test_nothing_is_told_of_what_is_simulated_as_it_was_run(
    tmp_path: Path, changes: Mapping[str, object]
) -> None:
    assert row_of(tmp_path, **changes)["remarks"] == ""


@pytest.mark.parametrize(("ranks", "is_told"), [(1, False), (2, True)])
def test_expert_tensor_parallelism_of_a_dense_model_is_left_out(
    tmp_path: Path, ranks: int, *, is_told: bool
) -> None:
    row = row_of(tmp_path, etp=ranks)
    assert ("the model has no experts" in row["remarks"]) is is_told
    assert row["num_experts"] == ""
