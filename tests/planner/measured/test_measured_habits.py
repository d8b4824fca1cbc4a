"""What do notes and frameworks of measured runs say of their memory and of their experts?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.fitting_choices import with_room
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare, job_of, memory_kind, plan_of
from planner.measured.software.framework_habits import habits_of
from planner.validation.comparison import entries_of, memory_verdicts
from simulator.memory.peak import memory_by_stage
from tests.planner.measured_rows import LLAMA_405B, QWEN3_30B, RUN, shipped, simulated_row, written

GPT_175B_ON_A100 = {
    **RUN,
    "model": "GPT 175B",
    "layers": 96,
    "hidden": 12_288,
    "heads": 96,
    "kv_heads": 96,
    "ffn_hidden": 49_152,
    "mlp_matrices": 2,
    "seq_len": 2048,
    "gpu": "A100-80GB",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "n_gpus": 256,
    "dp": "",
    "tp": 8,
    "pp": 8,
    "vpp": 6,
    "micro_batch": 1,
    "global_batch": 768,
    "recompute": "",
    "step_time_s": 40,
}


def row_of(folder: Path, **changes: object) -> Row:
    return simulated_row(folder, {**QWEN3_30B, **changes})


class TestChunks:
    def test_both_lists_have_the_same_pipeline_of_llama_3_and_name_what_they_assume(
        self, tmp_path: Path
    ) -> None:
        (row,) = read_measured(written(tmp_path, LLAMA_405B))
        assert not isinstance(row, Unmodelled), row
        ours = shipped("llama3-0001")
        # arXiv 2407.21783, section 3.3.2: with 126 layers on 16 stages the first chunk has only the embedding and the last only
        # the output layer: 128 equal parts, eight on each stage.
        assert row["virtual_pipeline"] == ours["virtual_pipeline"] == "8"
        assert ("vpp" in row["assumed"].split(), "virtual_pipeline" in ours["assumed"].split()) == (
            True,
            True,
        )
        told, listed = compare([row, ours])
        assert told.planned_memory_bytes == listed.planned_memory_bytes
        assert not told.is_too_large

    @pytest.mark.parametrize(
        ("changes", "chunks", "is_assumed"),
        [
            ({"vpp": 4}, "4", False),
            ({"vpp": 0}, "1", False),
            ({"pp": 1, "dp": 1024, "zero_stage_or_fsdp": "FSDP"}, "1", False),
            ({"layers": 125}, "1", True),
            ({"framework": "Megatron-LM 0.12"}, "1", True),
        ],
    )
    def test_chunks_are_assumed_only_where_a_pipeline_does_not_say(
        self, tmp_path: Path, changes: Mapping[str, object], chunks: str, is_assumed: bool
    ) -> None:
        (row,) = read_measured(written(tmp_path, {**LLAMA_405B, **changes}))
        assert not isinstance(row, Unmodelled), row
        assert row["virtual_pipeline"] == chunks
        assert ("vpp" in row["assumed"].split()) is is_assumed


class TestPeaks:
    @pytest.mark.parametrize(
        ("framework", "words", "kind"),
        [
            ("Megatron-LM @23e00ed0", {}, "allocated"),
            ("Megatron-Bridge", {"metric_kind": "TFLOPs + peak memory"}, "allocated"),
            ("Megatron-Bridge", {"notes": "peak reserved memory"}, "reserved"),
            ("torchtitan", {}, "reserved"),
            ("torchtitan", {"metric_kind": "peak allocated memory"}, "allocated"),
            ("DeepSpeed", {}, "device"),
            ("NeMo 25.02", {"notes": "memory by nvidia-smi"}, "device"),
        ],
    )
    def test_they_count_what_the_row_says_or_what_the_framework_prints(
        self, tmp_path: Path, framework: str, words: dict[str, object], kind: str
    ) -> None:
        assert memory_kind(row_of(tmp_path, framework=framework, **words)) == kind

    def test_shipped_rows_are_judged_by_their_source(self, tmp_path: Path) -> None:
        row = {**row_of(tmp_path), "memory_kind": ""}
        assert memory_kind({**row, "group": "BLOOM layout sweep (Megatron-DeepSpeed 2022)"}) == "device"
        assert memory_kind({**row, "group": "SimuMax runs (Megatron-LM 2025)"}) == "allocated"

    def test_the_memory_of_the_device_is_told_where_no_peak_was_published(self, tmp_path: Path) -> None:
        assert memory_kind(row_of(tmp_path, peak_mem_gib_per_gpu="")) == "device"

    def test_a_published_peak_is_compared_with_its_own_sum_and_the_device_with_all(
        self, tmp_path: Path
    ) -> None:
        (live,) = compare([row_of(tmp_path)])
        (device,) = compare([row_of(tmp_path, notes="by nvidia-smi")])
        # SimuMax: reserved = allocated / 0.94; aiconfigurator: 3.9 GB beside it. The optimizer's copies of 16-bit
        # gradients, 4 bytes of 1.8 billion routed weights and more, are not alive at the peak.
        assert device.comparable_memory_bytes > live.comparable_memory_bytes / 0.94 + 3.9e9 + 4 * 1.8e9
        assert live.simulated_memory_bytes == device.simulated_memory_bytes == device.comparable_memory_bytes

    def test_the_measured_peak_of_a_mixture_of_experts_is_met_within_an_eighth(self, tmp_path: Path) -> None:
        (found,) = compare([row_of(tmp_path)])
        assert abs(found.memory_error_fraction) < 0.125  # buffers of dispatchers are not modelled

    def test_a_run_that_ran_is_simulated_to_fit(self, tmp_path: Path) -> None:
        verdicts = memory_verdicts(entries_of([row_of(tmp_path)]))
        assert verdicts.num_ran_and_fit == 1

    def test_a_fused_loss_keeps_16_bit_logits_only(self, tmp_path: Path) -> None:
        assert row_of(tmp_path, framework="NeMo 25.02")["logit_bytes"] == "6"
        notes = "MBS 1; fused cross entropy"
        assert row_of(tmp_path, framework="NeMo 25.02", notes=notes)["logit_bytes"] == "2"
        assert (
            row_of(tmp_path)["logit_bytes"] == "2"
        )  # recipes of Megatron-Bridge take the loss of Transformer Engine


def test_selective_checkpointing_means_operators_in_torchtitan_and_attention_elsewhere(
    tmp_path: Path,
) -> None:
    found = {
        framework: row_of(tmp_path, framework=framework, recompute="selective")["selective_recompute"]
        for framework in ("torchtitan 0.1", "NeMo 25.02", "FSDP")
    }
    assert found == {"torchtitan 0.1": "every_other_product", "NeMo 25.02": "attention", "FSDP": "attention"}


class TestExperts:
    @pytest.mark.parametrize(
        ("framework", "notes", "dispatch", "overlap"),
        [
            ("Megatron-Bridge", "HybridEP dispatcher; EP overlap off", "deduplicated", "false"),
            ("Megatron-Bridge", "HybridEP dispatcher; EP overlap on", "deduplicated", "true"),
            ("Megatron-Bridge", "MoE dispatcher hybridep (recipe)", "deduplicated", "false"),
            ("Megatron-Bridge", "all-to-all dispatcher; no EP overlap", "all_to_all", "false"),
            ("Megatron-LM 0.11", "overlap_moe_expert_parallel_comm", "all_to_all", "true"),
            ("Megatron-LM 0.11", "EP communication overlap", "all_to_all", "true"),
            ("Megatron-LM 0.12", "overlaps the all-to-all", "all_to_all", "true"),
            ("Megatron-LM 0.11", "no all-to-all overlap", "all_to_all", "false"),
            ("Megatron-LM 0.11", "overlaps MoE shared experts", "all_to_all", "false"),
            ("Megatron-Bridge", "moe_a2a_overlap", "deduplicated", "true"),
            ("Megatron-Bridge", "", "deduplicated", "true"),
            ("NeMo 25.02", "", "all_to_all", "false"),
            ("torchtitan", "DeepEP", "deduplicated", "false"),
            ("NeMo 25.02", "flex dispatcher", "deduplicated", "false"),
            ("torchtitan", "FlexAttention", "all_to_all", "false"),
            ("torchtitan", "flex-attn", "all_to_all", "false"),
        ],
    )
    def test_notes_say_how_tokens_travel_or_else_the_framework(
        self, tmp_path: Path, framework: str, notes: str, dispatch: str, overlap: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, notes=notes)
        assert (row["expert_dispatch"], row["overlaps_expert_exchange"]) == (dispatch, overlap)

    @pytest.mark.parametrize(
        ("framework", "expert", "dispatch"),
        [
            ("Megatron-Core 0.11", 16, "all_to_all"),
            ("Megatron-Core 0.12", 16, "deduplicated"),
            ("Megatron-LM 2026", 16, "deduplicated"),
            ("Megatron-LM", 16, "all_to_all"),
            ("Megatron-Core 0.12", 8, "all_to_all"),
            ("NeMo 25.02", 16, "all_to_all"),
            ("NeMo 25.07", 16, "deduplicated"),
        ],
    )
    def test_megatron_sends_tokens_once_across_nodes_since_it_can(
        self, tmp_path: Path, framework: str, expert: int, dispatch: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, ep=expert)
        assert row["expert_dispatch"] == dispatch
        assert "expert_dispatch" in row["assumed"]

    def test_trays_of_one_link_domain_are_nodes_for_it(self, tmp_path: Path) -> None:
        for release, dispatch in (("0.14", "all_to_all"), ("0.15", "deduplicated")):
            row = row_of(tmp_path, framework=f"Megatron-Core {release}", gpu="GB200", gpus_per_node=4, ep=16)
            assert (row["expert_dispatch"], row["link_domain_size"]) == (dispatch, "72")

    def test_traffic_inside_a_node_is_not_taken_to_be_hidden(self, tmp_path: Path) -> None:
        assert row_of(tmp_path, ep=8)["overlaps_expert_exchange"] == "false"

    def test_what_is_not_said_is_named_as_assumed(self, tmp_path: Path) -> None:
        assert {"expert_dispatch", "expert_overlap"} <= set(row_of(tmp_path)["assumed"].split())
        said = row_of(tmp_path, notes="HybridEP dispatcher; EP overlap on")["assumed"].split()
        assert not {"expert_dispatch", "expert_overlap"} & set(said)

    def test_a_dense_model_says_nothing_of_experts(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, model="llama-3.1-8b", ep=1)
        assert "expert_dispatch" not in row


class TestHabitsOfReleases:
    def test_zero_3_with_megatron_of_2021_is_that_of_deepspeed_which_waited_for_its_gathers(self) -> None:
        early = habits_of("Megatron-LM", "ampere", "fp16", is_fully_sharded=True)
        assert (early.weight_prefetch, early.most_gathered_weights) == ("none", 1e9)
        today = habits_of("Megatron-LM", "hopper", "bf16", is_fully_sharded=True)
        assert (today.weight_prefetch, today.most_gathered_weights) == ("both", None)

    @pytest.mark.parametrize("framework", ["DeepSpeed", "fairscale FSDP", "Colossal-AI", "JAX", "Foo"])
    def test_no_software_had_flash_attention_or_split_norms_before_their_papers(self, framework: str) -> None:
        # FlashAttention and sequence parallelism are of May 2022: arXiv 2205.14135 and 2205.05198.
        before = habits_of(f"{framework} (2021)", "ampere", "fp16")
        since = habits_of(f"{framework} (2024)", "ampere", "fp16")
        assert (before.attention, before.has_sequence_parallel) == ("unfused", False)
        assert since.attention in ("flash", "flash-2")
        assert since.has_sequence_parallel is (framework == "Foo")

    @pytest.mark.parametrize(
        "framework", ["Megatron-LM 0.12", "Megatron-LM v0.9", "Megatron-LM core_r0.8.0", "Megatron-LM 24.01"]
    )
    def test_releases_since_megatron_core_are_not_those_of_2021_on_any_hardware(self, framework: str) -> None:
        assert habits_of(framework, "ampere", "bf16").attention == "flash"

    @pytest.mark.parametrize("framework", ["Megatron-LM v2.5", "Megatron-LM 3.0", "Megatron-LM (May 2022)"])
    def test_early_releases_had_no_fused_attention_on_any_hardware(self, framework: str) -> None:
        assert habits_of(framework, "hopper", "bf16").attention == "unfused"

    @pytest.mark.parametrize(
        ("framework", "is_deepspeed"),
        [
            ("Megatron-DeepSpeed 2022", True),
            ("vTrain (Megatron-DeepSpeed)", True),
            ("Megatron-LM v2.5", False),
        ],
    )
    def test_the_step_of_deepspeed_with_loss_scaling_moves_more(
        self, framework: str, is_deepspeed: bool
    ) -> None:
        assert habits_of(framework, "ampere", "fp16").step_bytes == (82 if is_deepspeed else None)

    @pytest.mark.parametrize(
        ("framework", "family", "kernel"),
        [
            ("torchtitan", "hopper", "flash-2"),
            ("llm-foundry/Composer (PyTorch FSDP)", "hopper", "flash-2"),
            ("torchtitan (2026)", "hopper", "flash"),
            ("torchtitan v0.1.0", "hopper", "flash-2"),
            ("torchtitan v0.2.0", "hopper", "flash"),  # contains its pull request 1776
            ("PyTorch FSDP (PyTorch 2.10)", "hopper", "flash-2"),
            ("PyTorch FSDP (PyTorch 2.11)", "hopper", "flash"),
            ("torchtitan", "blackwell", "flash"),
            ("NeMo 25.02", "hopper", "flash"),
            ("DeepSpeed", "volta", "unfused"),
            ("NeMo", "volta", "unfused"),
            ("PyTorch FSDP 2024", "volta", "flash-2"),
        ],
    )
    def test_attention_is_that_of_the_framework_on_the_architecture(
        self, framework: str, family: str, kernel: str
    ) -> None:
        assert habits_of(framework, family, "fp16").attention == kernel

    @pytest.mark.parametrize(
        ("framework", "copies"),
        [
            ("torchtitan", True),
            ("torchtitan (torch.compile)", True),
            ("torchtitan 2026", False),
            ("llm-foundry/Composer (PyTorch FSDP)", False),
            ("Megatron-LM", False),
        ],
    )
    def test_torchtitan_copied_heads_until_2025(self, framework: str, copies: bool) -> None:
        # Pull request 2259 of torchtitan, "GQA without kv repeats", January 2026.
        assert habits_of(framework, "hopper", "bf16").copies_shared_heads == copies

    @pytest.mark.parametrize(
        ("framework", "sharding", "copies"),
        [
            ("torchtitan (torch.compile)", "zero3", "fsdp-2"),
            ("PyTorch", "FSDP2", "fsdp-2"),
            ("PyTorch FSDP 2.0 (2023)", "FSDP", "none"),
            ("torchtitan (SimpleFSDP)", "zero3", "none"),
            ("Megatron-LM", "zero3", "none"),
        ],
    )
    def test_fsdp_2_copies_between_collectives_and_computation(
        self, tmp_path: Path, framework: str, sharding: str, copies: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, zero_stage_or_fsdp=sharding)
        assert row["sharded_copies"] == copies

    @pytest.mark.parametrize(
        ("framework", "tensor", "logit_bytes"),
        [
            ("torchtitan", 8, "16"),
            ("torchtitan", 1, "12"),
            ("torchtitan 2024 (torch.compile)", 8, "16"),
            ("torchtitan 2025 (torch.compile)", 8, "4"),
            ("torchtitan 2025", 1, "12"),
            ("FSDP2", 8, "12"),
        ],
    )
    def test_the_loss_of_pytorch_holds_three_tensors_of_logits_and_a_split_one_four(
        self, tmp_path: Path, framework: str, tensor: int, logit_bytes: str
    ) -> None:
        changes = {"framework": framework, "tp": tensor, "pp": 1, "vpp": 1, "dp": 1024 // tensor}
        (row,) = read_measured(written(tmp_path, {**LLAMA_405B, **changes}))
        assert not isinstance(row, Unmodelled), row
        assert row["logit_bytes"] == logit_bytes

    def test_a_year_tells_more_than_the_hardware(self) -> None:
        today = habits_of("Megatron-DeepSpeed 2024", "ampere", "bf16", is_fully_sharded=True)
        assert (today.kernel_launch, today.attention, today.weight_prefetch) == ("eager", "flash-2", "both")
        early = habits_of("Megatron-DeepSpeed 2022", "hopper", "bf16")
        assert early.attention == "unfused"

    @pytest.mark.parametrize(
        "release", ["24.05", "v24.05", "(recipe v24.05)", "Megatron-Core (recipe v24.03.1)"]
    )
    def test_a_release_counts_with_and_without_its_letter(self, release: str) -> None:
        # apex' optimizer until 24.05: 10 bytes a weight.
        assert habits_of(f"NeMo {release}", "hopper", "bf16").optimizer_bytes == 10.0
        assert habits_of("NeMo v25.05", "hopper", "bf16").optimizer_bytes == 12.0

    @pytest.mark.parametrize("framework", ["NeMo Automodel", "NVIDIA NeMo Framework 25.11 (Automodel)"])
    def test_automodel_of_nemo_is_fsdp(self, framework: str) -> None:
        found = habits_of(framework, "hopper", "bf16")
        assert (found.name, found.zero_stage) == ("FSDP", 3)

    @pytest.mark.parametrize("precision", ["bf16", "fp8"])
    def test_automodel_trains_in_16_bits_from_end_to_end(self, precision: str) -> None:
        # Adam of PyTorch keeps two moments in the format of its weights: 2 bytes each, and no master weight.
        found = habits_of("NeMo Automodel", "hopper", precision)
        assert (found.gradient_bytes, found.optimizer_bytes) == (2, 4.0)

    def test_recipes_of_automodel_have_kernels_of_transformer_engine_and_chunks(self) -> None:
        # NVIDIA-NeMo/Automodel, examples/llm_benchmark: attn: te, rms_norm: te, rope_fusion: true, experts: gmm, dispatcher:
        # deepep; pp_schedule: interleaved1f1b in 116 of 132 pipelines.
        found = habits_of("NeMo Automodel", "hopper", "bf16")
        assert (found.attention, found.has_fused_operators, found.copies_shared_heads) == (
            "flash",
            True,
            False,
        )
        assert (found.expert_products, found.expert_dispatch) == ("grouped", "deduplicated")
        assert found.picks_chunks

    @pytest.mark.parametrize(
        ("framework", "is_compiled"),
        [
            ("fms-fsdp", True),
            ("OLMo-core", True),
            ("Meta Lingua", True),
            ("TinyLlama (lit-gpt)", True),
            ("PyTorch FSDP", False),
        ],
    )
    def test_frameworks_that_compile_by_default_fuse_operators(
        self, framework: str, is_compiled: bool
    ) -> None:
        assert habits_of(framework, "hopper", "bf16").has_fused_operators == is_compiled

    @pytest.mark.parametrize("framework", ["", "home-made", "Megatron-LM", "Megatron-DeepSpeed", "NeMo"])
    def test_a_framework_that_is_unknown_or_dated_by_its_hardware_is_assumed(
        self, tmp_path: Path, framework: str
    ) -> None:
        assert "framework" in row_of(tmp_path, framework=framework)["assumed"].split()

    @pytest.mark.parametrize(
        "framework",
        ["Megatron-LM v0.9", "Megatron-LM (May 2022)", "NeMo 25.02", "torchtitan", "Megatron-Core"],
    )
    def test_a_framework_that_is_known_and_dated_is_not_assumed(self, tmp_path: Path, framework: str) -> None:
        assert "framework" not in row_of(tmp_path, framework=framework)["assumed"].split()

    @pytest.mark.parametrize(
        ("changes", "attention", "hides_sums", "recompute"),
        [
            ({"sp": "no"}, "unfused", "false", "full"),
            ({"sp": "yes"}, "unfused", "true", "selective"),
            ({"sp": "no", "cp": 2}, "flash", "true", "none"),
            ({"sp": "yes", "source": "Narayanan et al. SC'21"}, "unfused", "false", "selective"),
        ],
    )
    def test_what_splits_a_network_dates_megatron_where_nothing_else_does(
        self, tmp_path: Path, changes: Mapping[str, object], attention: str, hides_sums: str, recompute: str
    ) -> None:
        row = simulated_row(tmp_path, {**GPT_175B_ON_A100, **changes})
        assert (row["attention"], row["overlaps_input_gradients"]) == (attention, hides_sums)
        (known,) = with_room(compare([row]))
        assert (known.row["recompute"], known.row["recompute_num_layers"]) == (recompute, "")

    def test_internevo_sends_weights_before_the_next_step(self, tmp_path: Path) -> None:
        shown, hidden = (job_of(row_of(tmp_path, framework=name)) for name in ("InternEvo", "NeMo 25.02"))
        assert shown.workload.overlaps_gradient_sync
        assert not shown.workload.hides_parameter_gather
        assert hidden.workload.hides_parameter_gather

    @pytest.mark.parametrize(
        ("framework", "copied", "step", "is_measured"),
        [("InternEvo", 8, 62, True), ("Colossal-AI", 12, 66, False)],
    )
    def test_whole_buckets_are_all_reduced_under_zero_1_of_internevo_and_colossal_ai(
        self, tmp_path: Path, framework: str, copied: float, step: float, is_measured: bool
    ) -> None:
        workload = job_of(row_of(tmp_path, framework=framework)).workload
        assert workload.scatters_gradients_from == 2
        assert (workload.bucket_copy_bytes, workload.added_gradient_bytes) == (copied, 6)
        assert workload.step_bytes == step
        assert workload.measures_accuracy == workload.checkpoints_norms == is_measured

    @pytest.mark.parametrize(
        ("stage", "precision", "bytes_of_states"),
        [
            ("zero1", "bf16", (6, None)),
            ("zero2", "bf16", (2, 6)),
            ("zero3", "bf16", (2, 6)),
            ("zero3", "fp16", (2, 6)),
        ],
    )
    def test_deepspeed_sums_in_32_bits_under_zero_1_alone(
        self, tmp_path: Path, stage: str, precision: str, bytes_of_states: tuple[float, float | None]
    ) -> None:
        """`_do_optimizer_sanity_check` takes `BF16_Optimizer` for stage 1 alone, `get_data_types` the model's format."""
        row = row_of(tmp_path, framework="DeepSpeed 0.14", zero_stage_or_fsdp=stage, precision=precision)
        workload = job_of(row).workload
        assert (workload.gradient_bytes, workload.update_bytes) == bytes_of_states
        assert (workload.sync_bytes, workload.optimizer_bytes) == (2, 12)

    @pytest.mark.parametrize(
        ("peak", "kind", "is_compared"),
        [
            (74.5, "", True),
            (76288, "", False),
            (120, "", False),
            (120, "out-of-memory", True),
            (84, "", True),
        ],
    )
    def test_no_run_had_more_memory_than_its_accelerator_has(
        self, tmp_path: Path, peak: float, kind: str, *, is_compared: bool
    ) -> None:
        """76,288 MiB are 74.5 GiB of the 80 of an H100; a run without room may tell what it would have needed."""
        row = simulated_row(tmp_path, {**RUN, "peak_mem_gib_per_gpu": peak, "metric_kind": kind})
        assert row["peak_memory_bytes"] == (str(peak * 2.0**30) if is_compared else "")
        told = "more than the 80 GiB of h100-sxm5-80gb; memory is not compared"
        assert (told in row["remarks"]) != is_compared

    def test_weights_and_gradients_of_deepspeed_under_zero_3_have_16_bits(self, tmp_path: Path) -> None:
        """2 + 2 + 12 bytes of each of 8.03e9 weights over 8 ranks (arXiv 1910.02054, section 3.1)."""
        changes = {"framework": "DeepSpeed 0.14", "zero_stage_or_fsdp": "zero3"}
        row = simulated_row(tmp_path, {**RUN, **changes})
        memory = memory_by_stage(job_of(row).workload, plan_of(row))
        each = 8.03e9 / 8
        found = (memory.weights_bytes[0], memory.gradients_bytes[0], memory.optimizer_bytes[0])
        assert found == pytest.approx((2 * each, 2 * each, 12 * each), rel=0.01)

    @pytest.mark.parametrize(
        ("pipeline", "is_hidden", "copied", "added"), [(1, True, 12, 6), (2, False, 32, 26)]
    )
    def test_pipelines_of_deepspeed_sum_up_in_32_bits_and_reduce_behind_the_last_pass(
        self, tmp_path: Path, pipeline: int, is_hidden: bool, copied: float, added: float
    ) -> None:
        found = row_of(
            tmp_path, framework="DeepSpeed 0.14 (2024)", pp=pipeline, ep=8, zero_stage_or_fsdp="zero1"
        )
        workload = job_of(found).workload
        assert workload.overlaps_gradient_sync == is_hidden
        assert (workload.bucket_copy_bytes, workload.added_gradient_bytes) == (copied, added)
        assert workload.scatters_gradients_from == 3

    def test_what_early_deepspeed_did_to_gradients_is_part_of_its_launches(self) -> None:
        early = habits_of("Megatron-DeepSpeed (2022)", "ampere", "bf16")
        assert early.kernel_launch == "blocking-2022"
        assert early.bucket_copy_bytes == 0.0
        assert early.added_gradient_bytes is None

    @pytest.mark.parametrize(
        ("framework", "family"),
        [
            ("InternEvo", "InternEvo"),
            ("Colossal-AI", "Colossal-AI"),
            ("nanotron", "nanotron"),
            ("HAI-LLM", "HAI-LLM"),
            ("GPT-NeoX 2.0", "DeepSpeed"),
            ("NeoX 2.0", "DeepSpeed"),
            ("MosaicML", "llm-foundry"),
            ("Pax", "JAX"),
            ("Mesh TensorFlow", "JAX"),
            ("Meta", "Meta's of Llama 3"),
            ("Meta (2023)", "unknown framework"),  # of Llama 2
            ("Meta in-house", "Meta's of Llama 3"),
            ("Meta internal (4D: TP, CP, PP, FSDP) (2024)", "Meta's of Llama 3"),
            ("Llama 3 herd of models, Table 4 (2024)", "Meta's of Llama 3"),
            ("Meta (PyTorch FSDP)", "FSDP"),
            ("Meta (internal)", "Meta's of Llama 3"),
            (
                "Meta internal (xformers, model+sequence parallel)",
                "unknown framework",
            ),  # of LLaMA, arXiv 2302.13971
            ("torchtune", "FSDP"),
            ("Hugging Face Trainer", "FSDP"),
            ("Accelerate (DeepSpeed ZeRO-3)", "DeepSpeed"),
            ("Meta Lingua", "FSDP"),
            ("metaseq", "FSDP"),
            ("MegaScale", "Megatron-Core"),
            ("Primus (Megatron-LM)", "Primus"),
            ("Primus torchtitan", "torchtitan"),
            ("MaxText (FSDP)", "JAX"),
            ("Alpa (JAX/XLA)", "Alpa"),
            ("JAX FSDP", "JAX"),
            ("Megatron-FSDP", "Megatron-Core"),
            ("Megatron-LM + FSDP", "Megatron-Core"),
            ("metaseq (fairscale FSDP + Megatron TP)", "FSDP"),
            ("axolotl + DeepSpeed ZeRO-3", "DeepSpeed"),
            ("FSDP with DeepSpeed-Ulysses", "FSDP"),
            ("axolotl", "FSDP"),
            ("LLaMA-Factory", "FSDP"),
            ("LLaMA Factory (DeepSpeed ZeRO-3)", "DeepSpeed"),
            ("TRL SFTTrainer", "FSDP"),
            ("NeMo Automodel (FSDP2)", "FSDP"),
        ],
    )
    def test_smaller_frameworks_have_the_habits_of_what_they_are_built_on(
        self, framework: str, family: str
    ) -> None:
        assert habits_of(framework, "hopper", "bf16").name == family

    @pytest.mark.parametrize(
        ("framework", "is_of_trainers"),
        [
            ("axolotl + DeepSpeed ZeRO-3 2024", True),
            ("DeepSpeed, Hugging Face Trainer 2024", True),
            ("LLaMA-Factory (DeepSpeed 0.14)", True),
            ("DeepSpeed 2024", False),
            ("Megatron-DeepSpeed 2024, converted to HF", False),
        ],
    )
    def test_models_of_trainers_are_the_same_below_every_engine(
        self, framework: str, is_of_trainers: bool
    ) -> None:
        found, sharded, own = (
            habits_of(name, "hopper", "bf16") for name in (framework, "axolotl FSDP 2024", "DeepSpeed 2024")
        )
        of_the_model = ("copies_shared_heads", "has_fused_operators", "pads_vocabulary", "logit_bytes")
        alike = sharded if is_of_trainers else own
        assert [getattr(found, field) for field in of_the_model] == [
            getattr(alike, field) for field in of_the_model
        ]
        assert found.bucket_weights == own.bucket_weights
        assert sharded.logit_bytes != own.logit_bytes

    @pytest.mark.parametrize(
        ("framework", "precision", "is_split", "is_cast"),
        [
            ("NeMo 25.04", "fp8", True, True),
            ("MaxText", "fp8", False, False),
            ("FSDP", "fp8", False, False),
            ("torchtitan", "fp8", True, True),
            ("torchtitan (torch.compile)", "float8 tensorwise", True, True),
            ("torchtitan", "float8 rowwise", True, False),
            ("torchtitan", "float8 blockwise", True, False),
        ],
    )
    def test_gathers_in_8_bits_are_those_of_transformer_engine_and_of_torchtitan_by_tensors(
        self, tmp_path: Path, framework: str, precision: str, *, is_split: bool, is_cast: bool
    ) -> None:
        # torchtitan, `parallelize.py`: SequenceParallel always, 8 bits "only for tensorwise float8 scaling recipes".
        workload = job_of(row_of(tmp_path, framework=framework, precision=precision, tp=8)).workload
        assert (workload.has_sequence_parallel, workload.gathers_cast_inputs) == (is_split, is_cast)

    @pytest.mark.parametrize(
        ("framework", "stage"),
        [("DeepSpeed ZeRO-3", 3), ("DeepSpeed (zero2)", 2), ("FSDP", 3), ("DeepSpeed", 1)],
    )
    def test_a_stage_in_the_name_of_a_framework_holds(self, framework: str, stage: int) -> None:
        assert habits_of(framework, "hopper", "bf16").zero_stage == stage

    @pytest.mark.parametrize(
        ("framework", "is_hidden"),
        [
            ("Megatron-LM 2021", False),
            ("Megatron-LM v2.5", False),
            ("Megatron-LM (May 2022)", True),
            ("Megatron-LM 3.0", True),
            ("Megatron-LM 0.12", True),
            ("Megatron-DeepSpeed 2022", False),
            ("Megatron-DeepSpeed 0.6.5", False),
            ("InternEvo", True),
            ("torchtitan", False),
            ("somebody's own", True),
        ],
    )
    def test_sums_of_input_gradients_are_hidden_by_megatron_since_2022(
        self, framework: str, *, is_hidden: bool
    ) -> None:
        assert habits_of(framework, "ampere", "fp16").overlaps_input_gradients is is_hidden

    @pytest.mark.parametrize(
        ("framework", "separate"),
        [
            ("InternEvo", "feed_forward"),
            ("InternLM 0.2.0", "feed_forward"),
            ("Colossal-AI", "all"),
            ("NeMo", "none"),
        ],
    )
    def test_products_that_read_the_same_input_are_apart_where_the_modules_are(
        self, tmp_path: Path, framework: str, separate: str
    ) -> None:
        # `internlm/model/modules/mlp.py` of InternEvo, `colossalai/shardformer/policies/llama.py`
        workload = job_of(row_of(tmp_path, framework=framework, tp=8)).workload
        assert workload.separate_first_products == separate

    @pytest.mark.parametrize("framework", ["Megatron-LM 2021", "Megatron-LM (May 2022)"])
    def test_zero_3_of_early_megatron_is_that_of_deepspeed(self, framework: str) -> None:
        found = habits_of(framework, "ampere", "fp16", is_fully_sharded=True)
        assert found == habits_of("Megatron-DeepSpeed 2022", "ampere", "fp16", is_fully_sharded=True)

    @pytest.mark.parametrize("framework", ["Megatron-Core (FSDP)", "NeMo 25.02 FSDP", "Megatron-LM + FSDP"])
    def test_megatron_with_fsdp_shards_layers_of_transformer_engine(self, framework: str) -> None:
        found = habits_of(framework, "ampere", "bf16")
        assert (found.zero_stage, found.has_fused_operators, found.attention) == (3, True, "flash")

    def test_hai_llm_trains_experts_as_the_report_of_deepseek_v3_says(self, tmp_path: Path) -> None:
        # arXiv 2412.19437, sections 3.2.1, 3.2.2 and 3.3.
        row = row_of(
            tmp_path, framework="HAI-LLM", precision="fp8", pp=2, ep=8, global_batch=512, gpus_per_node=4
        )
        workload = job_of(row).workload
        assert (workload.overlaps_expert_exchange, workload.expert_dispatch) == (True, "deduplicated")
        assert (workload.dispatches_in_8_bits, workload.fp8_recipe) == (True, "blockwise")
        assert (row["pipeline_schedule"], row["virtual_pipeline"]) == ("dual_pipe_v", "2")
        assert "pipeline_schedule" in row["assumed"].split()

    def test_hai_llm_of_16_bits_trains_experts_as_the_report_of_deepseek_v2_says(
        self, tmp_path: Path
    ) -> None:
        # arXiv 2405.04434, section 3.1.3.
        row = row_of(
            tmp_path, framework="HAI-LLM", precision="bf16", pp=2, ep=8, global_batch=512, gpus_per_node=4
        )
        workload = job_of(row).workload
        assert (workload.overlaps_expert_exchange, workload.overlaps_shared_experts) == (False, True)
        assert (workload.dispatches_in_8_bits, row["pipeline_schedule"]) == (False, "zb_v")

    def test_hai_llm_predicts_one_token_more_of_deepseek_v3_and_has_dual_pipe(self, tmp_path: Path) -> None:
        # Same, sections 2.2, 3.2 and 4.2: 16 stages of DualPipe on 2,048 H800.
        told = {"framework": "HAI-LLM", "model": "DeepSeek-V3", "gpu": "H800", "precision": "fp8"}
        shape = {"layers": 61, "hidden": 7168, "heads": 128, "kv_heads": "", "experts": 256, "topk": 8}
        layout = {
            "n_gpus": 2048,
            "tp": 1,
            "pp": 16,
            "dp": 128,
            "ep": 64,
            "gpus_per_node": 8,
            "micro_batch": 1,
        }
        row = row_of(tmp_path, **told, **shape, **layout, global_batch=15_360, zero_stage_or_fsdp="1")
        assert (row["pipeline_parallel"], row["data_parallel"]) == ("8", "256")
        assert (row["num_mtp_layers"], row["stage_layers"]) == ("1", "4 " * 15 + "1")

    def test_a_row_that_shards_weights_is_simulated_with_those_habits(self, tmp_path: Path) -> None:
        dense = {
            "model": "gpt",
            "layers": 96,
            "hidden": 12288,
            "ep": 1,
            "zero_stage_or_fsdp": "zero3",
            "step_time_s": "",
        }
        row = row_of(tmp_path, **dense, gpu="A100-80GB", framework="Megatron-LM", precision="fp16")
        assert (row["weight_prefetch"], row["most_gathered_weights"]) == ("none", "1000000000.0")

    @pytest.mark.parametrize(
        ("framework", "precision", "optimizer_bytes", "update_bytes"),
        [
            ("NeMo 23.08", "bf16", 10.0, 0.0),
            ("NeMo 24.05", "bf16", 10.0, 0.0),
            ("NeMo 1.23", "bf16", 10.0, 0.0),
            ("NeMo 24.05", "fp8", 12.0, 0.0),
            ("NeMo 25.02", "bf16", 12.0, None),
            # arXiv 2412.19437, section 3.3.3: a master weight in 32 bits and moments in 16, beside products in 8.
            ("HAI-LLM", "fp8", 8.0, None),
            ("Megatron-DeepSpeed", "fp16", 12.0, 6.0),
            ("Megatron-DeepSpeed", "bf16", 12.0, None),
        ],
    )
    def test_apex_and_deepseek_store_less_and_deepspeed_copies_more(
        self, framework: str, precision: str, optimizer_bytes: float, update_bytes: float | None
    ) -> None:
        found = habits_of(framework, "ampere", precision)
        assert (found.optimizer_bytes, found.update_bytes) == (optimizer_bytes, update_bytes)


