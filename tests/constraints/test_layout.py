from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from constraints.layout import LAYOUT_RULES, is_valid_layout, layout_excess
from constraints.scheme_rules import can_save_by
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme
from tests.simulator.compressed import DENSE
from tests.simulator.hybrids import small_hybrid
from tests.support import A100_RENTED, H100_RENTED, job_with, plans_with

ANY_H100 = {**H100_RENTED, "num_gpus": {"min": 8, "max": 20_000}}
ANY_A100 = {**A100_RENTED, "num_gpus": {"min": 8, "max": 20_000}}


def broken_rules(job: Job, row: Mapping[str, object]) -> set[str]:
    excess = layout_excess(job, plans_with(row))[0]
    return {rule.name for rule, value in zip(LAYOUT_RULES, excess, strict=True) if value > 0.0}


@dataclass(frozen=True, kw_only=True)
class Published:
    """A run that took place, so that its layout must be valid."""

    model: str
    batch: int
    sequence: int
    layout: Mapping[str, int]
    offer: Mapping[str, object] = field(default_factory=lambda: ANY_A100)
    workload: Mapping[str, object] = field(default_factory=dict)


PUBLISHED = {
    # arXiv 2211.05100, table 3 and the BigScience chronicles: 70 layers on 12 stages.
    "BLOOM": Published(
        model="bloom-176b",
        batch=2048,
        sequence=2048,
        layout={"num_gpus": 384, "tensor_parallel": 4, "pipeline_parallel": 12, "micro_batch_size": 2},
        workload={"has_sequence_parallel": False},
    ),
    # arXiv 2104.04473, table 1, last row: a trillion parameters on 3,072 A100.
    "Megatron 1T": Published(
        model="megatron-1t",
        batch=3072,
        sequence=2048,
        layout={"num_gpus": 3072, "tensor_parallel": 8, "pipeline_parallel": 64},
    ),
    # The same, section 5.4: 175 billion parameters, two chunks on each of 12 stages.
    "GPT-3, interleaved": Published(
        model="gpt3-175b",
        batch=48,
        sequence=2048,
        layout={"num_gpus": 96, "tensor_parallel": 8, "pipeline_parallel": 12, "virtual_pipeline": 2},
    ),
    # arXiv 2201.11990, section 3.1: 105 layers on 35 stages, 280 GPUs a replica.
    "MT-NLG": Published(
        model="mt-nlg-530b",
        batch=1920,
        sequence=2048,
        layout={"num_gpus": 2240, "tensor_parallel": 8, "pipeline_parallel": 35},
    ),
    # arXiv 2407.21783, table 4: the three stages of Llama 3 405B; 126 layers on 16 stages.
    "Llama 3 405B": Published(
        model="llama-3.1-405b",
        batch=2048,
        sequence=8192,
        layout={"num_gpus": 16_384, "tensor_parallel": 8, "pipeline_parallel": 16},
        offer=ANY_H100,
    ),
    "Llama 3 405B, long context": Published(
        model="llama-3.1-405b",
        batch=128,
        sequence=131_072,
        layout={
            "num_gpus": 16_384,
            "tensor_parallel": 8,
            "pipeline_parallel": 16,
            "context_parallel": 16,
        },
        offer=ANY_H100,
        workload={"context_exchange": "all_gather"},
    ),
    # arXiv 2412.19437, section 3.2: 16 stages, experts over 64 ranks, ZeRO-1; 61 layers.
    "DeepSeek-V3": Published(
        model="deepseek-v3",
        batch=15_360,
        sequence=4096,
        layout={"num_gpus": 2048, "pipeline_parallel": 16, "expert_parallel": 64},
        offer={**ANY_H100, "accelerator": "h800-sxm5-80gb"},
    ),
}


@pytest.mark.parametrize("run", PUBLISHED.values(), ids=PUBLISHED)
def test_layouts_of_published_runs_keep_all_rules(run: Published) -> None:
    workload = {
        "model": run.model,
        "sequence_length": run.sequence,
        "global_batch_size": run.batch,
        "tokens": 1e12,
        **run.workload,
    }
    assert broken_rules(job_with(run.offer, workload=workload), run.layout) == set()


