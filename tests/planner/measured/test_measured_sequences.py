"""What do columns, notes and models of measured runs say of windows, documents, context parallelism and experts' parts?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.runs import compare, job_of
from simulator.domain.attention_span import SlidingWindow
from simulator.domain.blocks import MixtureOfExperts
from tests.planner.measured_rows import simulated_row

# A layout that may exist: gpt-oss-120b, of which every other layer looks back 128 tokens (arXiv 2508.10925).
GPT_OSS: Mapping[str, object] = {
    "id": "g",
    "model": "GPT-OSS 120B",
    "seq_len": 8192,
    "gpu": "H100-80GB",
    "n_gpus": 64,
    "global_batch": 512,
    "micro_batch": 1,
    "tp": 1,
    "pp": 4,
    "ep": 8,
    "framework": "Megatron-Bridge",
    "step_time_s": 10,
}
LLAMA: Mapping[str, object] = {**GPT_OSS, "model": "Llama-3.1-8B", "ep": "", "pp": 1}


def window_of(folder: Path, cells: Mapping[str, object]) -> SlidingWindow | None:
    return job_of(simulated_row(folder, cells)).workload.model.sliding_window


class TestWindows:
    def test_a_known_model_has_its_own(self, tmp_path: Path) -> None:
        assert window_of(tmp_path, GPT_OSS) == SlidingWindow(window_tokens=128, full_every=2)
        assert window_of(tmp_path, LLAMA) is None

    @pytest.mark.parametrize(
        ("changes", "window"),
        [
            ({"window": 4096}, SlidingWindow(window_tokens=4096)),
            ({"window": 1024, "full_every": 6}, SlidingWindow(window_tokens=1024, full_every=6)),
            ({"notes": "sliding-window attention of 2048 tokens"}, SlidingWindow(window_tokens=2048)),
            ({"notes": "SWA 512"}, SlidingWindow(window_tokens=512)),
            ({"notes": "SWA 4096 in 3 of 4 layers"}, SlidingWindow(window_tokens=4096, full_every=4)),
            (
                {"notes": "SWA 1024, every 6th layer full"},
                SlidingWindow(window_tokens=1024, full_every=6),
            ),
            ({"notes": "SWA 4096 in 2 of 4 layers"}, SlidingWindow(window_tokens=4096)),
            ({"notes": "uses sliding-window attention"}, None),  # of what length?
            ({"window": 0, "notes": "SWA 512"}, None),
        ],
    )
    def test_columns_and_notes_name_others(
        self, tmp_path: Path, changes: Mapping[str, object], window: SlidingWindow | None
    ) -> None:
        assert window_of(tmp_path, {**LLAMA, **changes}) == window

    def test_no_window_can_be_said_of_a_model_that_has_one(self, tmp_path: Path) -> None:
        assert window_of(tmp_path, {**GPT_OSS, "window": 0}) is None

    def test_a_window_makes_a_long_step_shorter(self, tmp_path: Path) -> None:
        long = {**GPT_OSS, "seq_len": 65_536, "global_batch": 64}
        (own,), (none,) = (
            compare([simulated_row(tmp_path, cells)]) for cells in (long, {**long, "window": 0})
        )
        assert own.simulated_s < none.simulated_s


class TestDocuments:
    def test_their_mean_length_is_a_column_or_in_the_notes(self, tmp_path: Path) -> None:
        for changes in ({"mean_document": 700}, {"notes": "packed, mean sequence length: 700"}):
            documents = job_of(simulated_row(tmp_path, {**LLAMA, **changes})).workload.documents
            assert documents
            assert documents.mean_tokens == 700

    def test_packing_alone_names_no_length(self, tmp_path: Path) -> None:
        assert (
            job_of(simulated_row(tmp_path, {**LLAMA, "notes": "packed sequences"})).workload.documents is None
        )


class TestContextParallelism:
    LONG: Mapping[str, object] = {**LLAMA, "seq_len": 131_072, "cp": 4, "global_batch": 16}

    @pytest.mark.parametrize(
        ("changes", "exchange"),
        [
            ({"cp_comm_type": "p2p"}, "ring"),
            ({"cp_comm_type": "all_gather"}, "all_gather"),
            ({"cp_comm_type": "a2a"}, "all_to_all"),
            ({"cp_comm_type": "a2a+p2p"}, "hybrid"),
            ({"notes": "DeepSpeed-Ulysses"}, "all_to_all"),
            ({"notes": "Ulysses 2 x ring 2"}, "hybrid"),
            ({"sp": "ring + ulysses"}, "hybrid"),
            ({"notes": "LoongTrain, 2D-Attention"}, "hybrid"),
            ({"notes": "Ulysses only, no ring"}, "all_to_all"),
            ({"notes": "CP all-gather"}, "all_gather"),
            ({"notes": "CP rotate method allgather"}, "gathered_ring"),
            ({"cp_comm_type": "ring"}, "ring"),
            ({"cp_comm_type": "alltoall"}, "all_to_all"),
            ({"cp_comm_type": "hybrid"}, "hybrid"),
            ({"sp": "DeepSpeed-Ulysses"}, "all_to_all"),
            ({"sp": "Ulysses SP"}, "all_to_all"),
            ({"notes": "zigzag ring"}, "ring"),
            ({"notes": "CP with all-gather"}, "all_gather"),
            ({"notes": "all-gather based CP"}, "all_gather"),
            ({"notes": "CP comm a2a"}, "all_to_all"),
            ({"notes": "context parallel communication: all-to-all"}, "all_to_all"),
            ({"notes": "CP=4 (a2a)"}, "all_to_all"),
            ({"notes": "A2A-based CP"}, "all_to_all"),
            ({"notes": "cp_comm_type=['a2a']"}, "all_to_all"),
            ({"notes": "hierarchical_context_parallel_sizes 2 2"}, "hybrid"),
            ({"cp": "4 (a2a)"}, "all_to_all"),
            ({"cp": "Ulysses 4"}, "all_to_all"),
            ({"sp": "CP all-gather"}, "all_gather"),
            ({"sp": "TP-SP, CP a2a"}, "all_to_all"),
            ({"cp_comm_type": '["p2p"]'}, "ring"),
            ({"framework": "torchtitan", "notes": "AsyncTP; CP ring"}, "gathered_ring"),
            ({"framework": "torchtitan", "notes": "CP ring; all-to-all dispatcher"}, "gathered_ring"),
            ({"framework": "torchtitan", "sp": "ring"}, "gathered_ring"),
            ({"framework": "torchtitan", "cp_comm_type": "allgather"}, "gathered_ring"),
            ({"framework": "torchtitan", "cp_comm_type": "alltoall"}, "ring"),
            ({"framework": "torchtitan", "notes": "ring attention, rotate_method: alltoall"}, "ring"),
            ({"framework": "torchtitan", "notes": "Ulysses"}, "all_to_all"),
            ({"framework": "FSDP2 with DeepSpeed-Ulysses"}, "all_to_all"),
            ({"framework": "Megatron-LM, ring attention"}, "ring"),
            ({"framework": "DeepSpeed", "notes": "ring attention"}, "ring"),
        ],
    )
    def test_its_exchange_is_what_is_said(
        self, tmp_path: Path, changes: Mapping[str, object], exchange: str
    ) -> None:
        row = simulated_row(tmp_path, {**self.LONG, **changes})
        assert job_of(row).workload.context_exchange == exchange
        assert "context_exchange" not in row["assumed"]

    @pytest.mark.parametrize(
        ("cp", "written", "is_remarked"),
        [("", "a2a", True), (1, "p2p", True), (1, "n/a", False), (4, "p2p", False)],
    )
    def test_an_exchange_without_ranks_that_share_a_sequence_is_remarked(
        self, tmp_path: Path, cp: object, written: str, *, is_remarked: bool
    ) -> None:
        row = simulated_row(tmp_path, {**self.LONG, "tp": 4, "cp": cp, "cp_comm_type": written})
        meaning = f"cp_comm_type = '{written}': no ranks share the sequence; say in cp how many do"
        assert (meaning in row["remarks"].splitlines()) is is_remarked

    @pytest.mark.parametrize(
        ("changes", "exchange"),
        [
            ({}, "ring"),
            ({"framework": "torchtitan"}, "gathered_ring"),
            ({"window": 4096}, "all_gather"),
            ({"framework": "DeepSpeed"}, "all_to_all"),
            ({"framework": "Megatron-DeepSpeed 2024", "window": 4096}, "all_to_all"),
            ({"framework": "GPT-NeoX 2024"}, "ring"),
            ({"framework": "DeepSpeed", "model": "Qwen2.5-7B", "cp": 8}, "ring"),  # 28 heads
            ({"notes": "all-to-all dispatcher"}, "ring"),  # of experts
            ({"notes": "CP=4, all-to-all dispatcher"}, "ring"),
            ({"notes": "CP 4 all-to-all dispatcher"}, "ring"),
            ({"notes": "no CP a2a"}, "ring"),
            ({"notes": "without Ulysses"}, "ring"),
        ],
    )
    def test_otherwise_it_is_a_habit_of_the_framework_that_a_window_breaks(
        self, tmp_path: Path, changes: Mapping[str, object], exchange: str
    ) -> None:
        row = simulated_row(tmp_path, {**self.LONG, **changes})
        assert job_of(row).workload.context_exchange == exchange
        assert "context_exchange" in row["assumed"]

    @pytest.mark.parametrize(("tensor", "context", "heads"), [(1, 8, 8), (2, 4, 8), (4, 4, 16), (1, 4, 8)])
    def test_ranks_that_exchange_fewer_heads_than_they_are_copy_them(
        self, tmp_path: Path, tensor: int, context: int, heads: int
    ) -> None:
        # Llama 3.1 8B has 8 key-value heads; those of all tensor- and context-parallel ranks differ or are copies.
        degrees = {"tp": tensor, "cp": context, "sp": "DeepSpeed-Ulysses"}
        row = simulated_row(tmp_path, {**self.LONG, **degrees})
        assert row["num_kv_heads"] == str(heads)
        assert ("simulated with copies" in row["remarks"]) == (heads > 8)

    @pytest.mark.parametrize(
        ("changes", "exchange"),
        [
            ({"tp": 1, "cp": 8}, "hybrid"),
            ({"tp": 4, "cp": 8}, "hybrid"),  # two of a node's ranks, each with one of eight key-value heads
            (
                {"tp": 2, "cp": 8, "gpu": "GB200"},
                "ring",
            ),  # 16 ranks of a link domain of 72, and 8 key-value heads
            ({"tp": 1, "cp": 8, "model": "Qwen2.5-7B"}, "ring"),  # which has 4
            ({"tp": 1, "cp": 8, "model": "Qwen2.5-7B", "window": 1024}, "all_gather"),
        ],
    )
    def test_heads_that_a_link_domain_cannot_share_go_round_a_ring(
        self, tmp_path: Path, changes: Mapping[str, object], exchange: str
    ) -> None:
        row = simulated_row(tmp_path, {**self.LONG, "cp_comm_type": "a2a+p2p", **changes})
        assert row["context_exchange"] == exchange
        told = f"of a link domain cannot exchange {row['num_kv_heads']} key-value heads; taken as {exchange}"
        assert (told in row["remarks"]) is (exchange != "hybrid")

    def test_without_it_nothing_is_assumed(self, tmp_path: Path) -> None:
        assert "context_exchange" not in simulated_row(tmp_path, LLAMA)["assumed"]


class TestExperts:
    def test_a_known_model_is_routed_as_it_was_published(self, tmp_path: Path) -> None:
        cells = {**GPT_OSS, "model": "DeepSeek-V3", "seq_len": 4096, "n_gpus": 1024, "pp": 16, "ep": 64}
        experts = job_of(simulated_row(tmp_path, cells)).workload.model.experts
        # config.json: n_group 8, topk_group 4.
        assert experts == MixtureOfExperts(
            num_experts=256,
            experts_per_token=8,
            expert_ffn_hidden_size=2048,
            shared_ffn_hidden_size=2048,
            num_dense_layers=3,
            num_groups=8,
            groups_per_token=4,
        )

    @pytest.mark.parametrize(
        ("model", "dense_layers", "order", "is_assumed"),
        [
            ("Llama 4 Maverick", "", (0, 2), True),
            ("Llama 4 Maverick", 18, (0, 2), False),
            ("Llama 4 Maverick", 3, (3, 1), False),
            ("gpt-oss", 18, (18, 1), False),
        ],
    )
    def test_every_other_layer_of_maverick_has_experts(
        self, tmp_path: Path, model: str, dense_layers: object, order: tuple[int, int], *, is_assumed: bool
    ) -> None:
        shape = {"layers": 36, "hidden": 5120, "heads": 40, "experts": 128, "topk": 1}
        row = simulated_row(tmp_path, {**GPT_OSS, **shape, "model": model, "dense_layers": dense_layers})
        experts = job_of(row).workload.model.experts
        assert experts is not None
        assert (experts.num_dense_layers, experts.layer_step) == order
        assert ("dense_layers" in row["assumed"].split()) == is_assumed

    @pytest.mark.parametrize(
        ("notes", "dense_layers", "order", "remark"),
        [
            ("MoE every other layer", "", (0, 2), ""),
            ("experts in every 4th layer", "", (0, 4), ""),
            ("interleave_moe_layer_step=2", 18, (0, 2), ""),
            ("MoE layer every 2 layers", 0, (0, 2), ""),
            ("interleaved MoE", 3, (3, 1), "as dense_layers are others"),
            ("no MoE in every second layer", "", (0, 1), ""),
        ],
    )
    def test_notes_say_of_how_many_layers_one_has_experts(
        self, tmp_path: Path, notes: str, dense_layers: object, order: tuple[int, int], remark: str
    ) -> None:
        # As GShard (arXiv 2006.16668) and GLaM (2112.06905) have them.
        shape = {"layers": 36, "hidden": 5120, "heads": 40, "experts": 128, "topk": 1, "model": "GShard"}
        row = simulated_row(
            tmp_path, {**GPT_OSS, **shape, "notes": notes, "dense_layers": dense_layers, "pp": 2, "vpp": ""}
        )
        experts = job_of(row).workload.model.experts
        assert experts is not None
        assert (experts.num_dense_layers, experts.layer_step) == order
        assert "interleaved" not in row["remarks"].replace("interleaved MoE", "")
        assert remark in row["remarks"]

    @pytest.mark.parametrize(("model", "has_them"), [("Llama 4 Maverick", True), ("Foo", False)])
    def test_feed_forward_blocks_between_them_can_be_computed_again(
        self, tmp_path: Path, model: str, *, has_them: bool
    ) -> None:
        shape = {"layers": 36, "hidden": 5120, "heads": 40, "experts": 128, "topk": 1}
        row = simulated_row(tmp_path, {**GPT_OSS, **shape, "model": model, "recompute": "mlp"})
        assert row["recompute"] == ("selective" if has_them else "none")
        assert ("mlp needs layers without experts" in row["remarks"]) is not has_them

    @pytest.mark.parametrize("changes", [{"etp": 2}, {"notes": "ETP=2"}, {"notes": "EP 8, ETP 2"}])
    def test_ranks_that_share_an_expert_are_a_column_or_in_the_notes(
        self, tmp_path: Path, changes: Mapping[str, object]
    ) -> None:
        assert job_of(simulated_row(tmp_path, {**GPT_OSS, **changes})).workload.expert_tensor_parallel == 2

    def test_the_notes_say_what_is_sent_and_what_hides_it(self, tmp_path: Path) -> None:
        notes = "DeepEP, fp8 dispatch, shared-expert overlap"
        workload = job_of(simulated_row(tmp_path, {**GPT_OSS, "notes": notes})).workload
        assert (workload.dispatches_in_8_bits, workload.overlaps_shared_experts) == (True, True)
        plain = job_of(simulated_row(tmp_path, GPT_OSS)).workload
        assert (plain.dispatches_in_8_bits, plain.overlaps_shared_experts) == (False, False)


def test_a_sequence_is_padded_to_what_its_ranks_can_share(tmp_path: Path) -> None:
    long = {**LLAMA, "seq_len": 1_000_000, "tp": 8, "cp": 8, "global_batch": 4, "step_time_s": ""}
    row = simulated_row(tmp_path, long)
    assert row["sequence_length"] == "1000064"  # the next multiple of 2 x 8 x 8
    assert (
        "seq_len = '1000000': 8 ranks with two pieces each do not divide it; taken as 1000064"
        in row["remarks"]
    )
    assert simulated_row(tmp_path, {**long, "seq_len": 2**20})["sequence_length"] == str(2**20)