class TestPipelinesOfFsdp:
    @pytest.mark.parametrize(
        ("framework", "sharding", "pp", "stage", "overlaps"),
        [
            ("torchtitan", "FSDP2", 2, "1", "false"),
            ("torchtitan", "", 2, "1", "false"),
            ("torchtitan", "FSDP2", 1, "3", "true"),
            ("torchtitan", "FSDP2 (reshard_after_forward=True)", 2, "3", "true"),
            ("torchtitan", "zero1", 2, "1", "false"),
            ("torchtitan", "zero2", 2, "1", "false"),
            ("torchtitan", "none", 2, "0", "true"),
            ("torchtitan", "zero2", 1, "2", "true"),
            ("olmo", "FSDP2", 2, "1", "false"),
        ],
    )
    def test_weights_of_a_pipeline_are_gathered_once_a_step(
        self, tmp_path: Path, framework: str, sharding: str, pp: int, stage: str, overlaps: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, zero_stage_or_fsdp=sharding, pp=pp, ep=1)
        assert (row["zero_stage"], row["overlaps_gradient_sync"]) == (stage, overlaps)
        assert ("as ZeRO-1" in row["remarks"]) is (sharding == "zero2" and pp > 1)


IN_FOUR_STAGES = {
    "model": "llama-3.1-8b",
    "experts": 0,
    "pp": 4,
    "tp": 1,
    "ep": 1,
    "dp": 4,
    "global_batch": 32,
    "recompute": "full",
}


@pytest.mark.parametrize(
    ("framework", "joins", "stage"),
    [
        ("torchtitan", "true", "last"),
        ("torchtitan 2024", "true", "last"),
        ("torchtitan (2025-11)", "false", "last"),
        ("torchtitan (2026)", "false", "last"),
        ("PyTorch FSDP2", "false", "fullest"),
        ("NeMo Automodel 26.06", "false", "fullest"),
        ("Megatron-LM 0.12", "false", "fullest"),
    ],
)
def test_pipelines_of_torchtitan_returned_outputs_and_print_the_last_stage(
    tmp_path: Path, framework: str, joins: str, stage: str
) -> None:
    row = row_of(tmp_path, framework=framework, peak_mem_gib_per_gpu=40, **IN_FOUR_STAGES)
    assert (row["joins_logits"], row["memory_stage"]) == (joins, stage)
    stages = memory_by_stage(job_of(row).workload, plan_of(row)).peak_of(memory_kind(row))
    expected = stages[-1] if stage == "last" else stages.max()
    assert compare([row])[0].comparable_memory_bytes == pytest.approx(float(expected))