ODD_FFN = {
    "name": "odd",
    "num_layers": 4,
    "hidden_size": 512,
    "num_heads": 8,
    "num_kv_heads": 8,
    "head_dim": 64,
    "ffn_hidden_size": 1365,
    "is_gated": True,
    "vocabulary_size": 1024,
}
ONE_REPLICA = {"num_gpus": 16, "tensor_parallel": 8, "pipeline_parallel": 2}
TWO_STAGES = {"num_gpus": 16, "pipeline_parallel": 2}
INTERLEAVED = {**TWO_STAGES, "virtual_pipeline": 2}
ULYSSES = {"workload": {"context_exchange": "all_to_all"}}
# Four ranks of two are eight to 28 heads in four groups.
HYBRID = {"workload": {"context_exchange": "hybrid", "model": "qwen2.5-7b"}}
WINDOWED = {"workload": {"model": "mistral-7b", "context_exchange": "ring"}}
LINEAR = {"workload": {"model": small_hybrid(4, 4), "sequence_length": 6144}}
COMPRESSED = {"workload": {"model": DENSE.model_dump(mode="json", exclude_none=True)}}
PARTS_OF_EXPERTS = {"workload": {"model": "mixtral-8x7b", "expert_tensor_parallel": 4}}
THIRDS_OF_EXPERTS = {"workload": {"model": "mixtral-8x7b", "expert_tensor_parallel": 3}}
MUON = {"workload": {"muon": {}, "precisions": ["bf16", "fp16"]}}
MIXTRAL = {"workload": {"model": "mixtral-8x7b", "global_batch_size": 192}}

