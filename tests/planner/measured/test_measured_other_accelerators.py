"""Measured runs on TPUs, and on cards of two dies: hosts, layouts that are not told, software of XLA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.fitting_choices import with_room
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import compare
from tests.planner.measured_rows import RUN, simulated_row, written

TPU: Mapping[str, object] = {
    **RUN,
    "gpu": "TPU v5e-256",
    "n_gpus": 256,
    "framework": "MaxText",
    "global_batch": 512,
}


class TestTpus:
    @pytest.mark.parametrize("gpus_per_node", ["", 1, 4, 8, 256])
    def test_hosts_do_not_cut_a_torus(self, tmp_path: Path, gpus_per_node: object) -> None:
        row = simulated_row(tmp_path, {**TPU, "gpus_per_node": gpus_per_node})
        assert row["link_domain_size"] == "256"

    @pytest.mark.parametrize("gpus_per_node", [8, 16, 12, 128])
    def test_what_is_no_node_and_no_torus_cuts_none_and_is_told(
        self, tmp_path: Path, gpus_per_node: int
    ) -> None:
        told = {**TPU, "gpu": "TPU v4", "n_gpus": 512, "gpus_per_node": gpus_per_node}
        row = simulated_row(tmp_path, told)
        usual = simulated_row(tmp_path, {**told, "gpus_per_node": ""})
        assert (row["num_accelerators"], row["link_domain_size"]) == ("4", "4096")
        assert {**row, "remarks": ""} == usual
        assert row["remarks"].startswith(
            f"gpus_per_node = '{gpus_per_node}': is neither a node of tpu-v4 (4)"
        )

    @pytest.mark.parametrize("framework", ["", "AXLearn", "GSPMD (Lingvo)", "Google internal", "MaxText"])
    def test_unknown_software_is_that_of_xla(self, tmp_path: Path, framework: str) -> None:
        row = simulated_row(tmp_path, {**TPU, "framework": framework})
        assert (row["kernel_launch"], row["zero_stage"], row["pipeline_parallel"]) == ("graph", "3", "1")

    @pytest.mark.parametrize(
        ("framework", "sharding", "ranks"),
        [
            ("MaxText", "FSDP", "256"),  # `dcn_data_parallelism: -1`: copies between slices
            ("MaxText", "", "256"),
            ("MaxText", "FSDP 1024", ""),
            ("MaxText", "dcn_fsdp_parallelism=4", ""),
            ("MaxText", "zero1", ""),
            ("AXLearn", "FSDP", ""),
        ],
    )
    def test_maxtext_shards_within_a_slice(
        self, tmp_path: Path, framework: str, sharding: str, ranks: str
    ) -> None:
        cells = {**TPU, "gpu": "TPU v5e", "n_gpus": 1024, "global_batch": 2048, "framework": framework}
        row = simulated_row(tmp_path, {**cells, "zero_stage_or_fsdp": sharding})
        assert row["shard_ranks"] == ranks
        assert ("shard_ranks" in row["assumed"].split()) is bool(ranks)

    @pytest.mark.parametrize(("batch", "tensor"), [(512, "1"), (256, "1"), (128, "2"), (96, "4")])
    def test_fewer_sequences_than_accelerators_split_products(
        self, tmp_path: Path, batch: int, tensor: str
    ) -> None:
        gpus = 256 if batch != 96 else 384
        row = simulated_row(tmp_path, {**TPU, "gpu": "TPU v5p", "n_gpus": gpus, "global_batch": batch})
        assert row["tensor_parallel"] == tensor
        assert ("fewer sequences" in row["remarks"]) is (tensor != "1")

    @pytest.mark.parametrize(
        ("chips", "batch", "tensor", "replicas"),
        [(6144, 2048, "3", "2048"), (4096, 3072, "4", "1024")],  # the batches of PaLM and of Gopher
    )
    def test_their_replicas_share_the_batch_evenly(
        self, tmp_path: Path, chips: int, batch: int, tensor: str, replicas: str
    ) -> None:
        cells = {**TPU, "gpu": "TPU v4", "n_gpus": chips, "global_batch": batch}
        (row,) = read_measured(written(tmp_path, {**cells, "layers": 118, "hidden": 18432, "heads": 48}))
        assert not isinstance(row, Unmodelled), row
        assert (row["tensor_parallel"], row["data_parallel"]) == (tensor, replicas)

    def test_what_needs_least_stands_in_where_nothing_fits(self, tmp_path: Path) -> None:
        cells = {**TPU, "model": "llama-3.1-405b", "seq_len": 32768, "micro_batch": 2, "step_time_s": 9000}
        row = simulated_row(tmp_path, cells)
        (known,) = compare([row])
        (found,) = with_room([known])
        assert (known.row["recompute"], found.row["recompute"]) == ("none", "full")
        assert found.is_too_large
        assert "recomputation full" in found.row["remarks"]

    @pytest.mark.parametrize(
        ("recompute", "kind"),
        [
            ("decoder_layer_input offloaded", "full"),
            ("decoder layer input offload", "full"),
            ("qkv_proj_offloaded", "selective"),
            ("minimal", "selective"),
        ],
    )
    def test_policies_of_maxtext_are_known(self, tmp_path: Path, recompute: str, kind: str) -> None:
        assert simulated_row(tmp_path, {**TPU, "recompute": recompute})["recompute"] == kind

    def test_links_of_a_torus_are_known(self, tmp_path: Path) -> None:
        row = simulated_row(tmp_path, {**TPU, "interconnect": "ICI 2D torus"})
        assert "interconnect" not in row["remarks"] + row["assumed"]


@pytest.mark.parametrize(
    "written", ["FSDP 64, TP 4", "fsdp 64 x tensor 4", "ici_fsdp_parallelism=64, ici_tensor_parallelism=4"]
)
def test_tensor_parallelism_may_stand_beside_sharding(tmp_path: Path, written: str) -> None:
    row = simulated_row(tmp_path, {**TPU, "zero_stage_or_fsdp": written})
    assert (row["tensor_parallel"], row["data_parallel"], row["zero_stage"]) == ("4", "64", "3")
    assert simulated_row(tmp_path, {**TPU, "tp": 2, "zero_stage_or_fsdp": written})["tensor_parallel"] == "2"


class TestCardsOfTwoDies:
    @pytest.mark.parametrize(
        ("gpu", "gpus_per_node", "found"),
        [
            ("MI250X", "", ("mi250x-gcd", "512")),  # publications count GPUs as frameworks do
            ("MI250X", 4, ("mi250x-gcd", "1024")),
            ("MI250X", 8, ("mi250x-gcd", "512")),
            ("Trainium1", 16, ("trainium1-core", "1024")),
            ("Trainium1", 32, ("trainium1-core", "512")),
        ],
    )
    def test_ranks_are_dies_where_replicas_are_not_told(
        self, tmp_path: Path, gpu: str, gpus_per_node: object, found: tuple[str, str]
    ) -> None:
        cells = {**RUN, "gpu": gpu, "n_gpus": 512, "gpus_per_node": gpus_per_node, "global_batch": 1024}
        row = simulated_row(tmp_path, {**cells, "precision": "fp16", "tp": 8, "pp": 4, "micro_batch": 1})
        assert (row["accelerator"], row["num_gpus"]) == found


def test_rates_of_a_card_are_of_each_accelerator(tmp_path: Path) -> None:
    cells = {**RUN, "gpu": "Gaudi2", "n_gpus": 16, "tp": 8, "pp": 1, "interconnect": "300 Gb/s per HPU"}
    assert float(simulated_row(tmp_path, cells)["network_bytes_per_s"]) == 8 * 300e9 / 8


def test_replicas_that_do_not_fit_are_what_is_left(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN, "tp": 2, "pp": 2, "dp": 4, "micro_batch": 1})
    assert (row["data_parallel"], "taken as 2" in row["remarks"]) == ("2", True)


def test_blocks_of_mxfp4_are_those_of_nvfp4(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN, "gpu": "GB300", "precision": "MXFP4", "step_time_s": 20})
    assert (row["precision"], "blocks of 32" in row["remarks"]) == ("fp4", True)


@pytest.mark.parametrize("framework", ["Megatron-DeepSpeed 2022", "Optimum Habana", "Megatron-LM 2021"])
def test_gaudi_has_kernels_of_its_own_whatever_a_release_means_elsewhere(
    tmp_path: Path, framework: str
) -> None:
    row = simulated_row(tmp_path, {**RUN, "gpu": "Gaudi2", "framework": framework, "tp": 8, "pp": 1})
    found = [row[name] for name in ("attention", "has_sequence_parallel", "has_fused_operators")]
    assert found == ["flash", "true", "true"]
