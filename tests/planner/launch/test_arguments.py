"""With which arguments does Megatron-LM run a plan?"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.megatron_arguments import JOBS, NAMES, drawn, job_of
from constraints.best_cut import present_cut
from planner.launch.answer import launch_plan
from planner.launch.arguments import argument
from planner.launch.as_run import as_run
from simulator.catalog import model
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from tests.support import job_with

PLAN = {"tp": 2, "pp": 2, "dp": 8}
"""The plan of most tests: 32 accelerators on four nodes."""


def values(job: Job, plan: Mapping[str, object]) -> dict[str, str]:
    """Returns the arguments by name; those with several values are joined."""
    groups = launch_plan(job, plan).arguments
    return {each.name: " ".join(each.values) for group in groups for each in group.arguments}


def test_a_dense_plan_has_the_arguments_of_its_network_layout_and_batch() -> None:
    found = values(job_with(), {**PLAN, "micro_batch_size": 2})
    expected = {
        "--num-layers": "32",
        "--hidden-size": "4096",
        "--ffn-hidden-size": "14336",
        "--num-attention-heads": "32",
        "--num-query-groups": "8",
        "--kv-channels": "128",
        "--padded-vocab-size": "128256",
        "--max-position-embeddings": "8192",
        "--position-embedding-type": "rope",
        "--tensor-model-parallel-size": "2",
        "--pipeline-model-parallel-size": "2",
        "--context-parallel-size": "1",
        "--seq-length": "8192",
        "--micro-batch-size": "2",
        "--global-batch-size": "64",
        "--train-iters": "95367",  # 5e10 tokens in steps of 64 x 8,192
        "--eval-iters": "0",
    }
    assert {name: found[name] for name in expected} == expected
    flags = {
        "--swiglu",
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        "--sequence-parallel",
    }
    flags |= {"--bf16", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"}
    assert {name for name in flags if found[name] == ""} == flags
    assert not any(name.startswith(("--moe", "--num-experts", "--recompute", "--fp8")) for name in found)


@pytest.mark.parametrize(("trained", "has_experts"), [("llama-3.1-8b", False), ("mixtral-8x7b", True)])
def test_arguments_stand_under_headings_none_of_which_is_empty(trained: str, *, has_experts: bool) -> None:
    groups = launch_plan(job_with(workload={"model": trained}), PLAN).arguments
    assert all(group.arguments for group in groups)
    assert ("Experts" in [group.title for group in groups]) == has_experts


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"recompute": "selective"},
            {"--recompute-granularity": "selective", "--recompute-modules": "core_attn"},
        ),
        (
            {"recompute": "full"},
            {
                "--recompute-granularity": "full",
                "--recompute-method": "uniform",
                "--recompute-num-layers": "1",
            },
        ),
        (
            {"recompute": "full", "recompute_num_layers": 3},
            {"--recompute-method": "block", "--recompute-num-layers": "3"},
        ),
        ({"virtual_pipeline": 4}, {"--num-virtual-stages-per-pipeline-rank": "4"}),
        ({"virtual_pipeline": 3}, {"--pipeline-model-parallel-layout": "Et*5|(t*5|)*2(t*6|)*2t*5L"}),
        (
            {"virtual_pipeline": 4, "interleaved_group_size": 4},
            {"--microbatch-group-size-per-virtual-pipeline-stage": "4"},
        ),
        ({"zero_stage": 0}, {"--use-distributed-optimizer": None, "--overlap-param-gather": None}),
        ({"shard_ranks": 4}, {"--num-distributed-optimizer-instances": "2"}),
        ({"shard_ranks": 4, "cp": 2, "pp": 1}, {"--num-distributed-optimizer-instances": "4"}),
        ({"shard_ranks": 8}, {"--num-distributed-optimizer-instances": None}),
        ({"checkpoint_scheme": "none"}, {"--save": None, "--ckpt-format": "torch_dist"}),
        (
            {"checkpoint_scheme": "sync", "zero_stage": 0},
            {"--no-ckpt-fully-parallel-save": "", "--async-save": None},
        ),
        (
            {"checkpoint_scheme": "sync_sharded"},
            {
                "--no-ckpt-fully-parallel-save": None,
                "--async-save": None,
                "--use-persistent-ckpt-worker": None,
                "--ckpt-fully-parallel-load": "",
            },
        ),
        (
            {"checkpoint_scheme": "async"},
            {
                "--async-save": "",
                "--use-persistent-ckpt-worker": "",
                "--async-strategy": "mcore",
                "--non-persistent-ckpt-type": None,
                "--no-ckpt-fully-parallel-save": None,
            },
        ),
        (
            {"checkpoint_scheme": "local_nvme"},
            {
                "--non-persistent-ckpt-type": "local",
                "--replication": None,
                "--async-save": "",
                "--use-persistent-ckpt-worker": "",
                "--async-strategy": None,
            },
        ),
        (
            {"checkpoint_scheme": "in_memory_peer"},
            {"--replication": "", "--replication-jump": "8", "--replication-factor": "2"},
        ),
    ],
)
def test_decisions_of_a_plan_become_arguments(
    fields: dict[str, object], expected: dict[str, str | None]
) -> None:
    found = values(job_with(), {**PLAN, **fields})
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({}, {"--tp-comm-overlap": None, "--cross-entropy-loss-fusion": None, "--cuda-graph-impl": None}),
        ({"has_sequence_parallel": False}, {"--sequence-parallel": None}),
        ({"overlaps_tensor_comm": True}, {"--tp-comm-overlap": ""}),
        ({"overlaps_gradient_sync": False}, {"--overlap-grad-reduce": None, "--overlap-param-gather": None}),
        ({"overlaps_parameter_gather": False}, {"--overlap-grad-reduce": "", "--overlap-param-gather": None}),
        ({"gradient_bytes": 2}, {"--grad-reduce-in-bf16": ""}),
        ({"checks_gradients": False}, {"--no-check-for-nan-in-loss-and-grad": ""}),
        ({"divides_gradients": False}, {"--ddp-average-in-collective": ""}),
        ({"bucket_weights": 2e8}, {"--ddp-bucket-size": "200000000"}),
        ({"optimizer_bytes": 10}, {"--use-precision-aware-optimizer": "", "--exp-avg-dtype": None}),
        ({"optimizer_bytes": 6}, {"--exp-avg-dtype": "bf16", "--exp-avg-sq-dtype": "bf16"}),
        (
            {"optimizer_offload_fraction": 0.25},
            {
                "--use-precision-aware-optimizer": "",
                "--optimizer-cpu-offload": "",
                "--optimizer-offload-fraction": "0.25",
                "--overlap-cpu-optimizer-d2h-h2d": "",
            },
        ),
        ({"attention": "flash-2"}, {"--attention-backend": "flash", "--flash-attention-version": "2"}),
        ({"attention": "unfused"}, {"--attention-backend": "unfused"}),
        ({"kernel_launch": "graph"}, {"--cuda-graph-impl": "transformer_engine"}),
        ({"logit_bytes": 4}, {"--cross-entropy-loss-fusion": ""}),
        ({"documents": {"mean_tokens": 1000}}, {"--dataloader-inter-document-masking": ""}),
        (
            {"evaluation_every_steps": 500, "evaluation_sequences": 128},
            {"--eval-interval": "500", "--eval-iters": "2"},
        ),
        ({"stage_layers": "balanced"}, {"--pipeline-model-parallel-layout": None}),
        ({"stage_layers": [15, 17]}, {"--pipeline-model-parallel-layout": "Et*15|t*17L"}),
        ({"recompute_modules": ["core_attn", "mlp"]}, {"--recompute-modules": None}),
    ],
)
def test_settings_of_the_workload_become_arguments(
    workload: dict[str, object], expected: dict[str, str | None]
) -> None:
    found = values(job_with(workload=workload), PLAN)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("workload", "precision", "expected"),
    [
        ({}, "fp16", {"--fp16": "", "--bf16": None, "--accumulate-allreduce-grads-in-fp32": ""}),
        (
            {"gradient_bytes": 2},
            "fp16",
            {"--grad-reduce-in-bf16": None, "--accumulate-allreduce-grads-in-fp32": None},
        ),
        ({}, "fp8", {"--bf16": "", "--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"}),
        ({"fp8_recipe": "blockwise"}, "fp8", {"--fp8-format": "e4m3", "--fp8-recipe": "blockwise"}),
        (
            {},
            "fp4",
            {"--bf16": "", "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4", "--fp8-format": None},
        ),
        (
            {"gathers_cast_weights": True},
            "fp8",
            {"--fp8-param-gather": "", "--reuse-grad-buf-for-mxfp8-param-ag": None},
        ),
    ],
)
def test_number_formats_become_arguments(
    workload: dict[str, object], precision: str, expected: dict[str, str | None]
) -> None:
    chip = "b200-sxm-180gb" if precision == "fp4" else "h100-sxm5-80gb"
    job = job_with({"accelerator": chip, "num_gpus": 32}, workload={"precisions": [precision], **workload})
    found = values(job, {**PLAN, "precision": precision})
    assert {name: found.get(name) for name in expected} == expected


def test_mxfp8_weights_are_gathered_through_the_buffer_of_gradients() -> None:
    """Blocks by rows are not those by columns: 16 bits are gathered (docs/model/kernels.md)."""
    recipe = {"precisions": ["fp8"], "fp8_recipe": "mxfp8", "gathers_cast_weights": True}
    job_offer = {"accelerator": "b200-sxm-180gb", "num_gpus": 32}
    job = job_with(job_offer, workload=recipe)
    whole = values(job, {**PLAN, "precision": "fp8"})
    assert whole["--reuse-grad-buf-for-mxfp8-param-ag"] == whole["--fp8-param-gather"] == ""
    assert (whole["--fp8-format"], whole["--fp8-recipe"]) == ("e4m3", "mxfp8")
    in_16_bits = job_with(job_offer, workload={**recipe, "gathers_cast_weights": False})
    assert "--reuse-grad-buf-for-mxfp8-param-ag" not in values(in_16_bits, {**PLAN, "precision": "fp8"})
    sharded = values(job, {"tp": 2, "dp": 16, "zero_stage": 3, "precision": "fp8"})
    assert "--reuse-grad-buf-for-mxfp8-param-ag" not in sharded


def test_sharded_gradients_have_the_format_of_the_job() -> None:
    """Megatron-FSDP takes that of the weights unless it is told another."""
    plan = {"tp": 2, "dp": 16, "zero_stage": 3}
    assert values(job_with(), plan)["--megatron-fsdp-main-grads-dtype"] == "fp32"
    halved = values(job_with(workload={"gradient_bytes": 2}), plan)
    assert "--megatron-fsdp-main-grads-dtype" not in halved
    assert "--megatron-fsdp-main-grads-dtype" not in values(job_with(), PLAN)


def test_graphs_need_buffers_that_stay_where_they_are() -> None:
    job = job_with(workload={"kernel_launch": "graph"})
    assert values(job, {"tp": 2, "dp": 16, "zero_stage": 3})["--fsdp-double-buffer"] == ""
    assert "--fsdp-double-buffer" not in values(job, PLAN)


def test_activations_of_so_many_layers_are_offloaded() -> None:
    job = job_with(workload={"activation_offload_fraction": 0.5})
    assert values(job, {"tp": 2, "dp": 16})["--cpu-offloading-num-layers"] == "16"  # of 32
    assert "--cpu-offloading-num-layers" not in values(job_with(), {"tp": 2, "dp": 16})


def test_a_rank_alone_has_no_tensor_parallel_traffic() -> None:
    found = values(job_with(workload={"overlaps_tensor_comm": True}), {"dp": 32})
    assert not {"--tp-comm-overlap", "--sequence-parallel"} & found.keys()


def test_sharded_weights_are_those_of_megatron_fsdp_in_its_own_format() -> None:
    job = job_with()
    for stage, strategy in ((2, "optim_grads"), (3, "optim_grads_params")):
        found = values(job, {"tp": 2, "dp": 16, "zero_stage": stage})
        assert found["--data-parallel-sharding-strategy"] == strategy
        assert ("--init-model-with-meta-device" in found) is (stage == 3)
        assert {"--use-megatron-fsdp", "--use-distributed-optimizer"} <= found.keys()
        assert found["--ckpt-format"] == "fsdp_dtensor"
        assert "--ckpt-fully-parallel-load" not in found


@pytest.mark.parametrize(
    ("accelerator", "plan", "workload", "limit"),
    [
        ("h100-sxm5-80gb", {"tp": 2, "dp": 16}, {}, "1"),
        ("h100-sxm5-80gb", {"cp": 2, "dp": 16}, {}, "1"),
        ("h100-sxm5-80gb", {"dp": 32}, {}, None),
        ("h100-sxm5-80gb", {"tp": 2, "dp": 16, "zero_stage": 3}, {}, None),
        ("b200-sxm-180gb", {"tp": 2, "dp": 16}, {}, None),
        (
            "h100-sxm5-80gb",
            {"tp": 2, "dp": 16, "ep": 4},
            {"model": "mixtral-8x7b", "overlaps_expert_exchange": True},
            "32",
        ),
        ("h100-sxm5-80gb", {"tp": 2, "dp": 16}, {"overlaps_expert_exchange": True}, "1"),
        ("h100-sxm5-80gb", {"dp": 32}, {"overlaps_expert_exchange": True}, None),
    ],
)
def test_launches_are_in_order_where_traffic_hides_behind_products(
    accelerator: str, plan: Mapping[str, object], workload: Mapping[str, object], limit: str | None
) -> None:
    """Its checks ask for it where ranks share layers, before Blackwell, and for 32 where exchanges of experts hide."""
    launch = launch_plan(job_with({"accelerator": accelerator, "num_gpus": 32}, workload=workload), plan)
    assert launch.environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == limit


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (None, {"--cp-comm-type": "p2p"}),
        ("all_gather", {"--cp-comm-type": "all_gather"}),
        ("gathered_ring", {"--cp-comm-type": "p2p"}),
        ("hybrid", {"--cp-comm-type": "a2a+p2p", "--hierarchical-context-parallel-sizes": "4 2"}),
    ],
)
def test_context_parallel_ranks_exchange_as_the_workload_says(
    exchange: str | None, expected: dict[str, str]
) -> None:
    """With TP 2 a link domain of eight has four context-parallel ranks, which exchange heads."""
    job = job_with(workload={"sequence_length": 32768, "context_exchange": exchange})
    found = values(job, {"tp": 2, "cp": 8, "dp": 2})
    assert {name: found.get(name) for name in expected} == expected


def test_ranks_that_exchange_heads_alone_have_one_level() -> None:
    job = job_with(workload={"sequence_length": 32768, "context_exchange": "all_to_all"})
    found = values(job, {"tp": 2, "cp": 4, "dp": 4})
    assert found["--cp-comm-type"] == "a2a"
    assert "--hierarchical-context-parallel-sizes" not in found


def test_experts_have_arguments_of_their_own() -> None:
    workload = {
        "model": "deepseek-v3",
        "expert_dispatch": "deduplicated",
        "overlaps_shared_experts": True,
        "expert_capacity_factor": 1.25,
        "fills_expert_rows": True,
        "global_batch_size": 256,
        "expert_tensor_parallel": 2,
        "precisions": ["bf16", "fp8"],
    }
    job = job_with({"accelerator": "h200-sxm-141gb", "num_gpus": 256}, workload=workload)
    plan = {"tp": 2, "pp": 4, "dp": 32, "ep": 16, "precision": "fp8"}
    found = values(job, plan)
    expected = {
        "--num-experts": "256",
        "--moe-router-topk": "8",
        "--moe-ffn-hidden-size": "2048",
        "--moe-layer-freq": "([0]*3+[1]*58)",
        "--moe-shared-expert-intermediate-size": "2048",
        "--moe-shared-expert-overlap": "",
        "--moe-router-num-groups": "8",
        "--moe-router-group-topk": "4",
        "--moe-token-dispatcher-type": "flex",
        "--moe-flex-dispatcher-backend": "deepep",
        "--moe-expert-capacity-factor": "1.25",
        "--moe-router-padding-for-quantization": "",
        "--expert-model-parallel-size": "16",
        "--expert-tensor-parallel-size": "2",
        "--multi-latent-attention": "",
        "--qk-layernorm": "",
        "--q-lora-rank": "1536",
        "--kv-lora-rank": "512",
        "--qk-head-dim": "128",
        "--qk-pos-emb-head-dim": "64",
        "--v-head-dim": "128",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not {"--kv-channels", "--num-query-groups", "--moe-router-pre-softmax"} & found.keys()
    in_16_bits = values(job, {**plan, "precision": "bf16"})
    assert "--moe-router-padding-for-quantization" not in in_16_bits


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_gated": True}, {"--disable-bias-linear": "", "--no-bias-dropout-fusion": None}),
        ({"is_gated": False}, {"--disable-bias-linear": "", "--no-bias-gelu-fusion": None}),
        (
            {"is_gated": True, "has_biases": True},
            {
                "--disable-bias-linear": None,
                "--no-bias-dropout-fusion": "",
                "--no-bias-gelu-fusion": None,
            },
        ),
        (
            {"is_gated": False, "has_biases": True},
            {
                "--disable-bias-linear": None,
                "--no-bias-dropout-fusion": "",
                "--no-bias-gelu-fusion": "",
            },
        ),
        ({"is_gated": True, "experts_per_token": 1}, {"--moe-router-pre-softmax": ""}),
    ],
)
def test_experts_have_the_biases_of_the_model_and_the_kernels_that_take_them(
    fields: dict[str, object], expected: dict[str, str | None]
) -> None:
    """`TEGroupedMLP` refuses biases beside fused dropout, and fuses no activation without a gate."""
    shape = model("mixtral-8x7b").model_dump(mode="json")
    is_gated, own = fields["is_gated"], {name: fields[name] for name in fields if name != "is_gated"}
    network = {**shape, "is_gated": is_gated, "experts": {**shape["experts"], **own}}
    found = values(job_with(workload={"model": network}), {"tp": 2, "dp": 16, "ep": 4})
    assert {name: found.get(name) for name in expected} == expected


def test_gates_of_attention_and_latents_of_experts_become_arguments() -> None:
    shape = model("mixtral-8x7b").model_dump(mode="json")
    network = {**shape, "has_output_gate": True, "experts": {**shape["experts"], "latent_size": 1024}}
    found = values(job_with(workload={"model": network}), {"tp": 2, "dp": 16, "ep": 4})
    assert (found["--attention-output-gate"], found["--moe-latent-size"]) == ("", "1024")
    plain = values(job_with(workload={"model": "mixtral-8x7b"}), {"tp": 2, "dp": 16, "ep": 4})
    assert {"--attention-output-gate", "--moe-latent-size"}.isdisjoint(plain)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt3-175b", {"--position-embedding-type": "learned_absolute", "--max-position-embeddings": "2048"}),
        ("gpt3-175b", {"--padded-vocab-size": "50264"}),  # 50,257 words, in eight equal parts
        ("gpt3-175b", {"--swiglu": None, "--disable-bias-linear": None, "--hidden-dropout": None}),
        ("gpt3-175b", {"--untie-embeddings-and-output-weights": None, "--group-query-attention": None}),
        ("gemma-2-27b", {"--window-size": "4095,0", "--window-attn-skip-freq": "2"}),
        ("qwen3-8b", {"--qk-layernorm": ""}),
        ("gpt-oss-120b", {"--disable-bias-linear": None, "--swiglu": ""}),
        ("gpt3-175b", {"--no-bias-dropout-fusion": None, "--no-bias-gelu-fusion": None}),
        ("mixtral-8x7b", {"--moe-layer-freq": None, "--moe-token-dispatcher-type": "alltoall"}),
        ("mistral-7b", {"--window-size": "4095,0", "--window-attn-skip-freq": None}),
        ("llama-2-7b", {"--group-query-attention": None, "--num-query-groups": None}),
        (
            "llama-3.1-8b",
            {"--normalization": "RMSNorm", "--hidden-dropout": "0", "--attention-dropout": "0"},
        ),
        (
            "deepseek-v2-lite",  # whole queries, two shared experts as one, experts in one group
            {
                "--q-lora-rank": None,
                "--kv-lora-rank": "512",
                "--moe-layer-freq": "([0]*1+[1]*26)",
                "--moe-shared-expert-intermediate-size": "2816",
                "--moe-shared-expert-overlap": None,
                "--moe-router-num-groups": None,
                "--moe-router-group-topk": None,
            },
        ),
    ],
)
def test_what_networks_have_becomes_arguments(name: str, expected: dict[str, str | None]) -> None:
    job = job_with(workload={"model": name, "sequence_length": 2048})
    found = values(job, {"tp": 8, "dp": 4})
    assert {each: found.get(each) for each in expected} == expected


def test_learned_positions_are_those_of_the_model_however_short_the_sequences() -> None:
    job = job_with(workload={"model": "gpt3-175b", "sequence_length": 1024})
    assert values(job, {"tp": 8, "dp": 4})["--max-position-embeddings"] == "2048"


@pytest.mark.parametrize(
    ("workload", "precision", "expected"),
    [
        (
            {"expert_dispatch": "deduplicated"},
            "bf16",
            {"--moe-token-dispatcher-type": "flex", "--moe-flex-dispatcher-backend": "deepep"},
        ),
        (
            {"expert_dispatch": "deduplicated", "gathers_routing_maps": True},
            "bf16",
            {"--moe-token-dispatcher-type": "flex", "--moe-flex-dispatcher-backend": "hybridep"},
        ),
        ({"overlaps_expert_exchange": True}, "bf16", {"--overlap-moe-expert-parallel-comm": ""}),
        ({"fills_expert_rows": True}, "bf16", {"--moe-router-padding-for-quantization": None}),
        ({"fills_expert_rows": True}, "fp8", {"--moe-router-padding-for-quantization": ""}),
        ({"fills_expert_rows": True}, "fp4", {"--moe-router-padding-for-quantization": ""}),
    ],
)
def test_tokens_travel_to_their_experts_as_the_workload_says(
    workload: dict[str, object], precision: str, expected: dict[str, str | None]
) -> None:
    own = {"model": "mixtral-8x7b", "precisions": [precision], **workload}
    job = job_with({"accelerator": "b200-sxm-180gb", "num_gpus": 32}, workload=own)
    found = values(job, {"tp": 2, "dp": 16, "ep": 4, "precision": precision})
    assert {name: found.get(name) for name in expected} == expected


def test_layers_with_experts_between_dense_ones_are_listed() -> None:
    shape = model("mixtral-8x7b").model_dump(mode="json")
    experts = {**shape["experts"], "layer_step": 2}
    job = job_with(workload={"model": {**shape, "num_layers": 4, "experts": experts}})
    assert values(job, {"tp": 2, "dp": 16, "ep": 2})["--moe-layer-freq"] == "([0,1,0,1])"
    unused = {**shape["experts"], "num_dense_layers": 4}
    job = job_with(workload={"model": {**shape, "num_layers": 4, "experts": unused}})
    assert values(job, {"tp": 2, "dp": 16})["--moe-layer-freq"] == "([0]*4+[1]*0)"


def test_norms_without_weights_and_multi_token_prediction_have_arguments() -> None:
    shape = ModelShape.model_validate(
        {**model("llama-3.1-8b").model_dump(), "qk_norm": "unweighted", "num_mtp_layers": 1}
    )
    found = values(job_with(workload={"model": shape.model_dump(mode="json")}), PLAN)
    assert found["--qk-l2-norm"] == ""
    assert found["--mtp-num-layers"] == "1"


def test_saves_are_counted_in_whole_steps() -> None:
    job = job_with()
    plan = {**PLAN, "checkpoint_scheme": "async"}
    step_s = launch_plan(job, plan).as_run.step_time_s
    found = launch_plan(job, {**plan, "checkpoint_interval_s": 100.2 * step_s})
    assert found.save_every_steps is not None
    assert 80 <= found.save_every_steps <= 100  # stragglers make steps longer than the step time
    often = {**PLAN, "checkpoint_scheme": "sync_sharded", "checkpoint_interval_s": 1e-3}
    assert values(job, often)["--save-interval"] == "1"


def test_local_saves_go_on_to_the_file_system_once_in_so_many() -> None:
    job = job_with(checkpointing={"persist_every": 7, "peer_copies": 4})
    found = values(job, {**PLAN, "checkpoint_scheme": "tiered"})
    assert int(found["--save-interval"]) == 7 * int(found["--non-persistent-save-interval"])
    assert found["--replication-factor"] == "4"


def test_local_saves_go_on_to_the_file_system_no_more_often_than_it_can_write_them() -> None:
    """Llama 3.1 70B has 70.55e9 weights of 14 bytes: 988 s at 1 GB/s, in which the nodes may save once a step."""
    job = job_with(
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 256},
        workload={"model": "llama-3.1-70b", "global_batch_size": 256},
        storage={"write_bytes_per_s": 1e9},
        checkpointing={"persist_every": 1},
        reliability={"preset": "typical", "straggler_log_mean": None},
    )
    plan = {"tp": 8, "pp": 4, "dp": 8, "checkpoint_scheme": "tiered"}
    step_s, found = launch_plan(job, plan).as_run.step_time_s, values(job, plan)
    every_steps, apart_steps = int(found["--non-persistent-save-interval"]), int(found["--save-interval"])
    assert 988.0 < apart_steps * step_s < 988.0 + 2.0 * every_steps * step_s


@pytest.mark.parametrize("scheme", ["sync_sharded", "async", "tiered"])
def test_a_job_saves_and_ends_before_the_queue_ends_it(scheme: str) -> None:
    """Llama 3.1 70B has 70.55e9 weights of 14 bytes: 988 s at 1 GB/s. Five minutes are left for processes to end."""
    job = job_with(
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 256},
        workload={"model": "llama-3.1-70b", "global_batch_size": 256},
        storage={"write_bytes_per_s": 1e9},
        reliability={"preset": "typical", "straggler_log_mean": None, "queue_limit_days": 0.5},
    )
    plan = {"tp": 8, "pp": 4, "dp": 8, "checkpoint_scheme": scheme}
    launch = launch_plan(job, plan)
    ends_s = 60.0 * int(values(job, plan)["--exit-duration-in-mins"])
    last_s = 43_200.0 - 300.0 - 988.0 - 2.0 * launch.as_run.step_time_s
    assert last_s - 75.0 < ends_s <= last_s  # whole minutes, and a stall
    assert launch.job_limit_s == 43_200.0
    assert any(remark.startswith("The queue ends jobs after 12.0 h") for remark in launch.remarks)
    assert not any("cannot end itself" in remark for remark in launch.remarks)


def test_without_saves_or_without_a_limit_nothing_ends_a_job() -> None:
    limited = job_with(reliability={"preset": "typical", "queue_limit_days": 1.0})
    assert "--exit-duration-in-mins" in values(limited, PLAN)
    assert "--exit-duration-in-mins" not in values(limited, {**PLAN, "checkpoint_scheme": "none"})
    assert "--exit-duration-in-mins" not in values(job_with(), PLAN)
    assert launch_plan(job_with(), PLAN).job_limit_s is None


def test_a_limit_that_leaves_no_time_lets_a_job_run_for_a_minute() -> None:
    job = job_with(reliability={"preset": "typical", "queue_limit_days": 0.001})
    assert values(job, PLAN)["--exit-duration-in-mins"] == "1"
    (told,) = (remark for remark in launch_plan(job, PLAN).remarks if "cannot end itself" in remark)
    assert told.endswith("leave less than a minute of reliability.queue_limit_days (86.4 s).")


def test_numbers_are_written_as_a_command_line_takes_them() -> None:
    assert argument("a", 1e-5, 2, 0.25, "x").values == ("1e-05", "2", "0.25", "x")


@pytest.mark.parametrize("name", JOBS)
def test_megatron_has_every_argument_of_drawn_plans(name: str) -> None:
    """The names were accepted by its own parser (`benchmarks.megatron_arguments`)."""
    with NAMES.open(encoding="utf-8") as file:
        known = {row["name"] for row in csv.DictReader(file)}
    found = [each.launch for each in drawn(name, 6, seed=3)]
    assert found
    for launch in found:
        names = [each.name for group in launch.arguments for each in group.arguments]
        assert len(set(names)) == len(names)
        assert set(names) <= known
        replaced = [each.field for each in launch.differences]
        assert len(set(replaced)) == len(replaced)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(JOBS)), st.integers(0, 1000))
def test_what_is_run_needs_no_replacement_and_has_all_layers(name: str, seed: int) -> None:
    job = job_of(name)
    for each in drawn(name, 1, seed):
        run = as_run(job, each.launch.plan)
        assert as_run(run.job, run.plan).differences == []
        cut = present_cut(run.job, run.plan)
        (layout,) = re.findall(r'"--pipeline-model-parallel-layout", "([^"]*)"', each.request) or [""]
        if layout and cut is not None:
            assert decoder_layers(layout) == list(cut)
        degrees = (run.plan.tensor_parallel, run.plan.pipeline_parallel, run.plan.context_parallel)
        assert int(np.prod(degrees)) * run.plan.data_parallel == each.launch.plan.num_gpus


def decoder_layers(layout: str) -> list[int]:
    """Reads a layout of Megatron Core: layers of every chunk."""
    flat = re.sub(r"\(([^)]*)\)\*(\d+)", lambda found: found[1] * int(found[2]), layout)
    flat = re.sub(r"t\*(\d+)", lambda found: "t" * int(found[1]), flat)
    return [chunk.count("t") for chunk in flat.split("|")]


def test_names_of_the_file_are_sorted_and_all_of_them_are_options() -> None:
    lines = Path(NAMES).read_text(encoding="utf-8").splitlines()[1:]
    assert lines == sorted(set(lines))
    assert all(line.startswith("--") for line in lines)