BREAKING: list[tuple[str, Mapping[str, object], Mapping[str, object]]] = [
    # Rule, what differs in the job, the layout. Llama 3.1 8B: 32 layers, 32 heads, 8 of them for keys and values,
    # feed-forward 14,336 = 2^11 x 7; batches of 192 = 2^6 x 3 sequences of 8,192 tokens.
    ("gpu_range", {}, {"num_gpus": 8}),
    ("gpu_range", {}, {"num_gpus": 192}),
    # Eight nodes train, and nine more are not left of sixteen.
    ("gpu_range", {"most_nodes": 16}, {"num_gpus": 64, "num_spare_nodes": 9}),
    ("whole_nodes", {}, {"num_gpus": 24, "data_parallel": 12, "tensor_parallel": 2, "gpus_per_node": 16}),
    ("attention_heads", {}, {"num_gpus": 64, "tensor_parallel": 64}),
    ("attention_heads", {"workload": {"model": "llama-3.2-3b"}}, {"num_gpus": 16, "tensor_parallel": 16}),
    ("feed_forward", {"workload": {"model": ODD_FFN}}, {"num_gpus": 16, "tensor_parallel": 8}),
    ("layers", {}, {"num_gpus": 24, "pipeline_parallel": 3, "virtual_pipeline": 11}),
    ("layers", {}, {"num_gpus": 40, "pipeline_parallel": 40}),
    ("interleaving", {}, {"num_gpus": 16, "virtual_pipeline": 2}),
    ("interleaving", {}, {"num_gpus": 128, "pipeline_parallel": 4, "virtual_pipeline": 2}),
    # Groups of the 24 micro-batches of a replica on two stages: 23 would leave one over, less than there are stages.
    ("interleaved_groups", {}, {**TWO_STAGES, "interleaved_group_size": 8}),
    ("interleaved_groups", {}, {**INTERLEAVED, "interleaved_group_size": 1}),
    ("interleaved_groups", {}, {**INTERLEAVED, "interleaved_group_size": 23}),
    ("interleaved_groups", {}, {**INTERLEAVED, "interleaved_group_size": 25}),
    ("interleaved_groups", {}, {**INTERLEAVED, "pipeline_schedule": "zb_v", "interleaved_group_size": 8}),
    ("schedule", {}, {"num_gpus": 16, "pipeline_schedule": "gpipe"}),
    ("schedule", {}, {**TWO_STAGES, "pipeline_schedule": "zb_v"}),
    ("schedule", {}, {**TWO_STAGES, "pipeline_schedule": "dual_pipe_v"}),
    ("schedule", {}, {**TWO_STAGES, "virtual_pipeline": 2, "pipeline_schedule": "zb_h1"}),
    ("weight_gradients", {}, {**TWO_STAGES, "recompute": "full", "pipeline_schedule": "zb_h1"}),
    ("weight_gradients", {}, {**TWO_STAGES, "zero_stage": 2, "pipeline_schedule": "zb_h1"}),
    ("batch", {}, {"num_gpus": 128}),
    ("batch", {}, {"num_gpus": 128, "micro_batch_size": 2}),
    ("sequence", {}, {"num_gpus": 24, "context_parallel": 3}),
    ("sequence", {"workload": {"sequence_length": 8190}}, {"num_gpus": 16, "tensor_parallel": 4}),
    # Eight heads for keys and values on four tensor-parallel ranks are two on each; with windows there is no ring.
    ("context_exchange", ULYSSES, {"num_gpus": 64, "tensor_parallel": 4, "context_parallel": 4}),
    ("context_exchange", HYBRID, {"num_gpus": 64, "tensor_parallel": 2, "context_parallel": 4}),
    ("context_exchange", WINDOWED, {"num_gpus": 16, "context_parallel": 2}),
    # 64 heads of Mamba-2 in eight groups: no group for each of sixteen ranks; six ranks have no whole heads.
    ("attention_heads", LINEAR, {"num_gpus": 16, "tensor_parallel": 16}),
    ("attention_heads", COMPRESSED, {"num_gpus": 16, "tensor_parallel": 2}),
    ("context_exchange", COMPRESSED, {"num_gpus": 16, "context_parallel": 2}),
    ("context_exchange", LINEAR, {"num_gpus": 24, "context_parallel": 6}),
    ("experts", {}, {"num_gpus": 16, "expert_parallel": 2}),
    ("experts", MIXTRAL, {"num_gpus": 48, "expert_parallel": 3}),
    ("experts", MIXTRAL, {"num_gpus": 16, "pipeline_parallel": 4, "expert_parallel": 8}),
    # Four ranks of each of eight sets of experts are more than sixteen; 14,336 columns are not cut into three.
    ("experts", PARTS_OF_EXPERTS, {"num_gpus": 16, "expert_parallel": 8}),
    ("experts", THIRDS_OF_EXPERTS, {"num_gpus": 48}),
    ("number_format", {"offer": "a100"}, {"num_gpus": 16, "precision": "fp8"}),
    ("recomputed_layers", {}, {"num_gpus": 16, "recompute_num_layers": 2}),
    ("recomputed_layers", {}, {**TWO_STAGES, "recompute": "full", "recompute_num_layers": 17}),
    ("shard_groups", {}, {"num_gpus": 16, "shard_ranks": 5}),
    ("shard_groups", {}, {"num_gpus": 16, "shard_ranks": 32}),
    ("shard_groups", {}, {"num_gpus": 16, "shard_ranks": 8, "zero_stage": 0}),
    ("shard_groups", {}, {"num_gpus": 32, "context_parallel": 2, "shard_ranks": 1}),
    ("shard_groups", MIXTRAL, {"num_gpus": 96, "expert_parallel": 4, "shard_ranks": 6}),
    # Groups of twelve hold three sets of experts of four ranks, but none of sixteen.
    ("shard_groups", PARTS_OF_EXPERTS, {"num_gpus": 48, "expert_parallel": 4, "shard_ranks": 12}),
    ("whole_matrices", MUON, {"num_gpus": 16, "zero_stage": 2}),
    ("whole_matrices", MUON, {"num_gpus": 16, "shard_ranks": 8}),
    ("whole_matrices", MUON, {"num_gpus": 16, "precision": "fp16"}),
    ("peer_memory", {"fewest": 8}, {"num_gpus": 8, "checkpoint_scheme": "in_memory_peer"}),
    ("peer_memory", {"fewest": 8}, {"num_gpus": 8, "checkpoint_scheme": "tiered"}),
    ("peer_memory", {"saves": {"peer_copies": 3}}, {"num_gpus": 16, "checkpoint_scheme": "gemini"}),
    ("live_replica", {}, {**ONE_REPLICA, "zero_stage": 0, "checkpoint_scheme": "just_in_time"}),
    ("live_replica", {}, {**ONE_REPLICA, "zero_stage": 0, "checkpoint_scheme": "replica_ft"}),
    ("live_replica", {}, {"num_gpus": 16, "zero_stage": 1, "checkpoint_scheme": "torchft"}),
    (
        "live_replica",
        {},
        {"num_gpus": 16, "zero_stage": 3, "shard_ranks": 16, "checkpoint_scheme": "torchft"},
    ),
    # Eight replicas of all else hold one set of experts between them.
    (
        "live_replica",
        MIXTRAL,
        {
            "num_gpus": 16,
            "pipeline_parallel": 2,
            "expert_parallel": 8,
            "zero_stage": 0,
            "checkpoint_scheme": "torchft",
        },
    ),
    ("gradient_mirror", {}, {**ONE_REPLICA, "checkpoint_scheme": "gradient_replica"}),
    ("gradient_mirror", {}, {"num_gpus": 16, "zero_stage": 3, "checkpoint_scheme": "flowcheck"}),
    # 16 bytes x 8.03e9 weights do not fit into 100 GB.
    (
        "server_memory",
        {"saves": {"num_servers": 1, "server_memory_bytes": 100e9}},
        {"num_gpus": 16, "checkpoint_scheme": "gradient_replica"},
    ),
]


