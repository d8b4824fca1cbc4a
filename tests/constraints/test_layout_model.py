"""Does the model of layouts know the rules? Its solutions against the lattice, its conflicts against trying."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from constraints.lattice import enumerate_layouts
from constraints.layout_model import all_degrees, conflicting_rules, nearest_layout
from simulator.domain.job import Job
from tests.simulator.builders import changed
from tests.simulator.compressed import DENSE as COMPRESSED
from tests.simulator.hybrids import small_hybrid
from tests.simulator.vision import IMAGES, TOWER, with_tower
from tests.support import A100_RENTED, H100_RENTED, job_with

MIXTURE = {"model": "mixtral-8x7b", "global_batch_size": 32}
WINDOWS = {"model": "mistral-7b", "context_exchange": "ring"}
SEVERAL = {"pipeline_parallel": [2, 3, 4, 8, 12], "tensor_parallel": [1, 2], "context_parallel": [1]}
B200_RENTED = {**H100_RENTED, "accelerator": "b200-sxm-180gb"}
SCALED_BY_BLOCK = {"precisions": ["fp8"], "fp8_recipe": "mxfp8"}
FEW = {"pipeline_parallel": [1, 2], "context_parallel": [1]}
BY_NODES = {"hybrid_sharding": [True]}
ALONE_IN_STAGES = {"tensor_parallel": [1], "pipeline_parallel": [1]}


def two_groups(kind: str) -> dict[str, object]:
    """Blocks with a state whose keys have two heads."""
    model = small_hybrid(4, 4)
    assert model.linear_attention is not None
    linear = changed(model.linear_attention, kind=kind, num_key_heads=2)
    return {"model": changed(model, linear_attention=linear), "sequence_length": 49_152}


LINEAR, DELTA = two_groups("mamba-2"), two_groups("gated-delta-net")
TWELVE_HEADS = changed(TOWER, num_heads=12)
SEEING, ALONE = (
    {"model": with_tower(tower=tower), "images": IMAGES}
    for tower in (TWELVE_HEADS, changed(TWELVE_HEADS, is_replicated=True))
)
AGAIN = {"model": with_tower(), "images": changed(IMAGES, encoder_recompute="full")}
"""A vision encoder whose heads are dealt out to one, two or four ranks, and one that each of them has as a whole."""


def listed_degrees(job: Job) -> set[tuple[int, ...]]:
    """Degrees that the lattice enumerates."""
    found = enumerate_layouts(job)
    head = (found.offer, found.tensor_parallel, found.pipeline_parallel, found.virtual_pipeline)
    tail = (found.context_parallel, found.expert_parallel, found.data_parallel, found.micro_batch_size)
    return set(map(tuple, np.column_stack([*head, *tail]).tolist()))


def exactly(num_gpus: int) -> dict[str, object]:
    return {**H100_RENTED, "num_gpus": num_gpus}


@pytest.mark.short(8)
@pytest.mark.parametrize(
    "job",
    [
        job_with(),
        job_with(H100_RENTED, A100_RENTED),
        job_with(search={"tensor_parallel": [1, 2, 3, 8], "pipeline_parallel": [1, 2, 3, 5], "virtual_pipeline": [1, 2]}),
        job_with(workload={"sequence_length": 12_288}, search={"context_parallel": [1, 2, 3, 4]}),
        job_with(workload=MIXTURE, search=FEW),
        job_with(workload={**MIXTURE, "expert_tensor_parallel": 4}, search=FEW),
        job_with(workload={"has_sequence_parallel": False, "sequence_length": 4100}),
        job_with(workload={"context_exchange": "hybrid", "sequence_length": 65_536}, search={"context_parallel": [2, 8, 16]}),
        job_with(workload={"context_exchange": "all_to_all", "sequence_length": 8192}, search={**FEW, "context_parallel": [2]}),
        job_with(workload={**WINDOWS, "sequence_length": 65_536}, search={"context_parallel": [1, 2]}),
        job_with(search={"pipeline_schedules": ["1f1b", "dual_pipe_v"], "virtual_pipeline": [1, 2], **SEVERAL}),
        job_with(search={"interleaved_group_sizes": [4, 6, 7], "virtual_pipeline": [1, 2], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["1f1b", "dual_pipe_v"], "interleaved_group_sizes": [3, 8],
                         "virtual_pipeline": [1, 2], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["dual_pipe_v"], "virtual_pipeline": [2], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["1f1b", "zb_v"], "virtual_pipeline": [1, 2], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["1f1b", "zb_v"], "virtual_pipeline": [1, 2, 4], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["gpipe", "zb_h1", "zb_v"], "zero_stages": [1, 3], **SEVERAL}),
        job_with(search={"pipeline_schedules": ["1f1b", "zb_h1"], "recompute": ["full"], **SEVERAL}),
        job_with(H100_RENTED, B200_RENTED, workload=SCALED_BY_BLOCK, search=FEW),
        job_with(workload=LINEAR, search={"context_parallel": [1, 2, 3, 4, 8]}),
        job_with(workload=DELTA, search={"context_parallel": [1, 2, 3, 4, 8]}),
        job_with(workload={"model": COMPRESSED}, search={"context_parallel": [1, 2], "tensor_parallel": [1, 2, 4]}),
        job_with(workload=SEEING, search={"tensor_parallel": [1, 2, 4, 8, 16]}),
        job_with(workload=ALONE, search={"tensor_parallel": [1, 2, 4, 8, 16]}),
        job_with(workload=AGAIN, search={"pipeline_schedules": ["1f1b", "zb_h1"], **SEVERAL}),
        job_with(H100_RENTED, A100_RENTED, search={**BY_NODES, "context_parallel": [1, 2, 4], "zero_stages": [3]}),
        job_with(workload=MIXTURE, search={**BY_NODES, "zero_stages": [1], "tensor_parallel": [1, 2, 3], **FEW}),
        job_with(search={"hybrid_sharding": [True, False], "zero_stages": [3]}),
    ],
    ids=["default", "two offers", "lists", "context", "experts", "parts of experts", "odd sequence", "hybrid", "heads",
         "windows", "pairs", "groups", "groups and pairs", "pairs alone", "to and fro", "chunks for one schedule",
         "schedules without groups", "weight gradients", "scales of blocks", "linear attention", "delta rule",
         "compressed tokens", "heads of an encoder", "a replicated encoder", "a recomputed encoder", "shard groups",
         "shard groups of experts", "with and without shard groups"],
)  # fmt: skip
def test_the_solver_finds_exactly_the_layouts_that_are_enumerated(job: Job) -> None:
    listed = listed_degrees(job)
    assert listed
    assert all_degrees(job) == listed


@pytest.mark.parametrize(
    ("offer", "workload", "search", "rules"),
    [
        # 24 replicas of TP 1 do not divide 64 sequences.
        (exactly(24), {}, {"tensor_parallel": [1], "pipeline_parallel": [1]}, ("gpu_range", "batch")),
        # Seven ranks divide 14,336 columns, but not 32 heads.
        (exactly(56), {}, {"tensor_parallel": [7]}, ("attention_heads",)),
        # 32 layers do not fill 36 chunks.
        (H100_RENTED, {}, {"pipeline_parallel": [4], "virtual_pipeline": [9]}, ("layers",)),
        # A sequence of 4,099 tokens, a prime, is never split.
        (H100_RENTED, {"sequence_length": 4099}, {"context_parallel": [2]}, ("sequence",)),
        # Eight heads for keys and values are not dealt out to sixteen ranks.
        (H100_RENTED, {"context_exchange": "all_to_all"}, {"context_parallel": [16]}, ("context_exchange",)),
        # Several chunks need several stages, and a V needs two of them on each.
        (H100_RENTED, {}, {"pipeline_parallel": [1], "virtual_pipeline": [2]}, ("interleaving",)),
        (H100_RENTED, {}, {"pipeline_schedules": ["zb_v"], "pipeline_parallel": [1]}, ("schedule",)),
        (H100_RENTED, {}, {"pipeline_schedules": ["gpipe"], "virtual_pipeline": [2]}, ("schedule",)),
        # Late weight gradients read activations that a layer computed again no longer has.
        (H100_RENTED, {}, {"pipeline_schedules": ["zb_h1"], "recompute": ["full"]}, ("weight_gradients",)),
        (H100_RENTED, {}, {"pipeline_schedules": ["zb_v"], "zero_stages": [2, 3]}, ("weight_gradients",)),
        # Two groups of keys are not dealt out to four ranks.
        (H100_RENTED, LINEAR, {"tensor_parallel": [4]}, ("attention_heads",)),
        # 64 heads on three ranks.
        (H100_RENTED, LINEAR, {"context_parallel": [3]}, ("context_exchange",)),
        # Four ranks have copies of two groups of keys with Mamba-2 alone.
        (H100_RENTED, LINEAR, {"context_parallel": [4]}, ()),
        (H100_RENTED, DELTA, {"context_parallel": [4]}, ("context_exchange",)),
        # Four chunks on a stage are no V, and one micro-batch is no group of eight.
        (H100_RENTED, {}, {"pipeline_schedules": ["1f1b", "zb_v"], "pipeline_parallel": [8], "virtual_pipeline": [4],
                           "micro_batch_sizes": [64]}, ("interleaving", "schedule")),
        (H100_RENTED, {}, {"pipeline_parallel": [4], "virtual_pipeline": [2], "tensor_parallel": [1]}, ()),
        # 32 ranks are four times what is on offer, and 40 stages more than there are layers, however many are on offer.
        (exactly(8), {}, {"pipeline_parallel": [4], "tensor_parallel": [8]}, ("gpu_range",)),
        (exactly(8), {}, {"pipeline_parallel": [40]}, ("layers",)),
        (exactly(8), {"sequence_length": 4099}, {"context_parallel": [16]}, ("sequence",)),
        # Three sequences are no micro-batch of eight, and sixteen ranks no shares of eight experts.
        (exactly(8), {"global_batch_size": 3}, {"micro_batch_sizes": [8]}, ("batch",)),
        (exactly(8), MIXTURE, {"expert_parallel": [16]}, ("experts",)),
        # 24 replicas do not divide 64 sequences, but no number of them updates whole matrices under ZeRO-3, or in fp16.
        (exactly(24), {"muon": {}}, {**ALONE_IN_STAGES, "zero_stages": [3]}, ("whole_matrices",)),
        (exactly(24), {"muon": {}, "precisions": ["fp16"]}, ALONE_IN_STAGES, ("whole_matrices",)),
        (exactly(24), {"muon": {}}, {**ALONE_IN_STAGES, "hybrid_sharding": [True]}, ("whole_matrices",)),
        (exactly(24), {}, {**ALONE_IN_STAGES, "hybrid_sharding": [True], "zero_stages": [0]}, ("shard_groups",)),
        # Three ranks of a sequence have no part in groups of eight.
        (exactly(24), {"sequence_length": 12_288}, {"tensor_parallel": [1], "context_parallel": [3], "pipeline_parallel": [1],
                                                    "hybrid_sharding": [True]}, ("shard_groups",)),
        # Eight stages of a group of eight ranks each take 64.
        (exactly(32), {}, {"tensor_parallel": [1], "pipeline_parallel": [8], "hybrid_sharding": [True]},
         ("gpu_range", "shard_groups")),
        # Eight experts on sixteen ranks each take 128.
        (exactly(32), {**MIXTURE, "expert_tensor_parallel": 16}, {"expert_parallel": [8]}, ("gpu_range", "experts")),
    ],
)  # fmt: skip
def test_the_rules_at_fault_are_named(
    offer: Mapping[str, object],
    workload: Mapping[str, object],
    search: Mapping[str, object],
    rules: tuple[str, ...],
) -> None:
    job = job_with(offer, workload=workload, search={"micro_batch_sizes": [1], **search})
    assert conflicting_rules(job) == rules
    assert (len(enumerate_layouts(job)) == 0) == bool(rules)


def test_a_recipe_that_no_accelerator_has_is_at_fault_where_a_job_was_not_read_from_a_file() -> None:
    # Hopper has no scales for blocks; files with such a job are refused.
    job = job_with(H100_RENTED, workload={"precisions": ["fp8"]})
    job = changed(job, workload=changed(job.workload, fp8_recipe="mxfp8"))
    assert conflicting_rules(job) == ("number_format",)
    assert len(enumerate_layouts(job)) == 0


def test_the_nearest_cluster_and_batch_have_layouts_and_none_is_nearer() -> None:
    search = {
        "tensor_parallel": [1, 2],
        "pipeline_parallel": [1],
        "context_parallel": [1],
        "micro_batch_sizes": [1],
    }
    found = nearest_layout(job_with(exactly(56), search=search))
    # 64 sequences go over 1, 2, 4 ... 64 replicas of one or two GPUs: 64 GPUs are the nearest in whole nodes.
    assert found.num_gpus == 64
    # 56 GPUs are 56 or 28 replicas; of the multiples of 28, 56 is nearer to 64 than 84.
    assert found.global_batch_size == 56
    for num_gpus in (48, 56):
        assert len(enumerate_layouts(job_with(exactly(num_gpus), search=search))) == 0
    assert len(enumerate_layouts(job_with(exactly(64), search=search))) > 0
    batch = {"global_batch_size": 56}
    assert len(enumerate_layouts(job_with(exactly(56), workload=batch, search=search))) > 0


def test_the_nearest_cluster_may_be_many_times_what_is_on_offer() -> None:
    job = job_with(exactly(8), search={"tensor_parallel": [8], "pipeline_parallel": [4]})
    assert nearest_layout(job).num_gpus == 32


def test_the_nearest_cluster_holds_whole_shard_groups() -> None:
    search = {"tensor_parallel": [1], "pipeline_parallel": [8], "hybrid_sharding": [True]}
    for num_gpus in (8, 32):  # 8 stages, and on each a group of the 8 ranks of a node
        assert nearest_layout(job_with(exactly(num_gpus), search=search)).num_gpus == 64


def test_what_does_not_help_is_not_proposed() -> None:
    job = job_with(search={"tensor_parallel": [7]})
    assert (nearest_layout(job).num_gpus, nearest_layout(job).global_batch_size) == (None, None)
