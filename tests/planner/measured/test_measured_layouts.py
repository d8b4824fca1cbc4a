"""How do words and numbers of a measured run lay it out? Nodes, batches, chunks, schedules, and what is only told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare, plan_of
from planner.validation.comparison import verdicts_of
from tests.planner.measured_rows import LLAMA_8B, LLAMA_405B, RUN, simulated_row, the_row, written

FEW: Mapping[str, object] = {"layers": 5, "hidden": 4096}
"""Layers that do not make up two chunks on each of four stages."""
FSDP_405B: Mapping[str, object] = {
    **LLAMA_405B,
    "id": "t",
    "n_gpus": 512,
    "pp": 8,
    "dp": 8,
    "global_batch": 256,
}
LONG: Mapping[str, object] = {"n_gpus": 64, "tp": 1, "pp": 1, "seq_len": 65536, "global_batch": 64}


def row_of(folder: Path, **changes: object) -> Row:
    row = the_row(folder, {**RUN, **changes})
    assert not isinstance(row, Unmodelled), row
    return row


class TestLayout:
    def test_a_dense_network_leaves_no_distribution_of_experts_open(self, tmp_path: Path) -> None:
        assert "ep" not in row_of(tmp_path, tp=1, pp=1)["assumed"].split()
        sharded = {"model": "qwen3-30b-a3b", "tp": 1, "pp": 1, "framework": "PyTorch FSDP"}
        assert "ep" in row_of(tmp_path, **sharded)["assumed"].split()

    def test_replicas_that_count_context_ranks_are_divided_by_them(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, tp=2, pp=1, cp=2, dp=4)
        assert row["data_parallel"] == "2"
        assert row["remarks"] == "dp = '4': counts the 2 ranks of context parallelism; taken as 2"
        assert row_of(tmp_path, tp=2, pp=1, cp=2, dp=2)["remarks"] == ""

    @pytest.mark.parametrize(
        ("changes", "context", "replicas"),
        [
            ({}, "2", "4"),
            ({"seq_len": 4096}, "1", "8"),  # shares of 2,048 tokens: the replicas are misprinted
            ({"dp": 8}, "1", "8"),
            ({"dp": ""}, "1", "8"),
            ({"dp": 3}, "1", "8"),
            ({"zero_stage_or_fsdp": "FSDP"}, "1", "8"),  # replicas of groups
            ({"cp": 1}, "1", "8"),
        ],
    )
    def test_long_sequences_are_shared_by_what_the_other_degrees_leave(
        self, tmp_path: Path, changes: Mapping[str, object], context: str, replicas: str
    ) -> None:
        told = {"n_gpus": 64, "tp": 8, "pp": 1, "dp": 4, "seq_len": 8192, "global_batch": 64}
        row = row_of(tmp_path, **{**told, **changes})
        assert (row["context_parallel"], row["data_parallel"]) == (context, replicas)
        assert ("taken to share sequences" in row["remarks"]) == (context != "1")

    @pytest.mark.parametrize(
        ("changes", "context"),
        [
            ({}, "2"),
            ({"seq_len": 4096}, None),  # shares of 2,048 tokens
            ({"global_batch": 128}, None),  # 32 or 64 micro-batches for three stages
            ({"global_batch": 132}, "1"),
            ({"cp": 1}, None),
            ({"dp": 2}, "2"),
        ],
    )
    def test_sequences_are_shared_where_chunks_have_no_whole_rounds_otherwise(
        self, tmp_path: Path, changes: Mapping[str, object], context: str | None
    ) -> None:
        told = {"n_gpus": 96, "tp": 8, "pp": 3, "vpp": 7, "layers": 21, "seq_len": 8192, "global_batch": 126}
        row = row_of(tmp_path, **{**told, "micro_batch": 1, **changes})
        assert row["context_parallel"] == (context or "1")
        assert ("micro-batches that pipeline_parallel divides" in reason_against(row)) == (context is None)

    def test_what_shards_everything_passes_the_share_of_the_fullest_replica(self, tmp_path: Path) -> None:
        # OPT-175B, arXiv 2205.01068: 976 sequences on 992 accelerators with TP 8, 7.9 a replica.
        row = row_of(tmp_path, n_gpus=992, tp=8, pp=1, global_batch=976, zero_stage_or_fsdp="FSDP")
        assert (row["micro_batch_size"], row["global_batch_size"]) == ("8", "992")

    def test_a_batch_that_replicas_nearly_share_is_rounded_up_and_told(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, n_gpus=24, tp=1, pp=1, micro_batch=1, global_batch=1024)
        assert (row["global_batch_size"], reason_against(row)) == ("1032", "")
        assert row["remarks"].endswith("24 replicas with micro-batches of 1 do not divide it; taken as 1032")
        assert "global_batch" in row["assumed"].split()

    def test_a_rate_is_that_of_the_batch_that_is_taken_where_none_is_written(self, tmp_path: Path) -> None:
        measured = {"seq_len": 8192, "step_time_s": "", "tokens_per_s_per_gpu": 100}
        row = row_of(tmp_path, n_gpus=32, tp=1, pp=1, micro_batch=2, global_batch="", **measured)
        tokens = int(row["global_batch_size"]) * 8192
        assert float(row["step_time_s"]) == pytest.approx(tokens / (100 * 32))

    @pytest.mark.parametrize("framework", ["MaxText", "torchtitan", "nanotron"])
    def test_frameworks_of_jax_and_pytorch_leave_the_vocabulary_as_it_is(
        self, tmp_path: Path, framework: str
    ) -> None:
        row = row_of(tmp_path, framework=framework, vocab=32_000, n_gpus=64, global_batch=64, tp=8, pp=1)
        assert row["vocabulary_size"] == "32000"

    @pytest.mark.parametrize(("tensor", "vocabulary"), [(1, "32000"), (8, "32768")])
    def test_megatron_pads_the_vocabulary_to_128_for_each_tensor_parallel_rank(
        self, tmp_path: Path, tensor: int, vocabulary: str
    ) -> None:
        # `--make-vocab-size-divisible-by` of Megatron-LM, 128 as default, times the tensor-parallel degree
        told = {"framework": "Megatron-LM 0.12", "vocab": 32_000, "n_gpus": 64, "global_batch": 64}
        row = row_of(tmp_path, **told, tp=tensor, pp=1)
        assert row["vocabulary_size"] == vocabulary

    @pytest.mark.parametrize(("share", "is_told"), [(0.96, False), (1.04, False), (0.92, True), (1.08, True)])
    def test_a_rate_may_be_rounded_or_a_mean_and_else_is_told(
        self, tmp_path: Path, share: float, is_told: bool
    ) -> None:
        told = {"seq_len": 8192, "n_gpus": 64, "tp": 1, "pp": 1, "global_batch": 64, "step_time_s": 10}
        row = row_of(tmp_path, **told, tokens_per_s_per_gpu=f"{819.2 / share:.2f}")
        assert ("a step of" in row["remarks"]) == is_told
        assert float(row["step_time_s"]) == 10.0

    @pytest.mark.parametrize(("peak_gib", "is_told"), [(78, False), (84, False), (90, True)])
    def test_a_peak_a_little_above_the_memory_may_be_of_a_larger_part(
        self, tmp_path: Path, peak_gib: int, is_told: bool
    ) -> None:
        row = row_of(tmp_path, gpu="H100-80GB", peak_mem_gib_per_gpu=peak_gib)
        assert ("memory is not compared" in row["remarks"]) == is_told

    def test_as_many_sequences_as_groups_that_share_one_split_no_products(self, tmp_path: Path) -> None:
        told = {**LONG, "tp": "", "pp": 1, "cp": 2, "dp": "", "zero_stage_or_fsdp": "FSDP"}
        for batch, tensor in ((32, "1"), (16, "2")):
            row = row_of(tmp_path, **{**told, "global_batch": batch})
            assert (row["tensor_parallel"], row["context_parallel"]) == (tensor, "2")

    def test_a_rate_is_that_of_the_batch_as_it_is_written(self, tmp_path: Path) -> None:
        measured = {"seq_len": 8192, "step_time_s": "", "tokens_per_s_per_gpu": 100}
        row = row_of(tmp_path, n_gpus=24, tp=1, pp=1, micro_batch=1, global_batch=1024, **measured)
        assert row["global_batch_size"] == "1032"
        assert float(row["step_time_s"]) == pytest.approx(1024 * 8192 / (100 * 24))

    def test_a_batch_that_is_too_small_to_be_rounded_up_is_rounded_down(self, tmp_path: Path) -> None:
        # OPT-175B, arXiv 2205.01068: 2M tokens on 992 accelerators with 8-way Megatron-LM tensor parallelism.
        row = row_of(tmp_path, n_gpus=992, tp=8, pp=1, seq_len=2048, micro_batch=8, global_batch="2M tokens")
        assert (row["global_batch_size"], reason_against(row)) == ("992", "")

    def test_intern_sequence_parallelism_splits_no_products(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, tp=4, pp=1, sp="isp")
        assert (row["tensor_parallel"], row["context_parallel"], row["context_exchange"]) == (
            "1",
            "4",
            "all_to_all",
        )
        row = row_of(tmp_path, tp=4, cp=2, pp=1, sp="isp")
        assert (row["tensor_parallel"], row["remarks"].split(":")[0]) == ("4", "sp = 'isp'")

    def test_a_rack_that_is_partly_used_has_its_usual_nodes(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, gpu="GB200", n_gpus=256, gpus_per_node=72, tp=1, pp=1, global_batch=256)
        assert (row["num_accelerators"], row["link_domain_size"]) == ("4", "72")
        assert "gpus_per_node" not in row["assumed"].split()

    @pytest.mark.parametrize(
        ("cells", "domain", "is_odd"),
        [
            ({"gpus_per_node": 4}, "72", False),
            ({"gpus_per_node": 36}, "36", False),
            ({"gpus_per_node": 64}, "64", False),
            ({"gpus_per_node": 8}, "72", True),
            ({"gpus_per_node": 18}, "72", True),
            ({"gpus_per_node": 144}, "72", True),
            ({"gpus_per_node": 8, "gpu": "GB200-NVL8"}, "8", False),
            ({"gpus_per_node": 8, "interconnect": "NVL36"}, "36", True),
            ({"gpus_per_node": 64, "gpu": "GB200-NVL36"}, "36", False),
        ],
    )
    def test_nodes_cut_a_rack_where_they_or_their_name_are_one(
        self, tmp_path: Path, cells: Mapping[str, object], domain: str, is_odd: bool
    ) -> None:
        told = {"gpu": "GB200", "n_gpus": 288, "tp": 1, "pp": 1, "global_batch": 288, **cells}
        row = row_of(tmp_path, **told)
        assert (row["num_accelerators"], row["link_domain_size"]) == ("4", domain)
        assert ("gpus_per_node" in row["assumed"].split()) is is_odd
        assert ("neither a node of gb200 (4) nor a link domain" in row["remarks"]) is is_odd

    @pytest.mark.parametrize(
        ("gpu", "size", "domain"),
        [
            ("H100", 16, "8"),
            ("HGX B300 NVL16", 16, "8"),
            ("MI300X", 16, "8"),
            ("GH200", 8, "4"),
            ("A100-40GB", 16, "16"),  # a2-megagpu-16g
            ("V100", 16, "16"),  # DGX-2
            ("A100 PCIe", 10, "10"),
            ("H100", 4, "4"),
        ],
    )
    def test_no_node_has_more_accelerators_on_a_link_than_are_built(
        self, tmp_path: Path, gpu: str, size: int, domain: str
    ) -> None:
        row = row_of(tmp_path, gpu=gpu, n_gpus=80, gpus_per_node=size, tp=1, pp=1, global_batch=80)
        assert (row["num_accelerators"], row["link_domain_size"]) == (domain, domain)
        is_odd = domain != str(size)
        assert ("gpus_per_node" in row["assumed"].split()) is is_odd
        assert ("nor a link domain of it" in row["remarks"]) is is_odd

    @pytest.mark.parametrize(("num_gpus", "rest"), [(12, 4), (20, 4), (23, 7), (16, 0), (6, 0)])
    def test_nodes_that_do_not_make_up_a_run_are_filled_as_usual_ones(
        self, tmp_path: Path, num_gpus: int, rest: int
    ) -> None:
        told = {"gpu": "H100", "n_gpus": num_gpus, "tp": 1, "pp": 1, "global_batch": num_gpus}
        given, usual = (row_of(tmp_path, gpus_per_node=size, **told) for size in (8, ""))
        assert given["num_accelerators"] == "8"
        told_apart = {"assumed", "remarks"}
        assert {name: given[name] for name in given.keys() - told_apart} == {
            name: usual[name] for name in usual.keys() - told_apart
        }
        meaning = f"does not divide n_gpus ({num_gpus}): the last node is taken to run on {rest}"
        assert (meaning in given["remarks"]) is (rest > 0)

    @pytest.mark.parametrize(
        ("cells", "group_size", "remark"),
        [
            ({"vpp": 2}, "", ""),
            ({"vpp": 2, "microbatch_group_size_per_vp_stage": 8}, "8", ""),
            ({"vpp": 2, "microbatch_group_size_per_vp_stage": 4}, "", ""),
            ({"vpp": 2, "notes": "microbatch_group_size_per_vp_stage=6, DP overlap"}, "6", ""),
            ({"vpp": 2, "notes": "--microbatch-group-size-per-virtual-pipeline-stage 8"}, "8", ""),
            (
                {"notes": "--microbatch-group-size-per-virtual-pipeline-stage 8"},
                "",
                "8 left out; the pipeline is not",
            ),
            (
                {"pp_schedule": "zbv", "microbatch_group_size_per_vp_stage": 8},
                "",
                "8 left out; the pipeline is not",
            ),
        ],
    )
    def test_interleaved_groups_are_those_of_megatron_core_where_they_are_not_the_stages(
        self, tmp_path: Path, cells: dict[str, object], group_size: str, remark: str
    ) -> None:
        row = row_of(tmp_path, **{"tp": 1, "pp": 4, "recompute": "none", "zero_stage_or_fsdp": "1", **cells})
        assert row.get("interleaved_group_size", "") == group_size
        assert remark in row["remarks"]
        assert bool(row["remarks"]) == bool(remark)
        assert row["virtual_pipeline"] == str(cells.get("vpp", 2 if "pp_schedule" in cells else 1))

    @pytest.mark.parametrize(
        ("cells", "degrees", "remark"),
        [
            ({"pp": 8, "n_gpus": 16}, ("4", "4"), "its equal, dual_pipe_v on half of the stages"),
            ({"pp": 8, "n_gpus": 16, "pp_schedule": "DualPipeV"}, ("8", "2"), ""),
            ({"pp": 2, "n_gpus": 4}, ("2", "2"), "taken as dual_pipe_v, its half"),
            ({"pp": 4, "n_gpus": 8, "global_batch": 34}, ("4", "2"), "taken as dual_pipe_v, its half"),
        ],
    )
    def test_dual_pipe_is_dual_pipe_v_on_half_of_the_stages_with_twice_the_replicas(
        self, tmp_path: Path, cells: Mapping[str, object], degrees: tuple[str, str], remark: str
    ) -> None:
        told = {"tp": 1, "micro_batch": 1, "global_batch": 64, "pp_schedule": "DualPipe", "gpus_per_node": 4}
        row = row_of(tmp_path, **{**told, **cells})
        assert (row["pipeline_parallel"], row["data_parallel"]) == degrees
        assert (row["pipeline_schedule"], row["virtual_pipeline"]) == ("dual_pipe_v", "2")
        assert reason_against(row) == ""
        assert remark in row["remarks"]
        assert bool(remark) == bool(row["remarks"])

    @pytest.mark.parametrize(
        ("cells", "schedule", "chunks", "remark"),
        [
            ({"pp_schedule": "1F1B"}, "1f1b", 1, ""),
            ({"schedule": "interleaved 1F1B"}, "1f1b", 2, ""),
            ({"schedule": "interleaved", "vpp": 4}, "1f1b", 4, ""),
            ({"schedule": "interleaved-1f1b (vpp=4)", "vpp": ""}, "1f1b", 4, "4, as the schedule says"),
            ({"schedule": "interleaved 1F1B, 4 chunks"}, "1f1b", 4, "4, as the schedule says"),
            ({"schedule": "interleaved (v=4)", "vpp": 2}, "1f1b", 2, ""),
            ({"schedule": "depth-first"}, "1f1b", 2, ""),
            ({"schedule": "LoopedBFS"}, "1f1b", 2, "taken as interleaved 1F1B"),
            ({"schedule": "breadth-first", "vpp": 4}, "1f1b", 4, "memory is not judged"),
            ({"schedule": "AFAB"}, "gpipe", 1, ""),
            ({"notes": "AFAB engine"}, "gpipe", 1, ""),
            ({"pipeline_schedule": "GPipe"}, "gpipe", 1, ""),
            ({"pp_schedule": "ZB-H1"}, "zb_h1", 1, ""),
            ({"pp_schedule": "zbv"}, "zb_v", 2, ""),
            ({"pp_schedule": "ZBVZeroBubble"}, "zb_v", 2, ""),
            ({"pp_schedule": "gpipe", "vpp": 2}, "gpipe", 1, "vpp = '2': left out"),
            ({"pp_schedule": "zerobubble"}, "zb_v", 2, "taken as zb_v, the nearest"),
            (
                {"notes": "DualPipe, DeepEP"},
                "dual_pipe_v",
                2,
                "on half of the stages with twice the replicas",
            ),
            ({"pp_schedule": "DualPipeV"}, "dual_pipe_v", 2, ""),
            ({"pp_schedule": "dualpipe-v"}, "dual_pipe_v", 2, ""),
            (
                {"pp_schedule": "DualPipeV", "global_batch": 6, "micro_batch": 1, "dp": 1, "n_gpus": 4},
                "zb_v",
                2,
                "dual_pipe_v needs two micro-batches for each stage; taken as zb_v",
            ),
            ({"notes": "interleaved schedule"}, "1f1b", 1, "not of how many chunks"),
            ({"notes": "interleaved schedule", "vpp": 1}, "1f1b", 1, ""),
            ({"notes": "Interleaved 1F1B", "framework": "torchtitan", "micro_batch": 1}, "1f1b", 2, ""),
            ({"pp_schedule": "ZB-2p"}, "zb_v", 2, "twice the activations of 1F1B"),
            (
                {"pp_schedule": "zbv", **FEW},
                "zb_h1",
                1,
                "zb_v needs layers for 2 chunks on each stage; taken as zb_h1",
            ),
            (
                {"schedule": "DualPipe", "recompute": "full"},
                "1f1b",
                1,
                "dual_pipe_v needs what is computed again",
            ),
            ({"schedule": "GPipe", "recompute": "full"}, "gpipe", 1, ""),
            ({"schedule": "chimera"}, "1f1b", 1, "names no known schedule"),
            ({"schedule": "gpipe", "pp": 1}, "1f1b", 1, ""),
            ({"notes": "interleaved 1F1B with 4 chunks"}, "1f1b", 4, "4, as the notes say"),
            ({"notes": "4 virtual stages per GPU"}, "1f1b", 4, "4, as the notes say"),
        ],
    )
    def test_the_schedule_is_read_from_columns_and_notes(
        self, tmp_path: Path, cells: Mapping[str, object], schedule: str, chunks: int, remark: str
    ) -> None:
        row = row_of(tmp_path, **{"pp": 4, "tp": 1, "framework": "Megatron-LM 0.12", **cells})
        plan = plan_of(row)
        assert (plan.pipeline_schedule.value, plan.virtual_pipeline) == (schedule, chunks)
        assert reason_against(row) == ""
        assert remark in row["remarks"]
        assert bool(remark) == bool(row["remarks"])

    def test_a_schedule_may_stand_in_the_place_of_its_chunks(self, tmp_path: Path) -> None:
        cells = {"pp": 4, "tp": 1, "recompute": "selective", "framework": "Megatron-LM 0.12"}
        moved = row_of(tmp_path, **cells, vpp="zb-h1")
        assert moved["pipeline_schedule"] == "zb_h1"
        assert moved["remarks"].splitlines()[0] == "schedule = 'zb-h1': stands in vpp"
        assert plan_of(row_of(tmp_path, **cells, vpp="Interleaved 1F1B, 4 chunks")).virtual_pipeline == 4
        assert plan_of(row_of(tmp_path, **cells, vpp="4 (interleaved)")).virtual_pipeline == 4
        refused = the_row(tmp_path, {**RUN, **cells, "vpp": "interleaved (4)"})
        assert isinstance(refused, Unmodelled)
        assert refused.reason == "vpp = 'interleaved (4)': must be a number, or empty"

    @pytest.mark.parametrize("written", ["-1", "auto"])
    def test_replicas_that_software_counts_are_what_the_other_degrees_leave(
        self, tmp_path: Path, written: str
    ) -> None:
        row = row_of(tmp_path, tp=2, pp=1, dp=written)
        assert (row["data_parallel"], row["remarks"]) == ("4", "")

    @pytest.mark.parametrize("number", [2, 4])
    def test_chunks_that_a_schedule_counts_are_not_assumed(self, tmp_path: Path, number: int) -> None:
        cells = {"pp": 4, "tp": 1, "framework": "Megatron-LM 0.12"}
        row = row_of(tmp_path, **cells, schedule=f"interleaved 1F1B, {number} chunks")
        assert plan_of(row).virtual_pipeline == number
        assert "vpp" not in row["assumed"].split()
        assert "vpp" in row_of(tmp_path, **cells, schedule="interleaved 1F1B")["assumed"].split()

    @pytest.mark.parametrize(
        ("framework", "written", "micro_batch", "remark"),
        [
            ("torchtitan + torch.compile", "", "4", "into 8 micro-batches"),  # as many as stages
            ("torchtitan 2024", 32, "4", "into 8 micro-batches"),
            ("torchtitan 2024", 2, "2", ""),
            ("torchtitan 2025", 32, "1", "into 32 micro-batches"),
            ("torchtitan v0.2.0", "", "1", "into 32 micro-batches"),
            ("NeMo Automodel", 32, "1", "into 32 micro-batches"),
            ("PyTorch FSDP2", "", "1", ""),
            ("PyTorch FSDP2", 32, "4", "into 8 micro-batches"),
            ("PyTorch 2.5", 32, "4", "into 8 micro-batches"),
            ("Megatron-LM 2024", 32, "32", "fewer micro-batches in a step (1) than stages (8)"),
        ],
    )
    def test_pipelines_of_pytorch_cut_the_local_batch_as_torchtitan_does_by_release(
        self, tmp_path: Path, framework: str, written: object, micro_batch: str, remark: str
    ) -> None:
        # `parallel_dims.pp` micro-batches until 2024, `pipeline_parallel_microbatch_size` = 1 since April 2025
        cells = {"micro_batch": written, "framework": framework, "zero_stage_or_fsdp": "FSDP2"}
        row = the_row(tmp_path, {**FSDP_405B, **cells})
        assert not isinstance(row, Unmodelled), row
        assert row["micro_batch_size"] == micro_batch
        assert (remark in row["remarks"], bool(remark)) == (True, bool(row["remarks"]))

    @pytest.mark.parametrize(("framework", "micro_batch"), [("torchtitan", "1"), ("torchtitan 2024", "8")])
    def test_pipelines_with_spread_experts_are_not_older_than_these(
        self, tmp_path: Path, framework: str, micro_batch: str
    ) -> None:
        row = row_of(
            tmp_path,
            **{
                **RUN,
                "model": "DeepSeek-V3",
                "n_gpus": 256,
                "tp": 1,
                "pp": 4,
                "ep": 32,
                "global_batch": 2048,
            },
            micro_batch="",
            framework=framework,
            zero_stage_or_fsdp="FSDP2",
        )
        assert row["micro_batch_size"] == micro_batch

    @pytest.mark.parametrize(
        ("framework", "written", "notes", "micro_batch"),
        [
            ("torchtitan 2025", 16, "", "1"),  # 32 sequences of a replica in two runs of 16
            ("torchtitan 2024", 16, "", "2"),
            ("torchtitan 2025", 4, "", "4"),  # eight micro-batches, as many as stages
            ("torchtitan 2025", 2, "", "2"),
            ("torchtitan 2025", 16, "gradient accumulation 2", "1"),
            ("NeMo Automodel 25.11", 1, "LBS 16, GA 2", "1"),
            ("NeMo Automodel 25.11", 16, "GA 2", "1"),
            ("NeMo Automodel 25.11", 16, "", "16"),
        ],
    )
    def test_pipelines_of_pytorch_run_once_for_every_local_batch(
        self, tmp_path: Path, framework: str, written: int, notes: str, micro_batch: str
    ) -> None:
        cells = {
            "micro_batch": written,
            "framework": framework,
            "zero_stage_or_fsdp": "FSDP2",
            "notes": notes,
        }
        row = simulated_row(tmp_path, {**FSDP_405B, **cells})
        assert row["micro_batch_size"] == micro_batch
        runs_twice = (written == 16 and "torchtitan" in framework) or "2" in notes
        assert ("over 2 runs of the pipeline" in row["remarks"]) is runs_twice

    def test_a_micro_batch_of_which_a_step_has_as_many_as_stages_is_no_local_batch(
        self, tmp_path: Path
    ) -> None:
        # 128 sequences of a replica in eight micro-batches of 16, which fill eight stages.
        told = {"framework": "torchtitan 2025", "zero_stage_or_fsdp": "FSDP2", "micro_batch": 16}
        row = simulated_row(tmp_path, {**FSDP_405B, **told, "global_batch": 1024})
        assert (row["micro_batch_size"], "runs of the pipeline" in row["remarks"]) == ("16", False)

    @pytest.mark.parametrize(
        ("batch", "tensor"),
        [
            (192, "8"),  # 3 or more, but replicas of 4 would be 128, which do not share 192 sequences evenly
            (256, "2"),
            (512, "1"),
        ],
    )
    def test_products_are_split_so_far_that_every_replica_has_as_many_sequences(
        self, tmp_path: Path, batch: int, tensor: str
    ) -> None:
        row = row_of(tmp_path, n_gpus=512, tp="", zero_stage_or_fsdp="FSDP", global_batch=batch)
        assert row["tensor_parallel"] == tensor

    @pytest.mark.parametrize(
        ("framework", "batch", "size"),
        [
            # ScheduleInterleaved1F1B: max(1, m // p) rounds of m over that many, refused where they leave any over
            ("torchtitan 2025", 80, "10"),
            ("torchtitan 2025", 96, "12"),
            ("torchtitan 2025", 160, "10"),
            ("torchtitan 2025", 64, ""),
            ("torchtitan 2025", 136, ""),
            ("torchtitan 2025", 48, ""),
            ("NeMo Automodel 25.11", 80, "10"),
            ("Megatron-LM 2024", 80, ""),
        ],
    )
    def test_interleaved_groups_of_pytorch_share_what_stages_do_not_divide(
        self, tmp_path: Path, framework: str, batch: int, size: str
    ) -> None:
        cells = {"micro_batch": 1, "global_batch": batch, "vpp": 2, "framework": framework}
        row = row_of(tmp_path, **{**FSDP_405B, **cells})
        assert row.get("interleaved_group_size", "") == size
        assert (reason_against(row) == "") is (bool(size) or batch == 64)

    @pytest.mark.parametrize(
        ("notes", "micro_batch", "remark"),
        [
            ("", "16", ""),
            ("gradient accumulation 4", "4", ""),
            ("GA=8, no dropout", "2", ""),
            ("gradient_accumulation_steps: 16", "1", ""),
            ("grad_accum_steps = 2", "8", ""),
            ("8 gradient accumulation steps", "2", ""),
            ("no gradient accumulation", "16", ""),
            ("gradient accumulation fusion", "16", ""),
            ("GA=3", "4", "16 sequences of a rank; taken as 4 of 4"),
        ],
    )
    def test_notes_say_over_how_many_micro_batches_gradients_are_accumulated(
        self, tmp_path: Path, notes: str, micro_batch: str, remark: str
    ) -> None:
        row = the_row(tmp_path, {**LLAMA_8B, "framework": "PyTorch FSDP2", "notes": notes})
        assert not isinstance(row, Unmodelled), row
        assert row["micro_batch_size"] == micro_batch
        assert (remark in row["remarks"], bool(remark)) == (True, bool(row["remarks"]))

    @pytest.mark.parametrize(
        ("cells", "batch"),
        [
            (
                {"pp": 4},
                4 * 4 * 4,
            ),  # four replicas, four micro-batches for each of four stages (arXiv 1811.06965, 2.3)
            ({"pp": 4, "micro_batch": 2}, 4 * 2 * 4 * 4),
            ({"pp": 4, "notes": "gradient accumulation 8"}, 4 * 8),
            ({"pp": 1}, 16),
            ({"pp": 4, "framework": "torchtitan 2025", "micro_batch": 8}, 4 * 8),
        ],
    )
    def test_a_batch_that_is_not_told_fills_a_pipeline(
        self, tmp_path: Path, cells: Mapping[str, object], batch: int
    ) -> None:
        told = {"n_gpus": 16, "tp": 1, "global_batch": "", "micro_batch": 1, "framework": "Megatron-LM 2024"}
        row = row_of(tmp_path, **{**told, **cells})
        assert int(row["global_batch_size"]) == batch
        assert "global_batch" in row["assumed"].split()

    def test_chunks_without_a_pipeline_are_left_out(self, tmp_path: Path) -> None:
        row = row_of(tmp_path, pp=1, tp=1, vpp=4)
        assert row["virtual_pipeline"] == "1"
        assert "vpp = '4': left out" in row["remarks"]

    def test_dies_are_counted_where_a_node_has_twice_its_cards(self, tmp_path: Path) -> None:
        cells = {"gpu": "MI250X", "precision": "fp16", "tp": 1, "pp": 1}
        found = row_of(tmp_path, gpus_per_node=8, **cells)
        assert (found["accelerator"], found["num_accelerators"]) == ("mi250x-gcd", "8")
        assert found["remarks"] == "gpu = 'MI250X': counted in dies (GCDs), two a card: taken as mi250x-gcd"
        assert row_of(tmp_path, notes="8 GCDs", **cells)["accelerator"] == "mi250x-gcd"
        assert row_of(tmp_path, gpus_per_node=4, **cells)["accelerator"] == "mi250x"

    @pytest.mark.parametrize(("gpu", "die"), [("MI250X", "mi250x-gcd"), ("Trainium1", "trainium1-core")])
    def test_dies_are_the_ranks_of_a_layout(self, tmp_path: Path, gpu: str, die: str) -> None:
        cells = {"gpu": gpu, "tp": 8, "pp": 1, "dp": 8, "micro_batch": 1}
        counted = row_of(tmp_path, n_gpus=64, **cells)
        assert (counted["accelerator"], counted["num_gpus"]) == (die, "64")
        cards = row_of(tmp_path, n_gpus=32, **cells)
        assert (cards["accelerator"], cards["num_gpus"]) == (die, "64")
        assert "n_gpus = '32': counts cards, the layout their" in cards["remarks"]
        whole_rank = row_of(
            tmp_path, n_gpus=32, **{**cells, "dp": 4, "gpus_per_node": 4 if gpu == "MI250X" else 16}
        )
        assert whole_rank["accelerator"] == gpu.lower()

    def test_a_rate_of_cards_is_that_of_both_their_dies(self, tmp_path: Path) -> None:
        cells = {"gpu": "Trainium1", "tp": 8, "pp": 1, "dp": 8, "micro_batch": 1, "step_time_s": ""}
        cards = row_of(tmp_path, n_gpus=32, gpus_per_node=16, tokens_per_s_per_gpu=800, **cells)
        assert cards["num_accelerators"] == "32"
        assert float(cards["step_time_s"]) == pytest.approx(64 * 4096 / (800 * 32))


class TestWholeModels:
    @pytest.mark.parametrize(
        ("cells", "stage"),
        [
            ({"framework": "axolotl (DeepSpeed ZeRO2)"}, "2"),
            ({"framework": "LLaMA-Factory", "zero_stage_or_fsdp": "DeepSpeed ZeRO-2"}, "2"),
            ({"framework": "LLaMA-Factory", "zero_stage_or_fsdp": "ZeRO-1"}, "1"),
            ({"framework": "TRL", "zero_stage_or_fsdp": "DDP", "metric_kind": "LoRA"}, "0"),
            ({"framework": "DeepSpeed ZeRO-2"}, "2"),
        ],
    )
    def test_trainers_of_whole_models_split_nothing(
        self, tmp_path: Path, cells: Mapping[str, object], stage: str
    ) -> None:
        (row,) = read_measured(written(tmp_path, {**RUN, "n_gpus": 16, **cells}))
        assert not isinstance(row, Unmodelled), row
        degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel", "zero_stage")
        assert tuple(row[name] for name in degrees) == ("1", "1", "16", stage)

    def test_their_experts_are_not_distributed(self, tmp_path: Path) -> None:
        cells = {**RUN, "model": "mixtral-8x7b", "framework": "LLaMA-Factory", "zero_stage_or_fsdp": "ZeRO-2"}
        row = simulated_row(tmp_path, {**cells, "metric_kind": "LoRA"})
        assert (row["expert_parallel"], row["software"]) == ("1", "DeepSpeed")


class TestNotedSharding:
    @pytest.mark.parametrize(
        ("notes", "stage", "ranks"),
        [
            ("HSDP 2x32, compile", "3", "32"),
            ("DeepSpeed ZeRO-2", "2", ""),
            ("FSDP2 + AC selective", "3", ""),
            ("no ZeRO-3; 13% faster than FSDP", "1", ""),
            ("ZeRO-Offload", "1", ""),
        ],
    )
    def test_it_counts_where_no_column_says_any(
        self, tmp_path: Path, notes: str, stage: str, ranks: str
    ) -> None:
        row = simulated_row(tmp_path, {**RUN, "n_gpus": 64, "tp": 1, "pp": 1, "notes": notes})
        assert (row["zero_stage"], row["shard_ranks"]) == (stage, ranks)
        told = simulated_row(tmp_path, {**RUN, "zero_stage_or_fsdp": "ZeRO-1", "notes": notes})
        assert told["zero_stage"] == "1"


class TestGroups:
    @pytest.mark.parametrize(
        ("cells", "ranks"),
        [
            ({"cp": 8, "framework": "torchtitan", "zero_stage_or_fsdp": "HSDP (shard 4)"}, "32"),
            ({"cp": 2, "framework": "torchtitan", "zero_stage_or_fsdp": "HSDP (shard 8)"}, "16"),
            ({"cp": 2, "framework": "NeMo Automodel", "zero_stage_or_fsdp": "FSDP 8"}, "16"),
            ({"cp": 16, "framework": "InternEvo", "zero_stage_or_fsdp": "zero1 (hybrid zero 8)"}, "16"),
            ({"cp": 64, "zero_stage_or_fsdp": "HSDP"}, ""),
            ({"cp": 2, "zero_stage_or_fsdp": "HSDP"}, "8"),
        ],
    )
    def test_shards_lie_in_groups_of_whole_sequences(
        self, tmp_path: Path, cells: Mapping[str, object], ranks: str
    ) -> None:
        row = simulated_row(tmp_path, {**RUN, **LONG, **cells})
        assert row["shard_ranks"] == ranks
        assert ("ranks to a sequence" in row["remarks"]) is (ranks != "8")

    def test_ranks_that_exchange_heads_copy_those_that_are_too_few(self, tmp_path: Path) -> None:
        row = simulated_row(tmp_path, {**RUN, **LONG, "cp": 32, "sp": "Ulysses"})
        assert row["num_kv_heads"] == "32"
        assert "32 ranks exchange 8 key-value heads" in row["remarks"]
        assert simulated_row(tmp_path, {**RUN, **LONG, "cp": 8, "sp": "Ulysses"})["num_kv_heads"] == "8"
        assert simulated_row(tmp_path, {**RUN, **LONG, "cp": 32, "sp": "ring"})["num_kv_heads"] == "8"

    def test_replicas_beside_shared_sequences_are_what_is_left(self, tmp_path: Path) -> None:
        row = simulated_row(tmp_path, {**RUN, **LONG, "tp": 4, "cp": 4, "dp": 2})
        assert (row["data_parallel"], "taken as 4" in row["remarks"]) == ("4", True)

    @pytest.mark.parametrize(
        ("written", "stage"),
        [
            ("ZeRO-100B (Pos+g)", "2"),
            ("ZeRO-100B", "2"),
            ("dist", "1"),
            ("Gemini", "3"),
            ("none (torch DDP)", "0"),
            ("AMSP", "1"),
        ],
    )
    def test_names_of_schemes_are_no_stages(self, tmp_path: Path, written: str, stage: str) -> None:
        assert simulated_row(tmp_path, {**RUN, "zero_stage_or_fsdp": written})["zero_stage"] == stage

    def test_weights_that_may_be_shared_out_leave_memory_open(self, tmp_path: Path) -> None:
        cells = {**RUN, **LONG, "tp": 8, "sp": "ISP", "framework": "InternEvo", "zero_stage_or_fsdp": "zero1"}
        row = simulated_row(tmp_path, cells)
        assert (row["has_memory_verdict"], "ISP may share out" in row["remarks"]) == ("false", True)


@pytest.mark.parametrize("gpu", ["A800", "H800"])
def test_names_of_accelerators_are_no_rates(tmp_path: Path, gpu: str) -> None:
    cells = {"gpu": gpu, "n_gpus": 16, "tp": 2, "pp": 1, "interconnect": f"{gpu} node + 8x200G RoCE"}
    assert simulated_row(tmp_path, {**RUN, **cells})["fabric"] == "ethernet-roce-400g"


class TestWhatIsNotSimulated:
    @pytest.mark.parametrize(
        ("cells", "remark"),
        [
            ({"notes": "sliding-window attention"}, "a window without its tokens"),
            ({"notes": "sliding window 1024"}, ""),
            ({"notes": "sliding-window attention", "window": 1024}, ""),
        ],
    )
    def test_windows_are_told(self, tmp_path: Path, cells: Mapping[str, object], remark: str) -> None:
        row = row_of(tmp_path, tp=2, pp=1, **cells)
        assert (remark in row["remarks"], bool(remark)) == (True, bool(row["remarks"]))

    @pytest.mark.parametrize(
        ("cells", "block"),
        [
            ({"notes": "parallel transformer block"}, "one_norm"),
            ({"framework": "Megatron-LM, gpt-j-residual"}, "one_norm"),
            ({"model": "GPT-175B (PTB)"}, "one_norm"),
            ({"notes": "tensor parallel attention, no parallel block"}, ""),
            ({"model": "GPT-175B", "framework": "MegaScale"}, "one_norm"),  # arXiv 2402.15627, section 6.1
            ({"model": "GPT-175B", "framework": "MegaScale", "notes": "without PTB"}, ""),
            ({"model": "Llama", "framework": "MegaScale"}, ""),
            (
                {"model": "GPT-NeoX-20B", "notes": "parallel residual", "hidden": 6144, "heads": 64},
                "two_norms",
            ),
        ],
    )
    def test_blocks_side_by_side_are_read(
        self, tmp_path: Path, cells: Mapping[str, object], block: str
    ) -> None:
        run = {"layers": 32, "hidden": 4096, "tp": 2, "pp": 1, **cells}
        assert row_of(tmp_path, **run)["parallel_block"] == block

    @pytest.mark.parametrize(
        ("cells", "norm"),
        [
            ({"model": "Qwen3-30B-A3B", "ep": 4}, "per_head"),
            ({"model": "Qwen3-0.6B", "layers": 28, "hidden": 1024}, "per_head"),  # not in the catalogue
            ({"model": "OLMo-2-7B"}, "all_heads"),
            ({"model": "GLM-4.5-Air", "layers": 46, "hidden": 4096}, ""),
            ({"model": "Qwen3-8B", "notes": "no qk-norm"}, ""),
            ({"model": "Llama-3.1-8B", "notes": "QK norm"}, "per_head"),
            ({"model": "DeepSeek-V3", "notes": "qk layernorm", "ep": 4}, ""),  # of latents
            ({"model": "Qwen2.5-7B"}, ""),
        ],
    )
    def test_norms_of_queries_and_keys_follow_from_the_model(
        self, tmp_path: Path, cells: Mapping[str, object], norm: str
    ) -> None:
        assert row_of(tmp_path, tp=2, pp=1, **cells)["qk_norm"] == norm

    @pytest.mark.parametrize(
        ("cells", "is_judged"),
        [
            ({"recompute": "full", "notes": "ZeRO-R"}, False),
            ({"recompute": "full, partition_activations"}, False),
            ({"recompute": "full", "notes": "ZeRO-R", "sp": "yes"}, True),  # split already
            ({"recompute": "full", "zero_stage_or_fsdp": "ZeRO-100B"}, False),
            ({"recompute": "full", "zero_stage_or_fsdp": "zero1, no ZeRO-R"}, True),
            ({"recompute": "none", "notes": "ZeRO-R"}, True),
            ({"recompute": "full, CPU offload"}, False),  # as of MaxText's policies for TPUs of 32 GB
            ({"recompute": "full", "notes": "activation checkpoint offload: off"}, True),
            ({"recompute": "full", "notes": "activation offload"}, False),
            ({"recompute": "full", "notes": "activation checkpoint offload to CPU"}, False),
            ({"recompute": "full", "notes": "offloads activations of 4 layers"}, True),
            ({"pp": 4, "pp_schedule": "ZB-H2"}, False),
            ({"pp": 4, "pp_schedule": "ZB-H1"}, True),
            ({"pp": 4, "pp_schedule": "LoopedBFS"}, False),
            ({"pp": 4, "pp_schedule": "Interleaved1F1B"}, True),
        ],
    )
    def test_what_keeps_something_else_has_no_memory_verdict(
        self, tmp_path: Path, cells: Mapping[str, object], is_judged: bool
    ) -> None:
        run = {"tp": 2, "pp": 1, "sp": "no", "framework": "Megatron-LM 0.12", "peak_mem_gib_per_gpu": 40}
        row = row_of(tmp_path, **{**run, **cells})
        (comparison,) = compare([row])
        assert ("memory is not judged" in row["remarks"]) is not is_judged
        assert math.isfinite(comparison.memory_error_fraction) is is_judged
        assert verdicts_of([comparison]).num_ran_and_fit == is_judged


@pytest.mark.parametrize(
    ("notes", "factor"),
    [
        ("capacity factor 1.25", "1.25"),
        ("cf=1.25", "1.25"),
        ("moe_expert_capacity_factor=2", "2.0"),
        ("drop and pad, capacity 1.25", "1.25"),
        ("memory capacity 80 GiB", ""),
        ("tokens are dropped", "1.0"),
        ("variant: tokendrop", "1.0"),
        ("capacity factor 0.5", "1.0"),
        ("dropless, no capacity factor", ""),
        ("tokens are not dropped", ""),
    ],
)
def test_experts_take_what_the_notes_say(tmp_path: Path, notes: str, factor: str) -> None:
    row = row_of(tmp_path, model="qwen3-30b-a3b", ep=8, notes=notes)
    assert row["expert_capacity_factor"] == factor
    assert ("below 1" in row["remarks"]) is ("0.5" in notes)