def breaking_job(changes: Mapping[str, object], row: Mapping[str, object]) -> Job:
    offer = {**(ANY_A100 if "offer" in changes else H100_RENTED)}
    offer["num_gpus"] = {"min": changes.get("fewest", 16), "max": 128}
    offer["max_nodes"] = changes.get("most_nodes")
    workload = changes.get("workload", {})
    assert isinstance(workload, Mapping)
    saves = changes.get("saves", {})
    job = job_with(offer, workload={"global_batch_size": 192, **workload}, checkpointing=saves)
    if "gpus_per_node" not in row:
        return job
    node = job.offers[0].node.model_copy(update={"num_accelerators": row["gpus_per_node"]})
    return job.model_copy(update={"offers": (job.offers[0].model_copy(update={"node": node}),)})


@pytest.mark.parametrize(("name", "changes", "row"), BREAKING)
def test_a_layout_that_breaks_one_rule_is_told_which(
    name: str, changes: Mapping[str, object], row: Mapping[str, object]
) -> None:
    job = breaking_job(changes, row)
    layout = {key: value for key, value in row.items() if key != "gpus_per_node"}
    assert broken_rules(job, layout) == {name}
    assert not is_valid_layout(job, plans_with(layout))[0]


@pytest.mark.parametrize("group_size", [2, 3, 5, 7, 11, 22, 24])
def test_groups_that_leave_no_stage_without_work_are_valid(group_size: int) -> None:
    job = breaking_job({}, {})
    assert broken_rules(job, {**INTERLEAVED, "interleaved_group_size": group_size}) == set()


def test_groups_let_micro_batches_be_of_any_number() -> None:
    # 192 sequences over 64 replicas are three micro-batches, which two stages do not divide.
    layout = {**INTERLEAVED, "num_gpus": 128}
    job = breaking_job({}, {})
    assert broken_rules(job, layout) == {"interleaving"}
    assert broken_rules(job, {**layout, "interleaved_group_size": 3}) == set()


def test_every_rule_is_broken_by_some_test() -> None:
    assert {name for name, _, _ in BREAKING} == {rule.name for rule in LAYOUT_RULES}


