"""Is a measured run read as it was meant? Names of hardware, habits of frameworks, and what a row leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.hardware.accelerator_names import accelerator_id
from planner.measured.hardware.network_names import network_of
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare
from planner.measured.software.framework_habits import habits_of
from planner.validation.comparison import (
    Modelled,
    entries_of,
)
from simulator.errors import CatalogError
from simulator.machine.training import training_constants
from simulator.units import gigabits_per_s
from tests.planner.measured_rows import KORTHIKANTI_22B, LLAMA_8B, shipped, written


def only_row(folder: Path, **changes: object) -> Row:
    (row,) = read_measured(written(folder, {**LLAMA_8B, **changes}))
    assert not isinstance(row, Unmodelled), row
    return row


def step_s(row: Row) -> float:
    assert reason_against(row) == ""
    return compare([row])[0].expected_s


class TestHardware:
    def test_an_unknown_accelerator_is_named_with_its_column(self) -> None:
        with pytest.raises(CatalogError, match="gpu = RTX 4090: is not among the catalogue's accelerators"):
            accelerator_id("RTX 4090")

    @pytest.mark.parametrize(
        ("description", "fabric", "node_bytes_per_s"),
        [
            # 8 x 200 Gbit/s = 200 GB/s; 4 x 100 Gbit/s = 50 GB/s; 1,600 Gbit/s = 200 GB/s.
            ("NVLink3 node + 8x200G HDR InfiniBand", "infiniband-hdr", 200e9),
            ("NVLink3 8-GPU node + 4x100G Omni-Path", "omni-path", 50e9),
            ("p5 with EFA, 3200 Gbps per node", "efa-400g", 400e9),
            ("NVLink4 node", "infiniband-ndr", None),
            # Of each of eight accelerators 100 Gbit/s: 100 GB/s; 50 GB/s: 400 GB/s. One card of 100 Gbit/s: 12.5 GB/s.
            ("100 Gb/s per GPU", "infiniband-ndr", 100e9),
            ("50 GB/s per GPU RoCE", "ethernet-roce-400g", 400e9),
            ("1 NIC 100 Gbps", "infiniband-ndr", 12.5e9),
            ("8 x HDR100", "infiniband-hdr", 100e9),
            ("200 GB/s per node", "infiniband-ndr", 200e9),
            ("HDR InfiniBand 800 Gbps/node", "infiniband-hdr", 100e9),  # HDR is of a port
            ("3.2 Tb/s RoCE per node", "ethernet-roce-400g", 400e9),
            ("NVLink4 900 GB/s per GPU, 8x400G InfiniBand", "infiniband-ndr", 400e9),
            ("NVLink3 node 8x200gbps HDR", "infiniband-hdr", 200e9),
            ("NVLink4 18x25GB/s", "infiniband-ndr", None),
            # Neither a link's rate alone nor memory says how fast a node sends.
            ("100 Gb/s", "infiniband-ndr", None),
            ("8 x 80GB HBM", "infiniband-ndr", None),
            ("carrier pigeon", "infiniband-ndr", None),
            # One card of plain Ethernet; Tbit/s are those of a node: 1.6 Tbit/s = 200 GB/s.
            ("100 Gbit Ethernet", "ethernet-roce-400g", 12.5e9),
            ("2x100GbE", "ethernet-roce-400g", 25e9),
            # So little only Ethernet or a virtual machine has; of an accelerator it is said that it is of one.
            ("25 Gbps", "ethernet-roce-400g", 3.125e9),
            ("Azure VM, 24 Gb/s", "ethernet-roce-400g", 3e9),
            ("FDR InfiniBand 56 Gb/s", "infiniband-ndr", None),
            ("25 GB/s", "infiniband-ndr", None),
            # Generations of cards and lanes of a bus count nothing.
            ("NVLink4 node + 400G CX7 per GPU", "infiniband-ndr", 400e9),
            ("NVLink4 node + 400G ConnectX7", "infiniband-ndr", None),
            ("NVLink3 node + 200G CX6 HDR", "infiniband-hdr", None),
            ("NVLink2 + 100G CX5 EDR", "infiniband-edr", None),
            ("400G NIC, PCIe x16", "infiniband-ndr", None),
            ("8 ConnectX-7 400 Gb/s", "infiniband-ndr", 400e9),
            ("4 * 200G NDR", "infiniband-ndr", 100e9),
            ("8 x ConnectX-7 (400G)", "infiniband-ndr", 400e9),
            ("8x CX7 (NDR)", "infiniband-ndr", 400e9),
            # Oracle's BM.GPU.H100.8: 8x2x200 Gb/s, eight cards of two ports.
            ("OCI 8x 2x200", "infiniband-ndr", 400e9),
            ("8x2x200Gb/sec RDMA", "infiniband-ndr", 400e9),
            ("cluster network 8x(2x200G) RoCE", "ethernet-roce-400g", 400e9),
            ("2x200G HDR", "infiniband-hdr", 50e9),
            ("8x400G + 2x200 storage", "infiniband-ndr", 400e9),
            ("8x200G IB", "infiniband-hdr", 200e9),
            ("Spectrum-X 8x400G", "ethernet-roce-400g", 400e9),
            ("Quantum-X800", "infiniband-xdr", None),
            ("Quantum-2 InfiniBand 400 Gb/s per GPU", "infiniband-ndr", 400e9),
            ("NVLink 4 IB 400G per GPU", "infiniband-ndr", None),
            ("Slingshot 11 200 Gb/s NICs", "slingshot-11", None),
            ("xGMI + 8x Thor2 400G", "infiniband-ndr", 400e9),
            # The usual node has a card of 400 Gbit/s for each H100, so such a card says nothing of their number.
            ("Spectrum-X 400GbE", "ethernet-roce-400g", None),
            ("200GbE", "ethernet-roce-400g", 25e9),
        ],
    )
    def test_descriptions_of_networks_are_understood(
        self, description: str, fabric: str, node_bytes_per_s: float | None
    ) -> None:
        found = network_of(description, "h100-sxm5-80gb")
        assert (found.fabric, found.node_bytes_per_s) == (fabric, node_bytes_per_s)

    @pytest.mark.parametrize(
        ("description", "num_cards"),
        [
            ("1600 Gb/s RoCE per node", None),
            ("RoCE v2 200Gbps x 4", 4),
            ("4 HDR HCAs per node", 4),
            ("8 HDR200 per node", 8),
            ("DGX A100, 8 HDR", 8),
            ("PCIe gen 4 HDR", None),
            ("4x Slingshot-11 200G", 4),
            ("4 HPE Cassini 200 Gbps NICs", 4),
            ("8x Broadcom Thor-2 400GbE", 8),
            ("200 Gb/s per GPU pair", None),
            ("200G CX6 x8", 8),
            ("400G BlueField-3 x2", 2),
            ("200Gbpsx8", 8),
            ("200G HDRx4", 4),
            ("200G CX6 per GPU", None),
            ("RoCE 8x400", 8),
            ("InfiniBand HDR 200G (1 NIC per node)", 1),
            ("200 Gb/s RoCE (4 HCAs)", 4),
        ],
    )
    def test_cards_of_a_node_are_counted_where_they_are_told(
        self, description: str, num_cards: int | None
    ) -> None:
        assert network_of(description, "a100-sxm4-80gb").num_cards == num_cards

    @pytest.mark.parametrize(
        ("description", "gigabits"),
        [
            ("8 HDR200 per node", 1600),
            ("200 Gb/s per GPU", 1600),
            ("200 Gb/s per GPU pair", 800),
            ("HDR200 per 2 GPUs", 800),
            ("1x200G for each pair of GPUs", 800),
        ],
    )
    def test_what_two_accelerators_share_is_half_as_much(self, description: str, gigabits: float) -> None:
        assert network_of(description, "a100-sxm4-80gb").node_bytes_per_s == gigabits_per_s(gigabits)

    @pytest.mark.parametrize(
        ("description", "accelerator", "fabric", "gigabits", "remark"),
        [
            ("p4d.24xlarge EFA 400 Gbps", "a100-sxm4-40gb", "efa-400g", 400, "taken as p4d.24xlarge"),
            ("EFAv2 3200 Gbps", "h100-sxm5-80gb", "efa-400g", 3200, ""),
            ("EFA", "h100-sxm5-80gb", "efa-400g", 3200, "taken as p5.48xlarge"),
            ("a3-megagpu-8g", "h100-sxm5-80gb", "ethernet-roce-400g", 1600, "taken as a3-megagpu-8g"),
            ("Azure ND H100 v5", "h100-sxm5-80gb", "infiniband-ndr", 3200, "taken as ND H100 v5"),
            (
                "NVLink node, 100 Gbps InfiniBand",
                "a100-sxm4-40gb",
                "infiniband-edr",
                None,
                "100 Gbps does not",
            ),
            ("NVLink node, 200G InfiniBand", "a100-sxm4-40gb", "infiniband-hdr", None, ""),
        ],
    )
    def test_machines_of_clouds_have_the_networks_of_their_providers(
        self, description: str, accelerator: str, fabric: str, gigabits: float | None, remark: str
    ) -> None:
        # p4d: 4 x 100 Gb/s EFA, p5: 3,200 Gb/s; a3-megagpu-8g: eight cards of 200 Gb/s; ND H100 v5: 400 Gb/s for each GPU.
        found = network_of(description, accelerator)
        rate = gigabits and gigabits_per_s(gigabits)
        assert (found.fabric, found.node_bytes_per_s) == (fabric, rate)
        assert (remark in found.remark, bool(remark)) == (True, bool(found.remark))

    @pytest.mark.parametrize(("accelerator", "is_understood"), [("h100-sxm5-80gb", True), ("mi300x", False)])
    def test_infiniband_alone_is_understood_where_it_is_usual(
        self, accelerator: str, is_understood: bool
    ) -> None:
        for description in ("InfiniBand", "IB"):
            found = network_of(description, accelerator)
            assert (found.is_understood, found.node_bytes_per_s, found.remark) == (is_understood, None, "")

    def test_links_that_are_fewer_further_up_are_told(self) -> None:
        found = network_of("8x400G RoCE, 1:7 oversubscription", "h100-sxm5-80gb")
        assert (found.node_bytes_per_s, found.remark) == (
            400e9,
            "links that are fewer further up are left out",
        )
        assert network_of("8x400G, no oversubscription", "h100-sxm5-80gb").remark == ""

    def test_generations_of_cards_are_no_numbers_of_them(self) -> None:
        found = network_of("NVL72 + 800 Gb/s CX8 per GPU", "gb300")
        assert (found.node_bytes_per_s, found.num_cards) == (400e9, None)

    def test_a_rack_is_one_link_domain(self) -> None:
        assert network_of("NVL72 NVLink5 domain; 4 GPUs per compute tray", "gb200").link_domain_size == 72

    @pytest.mark.parametrize(
        ("cells", "assumed"),
        [
            ({}, {"interconnect", "gpus_per_node"}),
            ({"interconnect": "carrier pigeon", "gpus_per_node": 8}, {"interconnect"}),
            ({"interconnect": "NVLink4 node + InfiniBand", "gpus_per_node": 8}, set()),
            (
                {"interconnect": "NVLink4 node + InfiniBand", "gpus_per_node": 8, "n_gpus": 16},
                {"interconnect"},
            ),
            ({"interconnect": "100 Gb/s per GPU", "gpus_per_node": 8, "n_gpus": 16}, set()),
        ],
    )
    def test_a_network_whose_rate_is_not_told_is_an_assumption_where_the_run_uses_it(
        self, tmp_path: Path, cells: Mapping[str, object], assumed: set[str]
    ) -> None:
        found = only_row(tmp_path, **cells)["assumed"].split()
        assert {"interconnect", "gpus_per_node"} & set(found) == assumed


class TestHabits:
    def test_megatron_had_no_fused_attention_before_2023(self) -> None:
        assert habits_of("Megatron-LM", "ampere", "bf16").attention == "unfused"
        assert habits_of("Megatron-LM", "hopper", "bf16").attention == "flash"

    def test_half_precision_gradients_have_two_bytes(self) -> None:
        assert habits_of("Megatron-DeepSpeed", "ampere", "fp16").gradient_bytes == 2

    def test_fully_sharded_frameworks_shard_weights(self) -> None:
        assert [habits_of(name, "hopper", "bf16").zero_stage for name in ("torchtitan", "MaxText")] == [3, 3]


class TestRows:
    def test_a_row_of_the_published_list_is_the_shipped_row(self, tmp_path: Path) -> None:
        (row,) = read_measured(written(tmp_path, KORTHIKANTI_22B))
        assert not isinstance(row, Unmodelled)
        assert step_s(row) == pytest.approx(step_s(shipped("kort-0001")), rel=1e-12)

    # Two nodes of eight; a group of all ranks is no hybrid.
    @pytest.mark.parametrize(
        ("sharding", "ranks"),
        [("HSDP", "8"), ("FSDP HYBRID_SHARD", "8"), ("megatron-fsdp shard 4", "4"), ("FSDP shard 16", "")],
    )
    def test_hybrid_sharding_has_groups_as_written_or_of_a_node(
        self, tmp_path: Path, sharding: str, ranks: str
    ) -> None:
        row = only_row(tmp_path, n_gpus=16, zero_stage_or_fsdp=sharding)
        assert (row["zero_stage"], row["shard_ranks"]) == ("3", ranks)
        assert step_s(row) > 0

    def test_layers_whose_activations_are_offloaded_are_a_share_of_all(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, notes="recipe CPU-offloads activations of 8 layers (recipe at repo HEAD)")
        assert float(row["activation_offload_fraction"]) == 8 / 32
        assert only_row(tmp_path, notes="activation CPU offload False")["activation_offload_fraction"] == ""

    def test_some_layers_are_computed_again_where_the_notes_say_how_many(self, tmp_path: Path) -> None:
        notes = "recipe: full/block recompute of 5 layers (recipe at repo HEAD)"
        row = only_row(tmp_path, recompute="partial", notes=notes)
        assert (row["recompute"], row["recompute_num_layers"]) == ("full", "5")
        assert only_row(tmp_path, recompute="partial")["recompute"] == "none"
        assert step_s(only_row(tmp_path)) < step_s(row) < step_s(only_row(tmp_path, recompute="full"))

    @pytest.mark.parametrize(
        ("precision", "number_format", "recipe"),
        [
            ("mxfp8", "fp8", "mxfp8"),
            ("fp8-cs", "fp8", "tensorwise"),
            ("fp8", "fp8", ""),
            ("nvfp4", "fp4", ""),
            ("float8", "fp8", ""),
            ("float8 rowwise", "fp8", "tensorwise"),
            ("float8 tensorwise", "fp8", "tensorwise"),
            ("bf16+float8", "fp8", ""),
            ("MXFP8 (fp32 accum)", "fp8", "mxfp8"),
            ("fp8_mx", "fp8", "mxfp8"),
            ("fp8_sc", "fp8", "blockwise"),
            ("fp8_ds", "fp8", "delayed"),
        ],
    )
    def test_number_formats_come_with_their_recipe(
        self, tmp_path: Path, precision: str, number_format: str, recipe: str
    ) -> None:
        row = only_row(tmp_path, precision=precision, gpu="GB200")
        assert (row["precision"], row["fp8_recipe"]) == (number_format, recipe)
        assert step_s(row) < step_s(only_row(tmp_path, precision="bf16", gpu="GB200"))

    @pytest.mark.parametrize("precision", ["bf16 (fp32 reduce)", "bf16/fp32", "bf16 + fp32 master"])
    def test_32_bits_beside_16_are_those_of_sums_and_master_weights(
        self, tmp_path: Path, precision: str
    ) -> None:
        assert only_row(tmp_path, precision=precision)["precision"] == "bf16"

    def test_fine_tuning_of_adapters_has_nemo_s_where_a_row_says_no_more(self, tmp_path: Path) -> None:
        plain, usual = only_row(tmp_path), only_row(tmp_path, metric_kind="LoRA fine-tuning step")
        written = only_row(tmp_path, metric_kind="LoRA fine-tuning step", notes="LoRA rank 8")
        assert (usual["lora_rank"], written["lora_rank"]) == ("32", "8")
        assert ("lora_rank" in usual["assumed"], "lora_rank" in written["assumed"]) == (True, False)
        assert step_s(usual) < step_s(plain)

    @pytest.mark.parametrize("rank", ["rank 0", "rank=-4"])
    def test_adapters_without_a_rank_above_0_are_refused(self, tmp_path: Path, rank: str) -> None:
        path = written(tmp_path, {**LLAMA_8B, "metric_kind": "LoRA step", "notes": f"LoRA {rank}"})
        (row,) = read_measured(path)
        assert isinstance(row, Unmodelled)
        assert row.reason.startswith(f"notes = '{rank}': the rank of LoRA adapters must be at least 1")

    def test_rows_of_one_id_are_told_apart_by_where_they_stand(self, tmp_path: Path) -> None:
        path = written(tmp_path, LLAMA_8B, {**LLAMA_8B, "id": "b"}, {**LLAMA_8B, "gpu": "RTX 4090"})
        ids = [row.row_id if isinstance(row, Unmodelled) else row["row_id"] for row in read_measured(path)]
        assert ids == ["a (row 2)", "b", "a (row 4)"]

    def test_bytes_of_the_optimizer_are_those_of_the_row_and_else_the_framework_s(
        self, tmp_path: Path
    ) -> None:
        # Adam with 16-bit moments and a master of 16 bits more: 6 bytes, of 8.03e9 weights on eight ranks of ZeRO-1.
        usual, small = compare([only_row(tmp_path), only_row(tmp_path, optimizer_bytes=6, update_bytes=0)])
        assert usual.row["optimizer_bytes"] == "12.0"
        saved = (usual.planned_memory_bytes - small.planned_memory_bytes) / (8.03e9 / 8)
        assert saved >= 12 - 6

    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ({"optimizer_bytes": "2"}, "optimizer_bytes: Input should be greater than or equal to 4"),
            ({"update_bytes": "-1"}, "update_bytes = '-1': must be at least 0"),
        ],
    )
    def test_bytes_that_no_optimizer_has_are_refused(
        self, tmp_path: Path, cells: Mapping[str, object], reason: str
    ) -> None:
        (entry,) = entries_of(read_measured(written(tmp_path, {**LLAMA_8B, **cells})))
        assert isinstance(entry, Unmodelled)
        assert entry.reason.startswith(reason)

    def test_a_name_of_the_catalogue_fills_the_shape(self, tmp_path: Path) -> None:
        row = only_row(tmp_path)
        # Llama 3 paper, arXiv 2407.21783, Table 3.
        shape = (
            "num_layers",
            "hidden_size",
            "num_heads",
            "num_kv_heads",
            "ffn_hidden_size",
            "vocabulary_size",
        )
        assert [row[name] for name in shape] == ["32", "4096", "32", "8", "14336", "128256"]
        assert {"layers", "hidden", "vocab"} <= set(row["assumed"].split())

    def test_a_cut_down_model_keeps_what_its_name_tells(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, model="DeepSeek-V3 (proxy)", layers=8, hidden=7168, ep=8)
        assert row["num_layers"] == "8"
        assert row["key_value_rank"] == "512"  # DeepSeek-V3, arXiv 2412.19437, section 4.2

    def test_speed_gives_the_step_where_no_time_is_published(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, step_time_s="", tokens_per_s_per_gpu=16384)
        # 128 sequences of 8,192 tokens at 8 x 16,384 tokens per second.
        assert float(row["step_time_s"]) == pytest.approx(8.0)

    def test_speed_gives_it_with_the_batch_that_is_assumed(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, step_time_s="", global_batch="", micro_batch=2, tokens_per_s_per_gpu=16384)
        # Two sequences of 8,192 tokens on each of eight replicas.
        assert row["global_batch_size"] == "16"
        assert float(row["step_time_s"]) == pytest.approx(1.0)

    def test_a_time_counts_before_a_speed_that_contradicts_it(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, step_time_s=10.0, tokens_per_s_per_gpu=16384)
        assert row["step_time_s"] == "10.0"
        assert (
            "tokens_per_s_per_gpu = '16384': with global_batch, seq_len and n_gpus a step of 8 s"
            in row["remarks"]
        )
        assert only_row(tmp_path, step_time_s=8.1, tokens_per_s_per_gpu=16384)["remarks"] == ""

    def test_layers_that_do_not_split_evenly_are_cut_as_they_are_and_added_to_where_chunks_lack_some(
        self, tmp_path: Path
    ) -> None:
        sizes = {"model": "Foo", "hidden": 4096, "n_gpus": 32, "gpus_per_node": 8}
        fewer, uneven, even = (only_row(tmp_path, layers=layers, pp=16, **sizes) for layers in (60, 61, 62))
        assert uneven["num_layers"] == "61"
        assert "layers" not in uneven["assumed"].split()
        # The fullest of 16 stages has four layers in any case.
        assert step_s(fewer) <= step_s(uneven) <= step_s(even) < 1.03 * step_s(fewer)
        lacking = only_row(tmp_path, layers=61, pp=32, vpp=2, **sizes)
        assert lacking["num_layers"] == "62"
        assert "layers" in lacking["assumed"].split()

    def test_new_shapes_on_new_hardware_are_simulated(self, tmp_path: Path) -> None:
        shape = {
            "model": "Foo",
            "layers": 40,
            "hidden": 5120,
            "heads": 40,
            "ffn_hidden": 13824,
            "step_time_s": 100,
        }
        for gpu in ("MI300X", "B300", "TPU v5p", "Gaudi2", "V100-32GB"):
            row = only_row(tmp_path, gpu=gpu, precision="fp16", recompute="full", **shape)
            assert 0.0 < step_s(row) < 1e4, gpu

    def test_a_step_is_refused_only_where_it_beats_the_peak(self, tmp_path: Path) -> None:
        # 6 FLOP for each of 8.03e9 - 0.53e9 weights in products (embedding not counted) and 6 L h s of causal attention,
        # for 128 x 8,192 tokens on 8 x 989.4e12 FLOP/s (NVIDIA's data sheet, dense bf16).
        flop_per_token = 6 * (8.03e9 - 128256 * 4096) + 6 * 32 * 4096 * 8192
        shortest_s = flop_per_token * 128 * 8192 / (8 * 989.4e12)
        assert reason_against(only_row(tmp_path, step_time_s=1.01 * shortest_s)) == ""
        assert "an MFU above 1" in reason_against(only_row(tmp_path, step_time_s=0.99 * shortest_s))

    def test_production_runs_are_compared_with_stragglers(self, tmp_path: Path) -> None:
        row = only_row(tmp_path, metric_kind="production throughput")
        (comparison,) = compare([row])
        # The published prior of stragglers, arXiv 2505.05713: 13.5 % on average, against accelerators that are all alike; the
        # simulated step waits for the slowest of eight already, 2.04 standard deviations by sqrt(2 ln 8).
        slowest = 1.0 + 2.04 * training_constants().accelerator_spread_fraction
        assert comparison.expected_s / comparison.simulated_s == pytest.approx(1.135 / slowest, abs=0.001)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"gpu": "RTX 4090"}, "gpu = RTX 4090"),
            ({"precision": "mxfp4"}, "precision fp4: h100-sxm5-80gb has only fp16, bf16, fp8"),
            ({"precision": "fp32"}, "precision fp32: only fp16, bf16, fp8 and nvfp4 are modelled"),
            ({"precision": "nvfp4"}, "precision fp4: h100-sxm5-80gb has only fp16, bf16, fp8"),
            ({"precision": "mxfp8"}, "precision mxfp8: h100-sxm5-80gb scales no blocks"),
            ({"precision": "int8", "gpu": "A100"}, "precision fp8: a100-sxm4-80gb has only fp16, bf16"),
            ({"precision": "bf16", "gpu": "V100-32GB"}, "precision bf16: v100-sxm2-32gb has only fp16"),
            ({"step_time_s": 0.0001}, "step_time_s = 0.0001: 8 h100-sxm5-80gb at their peak need"),
            ({"model": "Flan-T5"}, "only decoder-only transformers"),
            ({"model": "Falcon-H1-34B"}, "layers with a state are known only of the catalogue's models"),
            ({"metric_kind": "single-layer forward"}, "only steps of training"),
            ({"seq_len": ""}, "seq_len is not given"),
            ({"model": "Foo", "layers": 32}, "hidden is not given"),
            ({"n_gpus": 64, "tp": "", "pp": 5}, "tp is not given, and with pp 5 no layout makes up 64 GPUs"),
            ({"tp": 3, "dp": 8}, "must equal num_gpus"),
            (
                {"global_batch": 10},
                (
                    "must divide global_batch_size: data_parallel = 8, micro_batch_size = 1, global_batch_size = 10; nearest "
                    "data_parallel: 5, 10"
                ),
            ),
            ({"ep": 2}, "expert_parallel = 2, tensor_parallel = 1, context_parallel = 1, data_parallel = 8"),
            ({"gpu": "A100-80GB", "precision": "fp8"}, "a100-sxm4-80gb has only fp16, bf16"),
            ({"usable": "no"}, "marked as unusable"),
            ({"interconnect": "NVL72"}, "h100-sxm5-80gb does not have: at most 8 share a scale-up link"),
        ],
    )
    def test_what_cannot_be_modelled_stays_in_the_list_with_its_reason(
        self, tmp_path: Path, changes: Mapping[str, object], reason: str
    ) -> None:
        path = written(tmp_path, LLAMA_8B, {**LLAMA_8B, "id": "b", **changes}, {**LLAMA_8B, "id": "c"})
        first, second, third = entries_of(read_measured(path))
        assert isinstance(first, Modelled)
        assert isinstance(third, Modelled)
        assert isinstance(second, Unmodelled)
        assert second.row_id == "b"
        assert reason in second.reason