@pytest.mark.parametrize(
    ("workload", "layout"),
    [
        # Two heads for keys and values on each of four tensor-parallel ranks, two ranks to exchange them.
        ({"context_exchange": "all_to_all"}, {"num_gpus": 64, "tensor_parallel": 4, "context_parallel": 2}),
        # Four ranks inside a node of eight, a ring of two between nodes.
        ({"context_exchange": "hybrid"}, {"num_gpus": 64, "tensor_parallel": 2, "context_parallel": 8}),
        ({"model": "mistral-7b"}, {"num_gpus": 64, "context_parallel": 4}),
        ({"context_exchange": "all_gather", "model": "mistral-7b"}, {"num_gpus": 64, "context_parallel": 4}),
        ({"context_exchange": "all_to_all", "model": "mistral-7b"}, {"num_gpus": 64, "context_parallel": 4}),
        # Latent attention expands keys and values to its 128 heads.
        (
            {"context_exchange": "all_to_all", "model": "deepseek-v3"},
            {"num_gpus": 64, "pipeline_parallel": 8, "context_parallel": 8, "tensor_parallel": 1},
        ),
    ],
)
def test_whole_heads_can_be_exchanged(workload: Mapping[str, object], layout: Mapping[str, object]) -> None:
    job = breaking_job({"workload": workload}, layout)
    assert "context_exchange" not in broken_rules(job, layout)


def test_zb_v_needs_no_whole_groups_of_micro_batches() -> None:
    layout = {"num_gpus": 128, "pipeline_parallel": 4, "virtual_pipeline": 2}
    job = breaking_job({}, layout)
    assert broken_rules(job, layout) == {"interleaving"}  # six micro-batches on four stages
    assert broken_rules(job, {**layout, "pipeline_schedule": "zb_v"}) == set()


def test_dual_pipe_v_needs_two_micro_batches_for_each_stage() -> None:
    # deepseek-ai/DualPipe, dualpipev.py: `num_chunks >= num_ranks * 2`.
    layout = {
        "num_gpus": 128,
        "pipeline_parallel": 4,
        "virtual_pipeline": 2,
        "pipeline_schedule": "dual_pipe_v",
    }
    job = breaking_job({}, layout)
    assert broken_rules(job, layout) == {"interleaving"}  # six micro-batches on four stages
    few = {**layout, "num_gpus": 64}
    assert broken_rules(breaking_job({}, few), few) == set()  # twelve


def test_without_sequence_parallelism_tensor_ranks_need_not_divide_the_sequence() -> None:
    job = job_with(workload={"sequence_length": 8190, "has_sequence_parallel": False})
    assert broken_rules(job, {"num_gpus": 16, "tensor_parallel": 4}) == set()


def test_v100_computes_16_bits_as_fp16_but_not_as_bf16() -> None:
    offer = {"accelerator": "v100-sxm2-32gb", "num_gpus": {"min": 8, "max": 64}, "rent_usd_per_gpu_hour": 0.8}
    job = job_with(offer, workload={"precisions": ["fp16", "bf16"]})
    (rule,) = [rule for rule in LAYOUT_RULES if rule.name == "number_format"]
    assert broken_rules(job, {"num_gpus": 64, "precision": "bf16"}) == {rule.name}
    assert "only fp16" in rule.sentence
    assert broken_rules(job, {"num_gpus": 64, "precision": "fp16"}) == set()


def test_copies_in_the_memory_of_a_peer_need_no_third_node() -> None:
    job = job_with({**H100_RENTED, "num_gpus": {"min": 8, "max": 64}})
    for scheme in CheckpointScheme:  # two replicas of everything on two nodes
        layout = {"num_gpus": 16, "zero_stage": 0, "checkpoint_scheme": scheme}
        assert broken_rules(job, layout) == set()


def test_a_scheme_can_be_had_where_its_rules_are_kept() -> None:
    job = job_with({**H100_RENTED, "num_gpus": {"min": 8, "max": 64}})
    plans = plans_with(
        {"num_gpus": 8, "zero_stage": 0},
        {"num_gpus": 16, "zero_stage": 0},
        {"num_gpus": 16, "zero_stage": 3},
        {**ONE_REPLICA, "zero_stage": 0},
        {"num_gpus": 16, "zero_stage": 3, "shard_ranks": 8},  # two shard groups with a copy each
    )
    can_have = {scheme: can_save_by(job, plans, [scheme])[:, 0].tolist() for scheme in CheckpointScheme}
    assert can_have.pop(CheckpointScheme.IN_MEMORY_PEER) == [False, True, True, True, True]
    assert can_have.pop(CheckpointScheme.TIERED) == [False, True, True, True, True]
    assert can_have.pop(CheckpointScheme.JUST_IN_TIME) == [True, True, False, False, True]
    assert can_have.pop(CheckpointScheme.REPLICA_FT) == [True, True, False, False, True]
    assert can_have.pop(CheckpointScheme.GRADIENT_REPLICA) == [True, True, False, False, False]
    assert list(can_have.values()) == [[True] * 5] * len(can_have)


def test_latent_attention_has_no_groups_of_heads_to_split() -> None:
    job = job_with({**H100_RENTED, "num_gpus": 64}, workload={"model": "deepseek-v3"})
    model = job.workload.model.model_copy(update={"num_kv_heads": 1})
    job = job.model_copy(update={"workload": job.workload.model_copy(update={"model": model})})
    assert "attention_heads" not in broken_rules(job, {"num_gpus": 64, "tensor_parallel": 32})


def test_the_farther_from_a_rule_the_larger_the_excess() -> None:
    job = job_with({**H100_RENTED, "num_gpus": {"min": 32, "max": 64}}, workload={"global_batch_size": 16})
    plans = plans_with(*({"num_gpus": count} for count in (8, 16, 32, 64, 128, 256)))
    excess = layout_excess(job, plans)
    names = [rule.name for rule in LAYOUT_RULES]
    gpu_range, batch = excess[:, names.index("gpu_range")], excess[:, names.index("batch")]
    np.testing.assert_allclose(
        gpu_range, [3.0, 1.0, 0.0, 0.0, 1.0, 3.0]
    )  # times too few or too many, less one
    assert np.all(np.diff(batch[1:]) > 0)


def test_each_rule_has_a_sentence_and_a_name_of_its_own() -> None:
    assert len({rule.name for rule in LAYOUT_RULES}) == len(LAYOUT_RULES)
    assert all(len(rule.sentence.split()) >= 4 for rule in LAYOUT_RULES)


class TestVisionEncoders:
    FIELDS: Mapping[str, object] = {
        "model": "qwen3-vl-8b",
        "images": {"tokens_per_image": 64, "per_sequence": 1},
    }

    def job(self, **images: object) -> Job:
        given = {"tokens_per_image": 64, "per_sequence": 1, **images}
        return job_with(ANY_H100, workload={**self.FIELDS, "images": given})

    def test_ranks_share_its_heads_and_columns(self) -> None:
        """16 heads and 4,304 columns on 32 ranks; 32 heads of the language model would do."""
        row = {"num_gpus": 64, "tensor_parallel": 32}
        assert broken_rules(self.job(), row) == {"attention_heads", "feed_forward"}
        alone = job_with(ANY_H100, workload={**self.FIELDS, "model": "qwen2.5-vl-72b"})
        assert broken_rules(alone, {"num_gpus": 64, "tensor_parallel": 32}) == set()

    @pytest.mark.parametrize("schedule", ["zb_h1", "1f1b"])
    @pytest.mark.parametrize(
        ("images", "excludes"),
        [
            ({}, False),
            ({"encoder_recompute": "selective"}, False),
            ({"encoder_recompute": "full"}, True),
            ({"encoder_recompute": "full", "trains_encoder": False}, False),
        ],
    )
    def test_late_weight_gradients_need_what_its_layers_keep(
        self, schedule: str, images: Mapping[str, object], excludes: bool
    ) -> None:
        row = {"num_gpus": 8, "pipeline_parallel": 4, "pipeline_schedule": schedule, "zero_stage": 1}
        broken = {"weight_gradients"} if excludes and schedule == "zb_h1" else set()
        assert broken_rules(self.job(**images), row) == broken
