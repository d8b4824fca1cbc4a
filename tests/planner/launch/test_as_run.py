"""What does Megatron-LM run in place of what it does not have?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from planner.launch.answer import Launch, launch_plan
from simulator.catalog import accelerator, model
from simulator.errors import InputError
from tests.simulator.hybrids import small_hybrid
from tests.support import job_with

PLAN = {"tp": 2, "pp": 2, "dp": 8}


def launched(plan: Mapping[str, object], **sections: object) -> Launch:
    return launch_plan(job_with(**sections), {**PLAN, **plan})


def replaced(launch: Launch) -> dict[str, tuple[str, str]]:
    """Returns what is asked for and what is run, by field."""
    return {each.field: (each.value, each.runs) for each in launch.differences}


def test_a_plan_that_megatron_has_runs_as_it_is() -> None:
    launch = launched({"checkpoint_scheme": "async"})
    assert launch.differences == ()
    assert launch.runs == launch.plan
    assert launch.as_run == launch.asked
    assert launch.power_limit_w is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pipeline_schedule": "gpipe"}, {"pipeline_schedule": ("gpipe", "1f1b")}),
        ({"pipeline_schedule": "zb_h1"}, {"pipeline_schedule": ("zb_h1", "1f1b")}),
        ({"pipeline_schedule": "zb_v", "virtual_pipeline": 2}, {"pipeline_schedule": ("zb_v", "1f1b")}),
        ({"zero_stage": 2}, {"zero_stage": ("2", "1")}),
        ({"zero_stage": 3}, {"zero_stage": ("3", "1")}),
        *(
            ({"checkpoint_scheme": scheme}, {"checkpoint_scheme": (scheme, "async")})
            for scheme in ("async_lazy", "gradient_assisted", "gradient_replica", "differential")
        ),
        *(
            (
                {"pp": 1, "dp": 16, "zero_stage": 3, "checkpoint_scheme": scheme},
                {"checkpoint_scheme": (scheme, "async")},
            )
            for scheme in ("local_nvme", "in_memory_peer", "tiered")
        ),
        *(({"pp": 1, "dp": 16, "zero_stage": stage}, {}) for stage in (0, 1, 2, 3)),
        *(
            ({"checkpoint_scheme": scheme}, {})
            for scheme in ("none", "sync_sharded", "local_nvme", "in_memory_peer", "tiered")
        ),
        ({"checkpoint_scheme": "sync", "zero_stage": 0}, {}),
        ({"checkpoint_scheme": "sync"}, {"checkpoint_scheme": ("sync", "sync_sharded")}),
    ],
)
def test_decisions_that_megatron_does_not_have_are_replaced(
    fields: dict[str, object], expected: dict[str, tuple[str, str]]
) -> None:
    assert replaced(launched(fields)) == expected


@pytest.mark.parametrize("scheme", ["just_in_time", "replica_ft"])
def test_schemes_that_live_on_other_replicas_are_replaced(scheme: str) -> None:
    fields = {"checkpoint_scheme": scheme, "zero_stage": 0, "checkpoint_interval_s": 1e5}
    launch = launched(fields)
    assert replaced(launch) == {"checkpoint_scheme": (scheme, "async")}
    assert launch.runs.checkpoint_interval_s is None  # the other scheme has an interval of its own


def test_chunks_that_1f1b_cannot_interleave_are_joined() -> None:
    """Two stages of two chunks in a V take one micro-batch; interleaving needs as many as stages."""
    launch = launched(
        {"pipeline_schedule": "zb_v", "virtual_pipeline": 2, "dp": 8},
        workload={"global_batch_size": 24},
    )
    assert launch.runs.pipeline_schedule == "1f1b"
    assert launch.as_run.step_time_s > 0.0


def test_copies_need_groups_of_nodes() -> None:
    """Three nodes have no pairs."""
    launch = launch_plan(
        job_with(workload={"global_batch_size": 48}),
        {"tp": 2, "dp": 12, "checkpoint_scheme": "in_memory_peer"},
    )
    assert replaced(launch) == {"checkpoint_scheme": ("in_memory_peer", "async")}


def test_saves_on_own_drives_need_no_groups_of_nodes() -> None:
    launch = launch_plan(
        job_with(workload={"global_batch_size": 48}), {"tp": 2, "dp": 12, "checkpoint_scheme": "local_nvme"}
    )
    assert launch.num_nodes == 3
    assert replaced(launch) == {}


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"attention": "flash-1"}, {"workload.attention": ("flash-1", "flash")}),
        ({"attention": "eager"}, {"workload.attention": ("eager", "unfused")}),
        ({"kernel_launch": "blocking-2022"}, {"workload.kernel_launch": ("blocking-2022", "eager")}),
        ({"copies_shared_heads": True}, {"workload.copies_shared_heads": ("true", "false")}),
        ({"has_fused_operators": False}, {"workload.has_fused_operators": ("false", "true")}),
        ({"logit_bytes": 2}, {"workload.logit_bytes": ("2", "4")}),
        ({"logit_bytes": 12}, {"workload.logit_bytes": ("12", "6")}),
        ({"gradient_bytes": 6}, {"workload.gradient_bytes": ("6", "4")}),
        ({"sync_bytes": 2}, {"workload.sync_bytes": ("2", "left out")}),
        ({"sync_bytes": 4}, {}),
        ({"optimizer_bytes": 8}, {"workload.optimizer_bytes": ("8", "10")}),
        ({"optimizer_bytes": 14}, {"workload.optimizer_bytes": ("14", "12")}),
        ({"logit_bytes": 5}, {"workload.logit_bytes": ("5", "4")}),
        ({"optimizer_bytes": 6}, {}),
        (
            {"fuses_update": True, "update_bytes": 0},
            {
                "workload.update_bytes": ("0", "left out"),
                "workload.fuses_update": ("true", "false"),
            },
        ),
        ({"context_exchange": "gathered_ring"}, {"workload.context_exchange": ("gathered_ring", "ring")}),
        (
            {"selective_recompute": "every_other_product"},
            {
                "workload.selective_recompute": ("every_other_product", "attention"),
            },
        ),
        (
            {"sharded_copies": "fsdp-2", "weight_prefetch": "none"},
            {
                "workload.weight_prefetch": ("none", "both"),
                "workload.sharded_copies": ("fsdp-2", "none"),
            },
        ),
        ({"activation_offload_fraction": 0.5}, {"workload.activation_offload_fraction": ("0.5", "0")}),
        (
            {"evaluation_every_steps": 100.4, "evaluation_sequences": 100},
            {
                "workload.evaluation_every_steps": ("100.4", "100"),
                "workload.evaluation_sequences": ("100", "128"),
            },
        ),
        (
            {"evaluation_every_steps": 100, "evaluation_sequences": 10},  # less than half a batch
            {"workload.evaluation_sequences": ("10", "64")},
        ),
        *(
            ({name: asked}, {f"workload.{name}": (told, runs)})
            for name, asked, told, runs in (
                ("checkpoints_norms", True, "true", "false"),
                ("measures_accuracy", True, "true", "false"),
                ("separate_first_products", "all", "all", "none"),
                ("overlaps_input_gradients", False, "false", "true"),
                ("gathers_cast_inputs", False, "false", "true"),
                ("keeps_stage_outputs", True, "true", "false"),
                ("frees_stage_inputs", True, "true", "false"),
                ("joins_logits", True, "true", "false"),
                ("scatters_gradients_from", 2, "2", "1"),
                ("bucket_copy_bytes", 4.0, "4", "0"),
                ("sync_buffer_bytes", 1e9, "1e9", "0"),
                ("added_gradient_bytes", 4.0, "4", "left out"),
                ("step_bytes", 3.0, "3", "left out"),
                ("offloads_gradients", True, "true", "false"),
                ("regathers_weights", True, "true", "false"),
                ("most_gathered_weights", 1e9, "1e9", "left out"),
            )
        ),
    ],
)
def test_settings_that_megatron_does_not_have_are_replaced(
    workload: dict[str, object], expected: dict[str, tuple[str, str]]
) -> None:
    assert replaced(launched({"checkpoint_scheme": "async"}, workload=workload)) == expected


def test_activations_of_whole_layers_are_offloaded_without_pipelines() -> None:
    plan = {"pp": 1, "dp": 16, "checkpoint_scheme": "async"}
    half = launched(plan, workload={"activation_offload_fraction": 0.5})
    assert replaced(half) == {}
    all_of_them = launched(plan, workload={"activation_offload_fraction": 1.0})
    assert replaced(all_of_them) == {"workload.activation_offload_fraction": ("1", "0.96875")}
    nearly_16_of_32 = launched(plan, workload={"activation_offload_fraction": 0.49})
    assert replaced(nearly_16_of_32) == {"workload.activation_offload_fraction": ("0.49", "0.5")}
    again = launched({**plan, "recompute": "selective"}, workload={"activation_offload_fraction": 0.5})
    assert replaced(again) == {"workload.activation_offload_fraction": ("0.5", "0")}


def test_transformer_engine_keeps_weights_that_it_cast() -> None:
    launch = launched({"precision": "fp8"}, workload={"precisions": ["fp8"]})
    assert replaced(launch) == {"workload.keeps_cast_weights": ("false", "true")}
    assert launch.as_run.peak_memory_bytes > launch.asked.peak_memory_bytes
    sharded = launched(
        {"pp": 1, "dp": 16, "precision": "fp8", "zero_stage": 3}, workload={"precisions": ["fp8"]}
    )
    assert replaced(sharded) == {}


def test_fp16_keeps_whole_master_weights() -> None:
    workload = {"precisions": ["fp16"], "optimizer_bytes": 10}
    assert replaced(launched({"precision": "fp16"}, workload=workload)) == {
        "workload.optimizer_bytes": ("10", "12")
    }


@pytest.mark.parametrize(
    ("fields", "workload", "expected"),
    [
        (
            {"ep": 4},
            {"overlaps_expert_exchange": True},
            {"workload.overlaps_expert_exchange": ("true", "false")},
        ),
        ({"ep": 4, "virtual_pipeline": 2}, {"overlaps_expert_exchange": True}, {}),
        (
            {"ep": 4, "virtual_pipeline": 2, "recompute": "full"},
            {"overlaps_expert_exchange": True},
            {"workload.overlaps_expert_exchange": ("true", "false")},
        ),
        (
            {"ep": 4, "virtual_pipeline": 2, "recompute": "selective"},
            {"overlaps_expert_exchange": True, "recompute_modules": ["moe"]},
            {"workload.overlaps_expert_exchange": ("true", "false")},
        ),
        (
            {"ep": 4, "virtual_pipeline": 2, "recompute": "selective"},
            {"overlaps_expert_exchange": True, "recompute_modules": ["core_attn"]},
            {},
        ),
        ({"ep": 4, "pp": 1, "dp": 16}, {"overlaps_expert_exchange": True}, {}),
        (
            {"pp": 1, "dp": 16},  # every rank has all experts
            {"overlaps_expert_exchange": True},
            {"workload.overlaps_expert_exchange": ("true", "false")},
        ),
        ({"ep": 4}, {"dispatches_in_8_bits": True}, {"workload.dispatches_in_8_bits": ("true", "false")}),
        ({"ep": 4}, {"has_sequence_parallel": False}, {"workload.has_sequence_parallel": ("false", "true")}),
        ({"ep": 4, "tp": 1, "dp": 16}, {"has_sequence_parallel": False}, {}),
        ({"ep": 4}, {"kernel_launch": "graph"}, {"workload.kernel_launch": ("graph", "eager")}),
        (
            {"ep": 4},
            {"expert_products": "grouped", "model": "gpt-oss-120b"},  # its experts have biases
            {"workload.expert_products": ("grouped", "separate")},
        ),
        (
            {"ep": 4, "virtual_pipeline": 2},
            {"overlaps_expert_exchange": True, "documents": {"mean_tokens": 1000}},
            {"workload.overlaps_expert_exchange": ("true", "false")},
        ),
        (
            {},
            {"expert_dispatch": "deduplicated"},
            {"workload.expert_dispatch": ("deduplicated", "all_to_all")},
        ),
        ({"ep": 4}, {"expert_dispatch": "deduplicated"}, {}),
        ({}, {"expert_dispatch": "deduplicated", "expert_tensor_parallel": 2}, {}),
        ({"ep": 4, "pp": 1, "dp": 16, "shard_ranks": 8}, {}, {}),  # 2 copies, 8 replicas of experts
        (
            {"ep": 8, "tp": 1, "pp": 1, "dp": 32, "shard_ranks": 4},  # 8 copies, 4 replicas of experts
            {},
            {"shard_ranks": ("4", "left out")},
        ),
        (
            {
                "ep": 8,
                "tp": 1,
                "pp": 1,
                "cp": 2,
                "dp": 16,
                "shard_ranks": 4,
            },  # context ranks share shards, too
            {},
            {"shard_ranks": ("4", "left out")},
        ),
    ],
)
def test_what_experts_exclude_is_replaced(
    fields: dict[str, object], workload: dict[str, object], expected: dict[str, tuple[str, str]]
) -> None:
    launch = launched(
        {"checkpoint_scheme": "async", **fields},
        workload={"model": "mixtral-8x7b", "expert_products": "separate", **workload},
    )
    assert replaced(launch) == expected


@pytest.mark.parametrize(
    ("accelerator", "precision", "recipe", "variable"),
    [
        ("h100-sxm5-80gb", "bf16", "tensorwise", "NVTE_USE_CUTLASS_GROUPED_GEMM"),
        ("h100-sxm5-80gb", "fp16", "tensorwise", "NVTE_USE_CUTLASS_GROUPED_GEMM"),
        ("b200-sxm-180gb", "bf16", "tensorwise", "NVTE_GROUPED_LINEAR_USE_FUSED_GROUPED_GEMM"),
        ("b200-sxm-180gb", "fp8", "mxfp8", "NVTE_CUTEDSL_FUSED_GROUPED_MLP"),
        ("h100-sxm5-80gb", "fp8", "blockwise", None),
        ("b200-sxm-180gb", "fp8", "tensorwise", None),
        ("a100-sxm4-80gb", "bf16", "tensorwise", None),
        ("mi300x", "bf16", "tensorwise", None),
    ],
)
def test_all_experts_are_one_kernel_where_transformer_engine_has_one(
    accelerator: str, precision: str, recipe: str, variable: str | None
) -> None:
    """Docs/model/experts.md lists the variables; elsewhere each expert has a product of its own."""
    workload = {
        "model": "mixtral-8x7b",
        "precisions": [precision],
        "fp8_recipe": recipe,
        "keeps_cast_weights": True,
    }
    job = job_with({"accelerator": accelerator, "num_gpus": 32}, workload=workload)
    launch = launch_plan(job, {**PLAN, "ep": 4, "precision": precision, "checkpoint_scheme": "async"})
    is_apart = {"workload.expert_products": ("grouped", "separate")}
    assert replaced(launch) == ({} if variable else is_apart)
    assert {name for name in launch.environment if name.startswith("NVTE")} == (
        {variable} if variable else set()
    )
    apart = job_with(
        {"accelerator": accelerator, "num_gpus": 32}, workload={**workload, "expert_products": "separate"}
    )
    told = launch_plan(apart, {**PLAN, "ep": 4, "precision": precision, "checkpoint_scheme": "async"})
    assert replaced(told) == {}
    assert not [name for name in told.environment if name.startswith("NVTE")]


@pytest.mark.parametrize(("num_modules", "hides"), [(0, True), (1, True), (2, False)])
def test_exchanges_hide_beside_one_module_of_multi_token_prediction(num_modules: int, *, hides: bool) -> None:
    network = model("mixtral-8x7b").model_dump(mode="json") | {"num_mtp_layers": num_modules}
    workload = {"model": network, "expert_products": "separate", "overlaps_expert_exchange": True}
    launch = launched({"ep": 4, "virtual_pipeline": 2, "checkpoint_scheme": "async"}, workload=workload)
    assert ("workload.overlaps_expert_exchange" not in replaced(launch)) is hides


def test_experts_with_biases_are_whole() -> None:
    workload = {"model": "gpt-oss-120b", "expert_tensor_parallel": 2, "expert_products": "separate"}
    launch = launched({"ep": 4, "checkpoint_scheme": "async"}, workload=workload)
    assert replaced(launch) == {"workload.expert_tensor_parallel": ("2", "1")}


@pytest.mark.parametrize(
    ("fields", "workload"),
    [
        ({"recompute": "full"}, {}),
        ({"pp": 1, "dp": 16}, {"activation_offload_fraction": 0.5}),
        ({}, {"documents": {"mean_tokens": 1000}}),
        ({"recompute": "selective"}, {"model": "gpt3-175b", "sequence_length": 2048}),
    ],
)
def test_graphs_exclude_what_changes_between_steps_or_runs_again(
    fields: dict[str, object], workload: dict[str, object]
) -> None:
    launch = launched(fields, workload={**workload, "kernel_launch": "graph"})
    assert replaced(launch)["workload.kernel_launch"] == ("graph", "eager")
    assert "workload.kernel_launch" not in replaced(launched({}, workload={"kernel_launch": "graph"}))


@pytest.mark.parametrize(("kernels", "on_one"), [("unfused", {}), ("eager", {("eager", "unfused")})])
def test_context_parallel_ranks_need_fused_attention(
    kernels: str, on_one: Collection[tuple[str, str]]
) -> None:
    for plan, expected in (({"pp": 1, "cp": 2}, {(kernels, "flash")}), ({}, on_one)):
        differences = launched(plan, workload={"attention": kernels}).differences
        assert [(each.value, each.runs) for each in differences] == list(expected)


def test_tensor_parallel_ranks_have_equal_parts_of_the_vocabulary() -> None:
    workload = {"model": shape(vocabulary_size=50257)}
    launch = launched({}, workload=workload)
    assert replaced(launch) == {"workload.model.vocabulary_size": ("50257", "50258")}
    assert launch.vocabulary_size == 50258
    assert replaced(launched({"tp": 1, "dp": 16}, workload=workload)) == {}


def test_latents_are_not_projected_in_pieces() -> None:
    workload = {"model": "deepseek-v3", "overlaps_tensor_comm": True, "expert_products": "separate"}
    offer = {"accelerator": "h200-sxm-141gb", "num_gpus": 256, "rent_usd_per_gpu_hour": 3.0}
    job = job_with(offer, workload={**workload, "global_batch_size": 256})
    launch = launch_plan(job, {"tp": 2, "dp": 128, "ep": 64, "checkpoint_scheme": "async"})
    assert replaced(launch) == {"workload.overlaps_tensor_comm": ("true", "false")}


@pytest.mark.parametrize(
    ("precision", "recipe", "is_hidden"),
    [
        ("bf16", "tensorwise", True),
        ("fp8", "tensorwise", True),
        ("fp8", "mxfp8", True),
        ("fp8", "blockwise", False),
        ("fp4", "tensorwise", False),
    ],
)
def test_pieces_of_products_have_formats_that_their_buffers_take(
    precision: str, recipe: str, *, is_hidden: bool
) -> None:
    workload = {"precisions": [precision], "fp8_recipe": recipe, "overlaps_tensor_comm": True}
    offer = {"accelerator": "b200-sxm-180gb", "num_gpus": 32, "rent_usd_per_gpu_hour": 3.0}
    launch = launch_plan(job_with(offer, workload=workload), {**PLAN, "precision": precision})
    assert ("workload.overlaps_tensor_comm" not in replaced(launch)) is is_hidden


TOKENS = "a product has {} tokens of a micro-batch, and Transformer Engine casts multiples of {}$"


@pytest.mark.parametrize(
    ("precision", "plan", "workload", "length", "refused"),
    [
        ("fp8", {}, {}, 4096, None),
        ("fp8", {}, {}, 4100, (2050, 8)),  # two ranks gather each other's half
        ("fp8", {}, {"has_sequence_parallel": False}, 4104, None),
        ("fp8", {}, {"has_sequence_parallel": False, "model": "mixtral-8x7b"}, 4104, (2052, 8)),
        ("fp8", {"tp": 1, "dp": 16, "micro_batch_size": 2}, {}, 4100, None),
        ("fp8", {"tp": 1, "cp": 2, "pp": 1, "dp": 16}, {}, 8200, (4100, 8)),
        ("fp8", {}, {"fp8_recipe": "mxfp8"}, 4096, None),
        ("fp8", {}, {"fp8_recipe": "mxfp8"}, 4112, (4112, 32)),
        ("fp4", {}, {}, 4096, None),
        ("fp4", {}, {}, 4120, (2060, 8)),
        ("fp4", {"tp": 1, "dp": 16}, {}, 4120, (4120, 16)),
        ("bf16", {}, {}, 4100, None),
    ],
)
def test_lengths_that_cannot_be_cast_are_refused(
    precision: str,
    plan: dict[str, object],
    workload: dict[str, object],
    length: int,
    refused: tuple[int, int] | None,
) -> None:
    """A rank's tokens are a multiple of 8; MXFP8 has blocks of 32 tokens, NVFP4 of 16."""
    offer = {"accelerator": "b200-sxm-180gb", "num_gpus": 32, "rent_usd_per_gpu_hour": 3.0}
    job = job_with(offer, workload={"precisions": [precision], "sequence_length": length, **workload})
    asked = {**PLAN, "precision": precision, **plan}
    if refused is None:
        assert launch_plan(job, asked).runs.precision == precision
    else:
        with pytest.raises(InputError, match=f"sequence_length = {length}: {TOKENS.format(*refused)}"):
            launch_plan(job, asked)


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (["core_attn"], {}),
        (["core_attn", "moe_act"], {"workload.recompute_modules": ("core_attn, moe_act", "core_attn")}),
        (["moe_act", "layernorm"], {"recompute": ("selective", "none")}),
    ],
)
def test_delayed_scaling_recomputes_no_norms_and_activations(
    modules: list[str], expected: dict[str, tuple[str, str]]
) -> None:
    workload = {
        "model": "mixtral-8x7b",
        "precisions": ["fp8"],
        "fp8_recipe": "delayed",
        "keeps_cast_weights": True,
        "expert_products": "separate",
        "recompute_modules": modules,
    }
    plan = {"ep": 4, "precision": "fp8", "recompute": "selective", "checkpoint_scheme": "async"}
    assert replaced(launched(plan, workload=workload)) == expected
    tensorwise = launched(plan, workload={**workload, "fp8_recipe": "tensorwise"})
    assert replaced(tensorwise) == {}


def test_modules_of_multi_token_prediction_are_recomputed_one_by_one() -> None:
    plan = {"recompute": "full", "recompute_num_layers": 2, "checkpoint_scheme": "async"}
    for method, expected in (("uniform", {"recompute_num_layers": ("2", "left out")}), ("block", {})):
        workload = {"model": shape(num_mtp_layers=1), "recompute_method": method}
        assert replaced(launched(plan, workload=workload)) == expected


def test_states_of_the_optimizer_have_formats_that_depend_on_who_keeps_the_weights() -> None:
    """Megatron-FSDP, and weights that are cast from scales of their own, have whole masters: 4 bytes, and 4 or 8 of moments."""
    for asked, runs in ((6, "8"), (10, "12")):
        expected = {"workload.optimizer_bytes": (str(asked), runs)}
        for stage in (2, 3):
            sharded = {"pp": 1, "dp": 16, "zero_stage": stage, "checkpoint_scheme": "async"}
            assert replaced(launched(sharded, workload={"optimizer_bytes": asked})) == expected
        whole = launched({"zero_stage": 0, "checkpoint_scheme": "async"}, workload={"optimizer_bytes": asked})
        assert replaced(whole) == {"workload.optimizer_bytes": (str(asked), "12")}
        recipe = {"precisions": ["fp8"], "keeps_cast_weights": True, "optimizer_bytes": asked}
        cast = {"precision": "fp8", "checkpoint_scheme": "async"}
        assert replaced(launched(cast, workload=recipe)) == expected
        assert replaced(launched(cast, workload={**recipe, "fp8_recipe": "delayed"})) == {}


@pytest.mark.parametrize(
    ("fields", "workload", "expected"),
    [
        ({}, {"optimizer_bytes": 6}, {"workload.optimizer_bytes": ("6", "12")}),
        ({"zero_stage": 0}, {}, {"workload.optimizer_offload_fraction": ("0.5", "0")}),
        (
            {"precision": "fp8"},
            {"precisions": ["fp8"], "gathers_cast_weights": True},
            {
                "workload.gathers_cast_weights": ("true", "false"),
                "workload.keeps_cast_weights": ("false", "true"),
            },
        ),
        (
            {"precision": "fp8"},
            {"precisions": ["fp8"], "gathers_cast_weights": True, "fp8_recipe": "delayed"},
            {},
        ),
    ],
)
def test_an_offloaded_optimizer_is_sharded_and_whole(
    fields: dict[str, object], workload: dict[str, object], expected: dict[str, tuple[str, str]]
) -> None:
    launch = launched(
        {"checkpoint_scheme": "async", **fields}, workload={"optimizer_offload_fraction": 0.5, **workload}
    )
    assert replaced(launch) == expected


def test_megatron_fsdp_always_hides_reductions() -> None:
    workload = {"overlaps_gradient_sync": False}
    sharded = launched({"pp": 1, "dp": 16, "zero_stage": 2}, workload=workload)
    assert replaced(sharded) == {"workload.overlaps_gradient_sync": ("false", "true")}
    assert replaced(launched({}, workload=workload)) == {}


def test_weights_that_are_not_sharded_are_kept_and_not_gathered() -> None:
    workload = {"precisions": ["fp8"], "gathers_cast_weights": True}
    whole = launched({"precision": "fp8", "zero_stage": 0}, workload=workload)
    assert replaced(whole) == {
        "workload.gathers_cast_weights": ("true", "false"),
        "workload.keeps_cast_weights": ("false", "true"),
    }


def test_4_bit_weights_are_kept_where_8_bit_ones_would_be_gathered() -> None:
    offer = {"accelerator": "b200-sxm-180gb", "num_gpus": 32, "rent_usd_per_gpu_hour": 3.0}
    job = job_with(offer, workload={"precisions": ["fp4"], "gathers_cast_weights": True})
    assert replaced(launch_plan(job, {**PLAN, "precision": "fp4", "checkpoint_scheme": "async"})) == {
        "workload.gathers_cast_weights": ("true", "false"),
        "workload.keeps_cast_weights": ("false", "true"),
    }


def test_copies_are_in_groups_of_nodes_and_nothing_is_saved_twice() -> None:
    settings = {"peer_placement": "ring", "is_deduplicated": False}
    copied = launched({"checkpoint_scheme": "tiered"}, checkpointing=settings)
    assert replaced(copied) == {
        "checkpointing.is_deduplicated": ("false", "true"),
        "checkpointing.peer_placement": ("ring", "group"),
    }
    assert replaced(launched({"checkpoint_scheme": "none"}, checkpointing=settings)) == {}


def test_what_is_run_is_simulated_too() -> None:
    """Whole gradients need more memory than those of two of eight chunks, and a plan of little room breaks the limit."""
    launch = launched({"zero_stage": 2, "virtual_pipeline": 8})
    assert launch.as_run.peak_memory_bytes > launch.asked.peak_memory_bytes
    assert launch.as_run.step_time_s != launch.asked.step_time_s
    assert launch.plan.zero_stage == 2
    assert launch.runs.zero_stage == 1
    workload = {"model": "llama-3.1-70b", "global_batch_size": 512}
    full = launch_plan(
        job_with({"accelerator": "h100-sxm5-80gb", "num_gpus": 512}, workload=workload),
        {"tp": 4, "pp": 2, "dp": 64, "zero_stage": 2, "virtual_pipeline": 20},
    )
    assert full.asked.violations == ()
    (violated,) = full.as_run.violations
    assert "peak_memory" in violated


@pytest.mark.parametrize(
    ("plan", "search", "settings"),
    [
        (
            {"zero_stage": 2, "checkpoint_scheme": "gradient_assisted"},
            {"checkpoint_schemes": ["sync_sharded", "async", "in_memory_peer", "gradient_assisted"]},
            {
                "search.zero_stages=[1]",
                "search.checkpoint_schemes=[sync_sharded,async,in_memory_peer]",
            },
        ),
        (
            {"pipeline_schedule": "gpipe"},
            {
                "pipeline_schedules": ["gpipe"],
                "zero_stages": [0, 1],
                "checkpoint_schemes": ["differential"],
            },
            {"search.pipeline_schedules=[1f1b]", "search.checkpoint_schemes=[async]"},
        ),
        (
            {"checkpoint_scheme": "in_memory_peer", "pp": 1, "dp": 16, "zero_stage": 2},
            {"checkpoint_schemes": ["async", "in_memory_peer"]},
            {"search.zero_stages=[1]"},
        ),
        (
            {"checkpoint_scheme": "sync"},  # which is sharded as soon as the optimizer is
            {"checkpoint_schemes": ["sync", "sync_sharded"], "zero_stages": [1]},
            {"search.checkpoint_schemes=[sync_sharded]"},
        ),
    ],
)
def test_a_remark_says_which_settings_find_plans_that_run_as_they_are(
    plan: Mapping[str, object], search: Mapping[str, object], settings: set[str]
) -> None:
    launch = launched(plan, search=search)
    (remark,) = launch.remarks
    start, *given = remark.split(" --set ")
    assert start == "For a plan that runs as it is: capplan recommend JOB.yaml"
    assert set(given) == {f"'{setting}'" for setting in settings}


def test_copies_on_an_odd_number_of_nodes_need_another_scheme() -> None:
    job = job_with({"accelerator": "h100-sxm5-80gb", "num_gpus": 24}, workload={"global_batch_size": 96})
    launch = launch_plan(job, {"dp": 24, "checkpoint_scheme": "in_memory_peer"})
    assert launch.runs.checkpoint_scheme == "async"
    assert "search.checkpoint_schemes=[sync_sharded,async]" in launch.remarks[0]
    sharded = launch_plan(job, {"dp": 24, "checkpoint_scheme": "in_memory_peer", "zero_stage": 2})
    assert "search.checkpoint_schemes=[sync_sharded,async]" in sharded.remarks[0]


@pytest.mark.parametrize(("headroom", "is_told"), [(0.01, True), (-0.01, False), (0.2, False)])
def test_a_remark_warns_of_what_hardly_fits(headroom: float, is_told: bool) -> None:
    memory_bytes = launched({}).as_run.peak_memory_bytes / (1 - headroom)
    described = accelerator("h100-sxm5-80gb").model_copy(update={"memory_bytes": memory_bytes})
    own = {"accelerator": described.model_dump(mode="json"), "node": "dgx-h100", "num_gpus": 32}
    launch = launch_plan(job_with({**own, "rent_usd_per_gpu_hour": 1}), PLAN)
    doubts = [remark for remark in launch.remarks if remark.startswith("It may not fit: 99.0 %")]
    assert [doubt.endswith(" Measure a step first.") for doubt in doubts] == [True] * is_told
    assert bool(launch.as_run.violations) == (headroom < 0)


def test_plans_that_run_as_they_are_need_no_settings() -> None:
    assert launched({"checkpoint_scheme": "async"}).remarks == ()


@pytest.mark.parametrize(
    ("scheme", "where"),
    [
        ("local_nvme", "drives of the node"),
        ("tiered", "drives of the node"),
        ("in_memory_peer", "a file system in memory"),
    ],
)
def test_remarks_name_the_library_behind_local_saves(scheme: str, where: str) -> None:
    (remark,) = launched({"checkpoint_scheme": scheme}).remarks
    assert "need nvidia-resiliency-ext 0.6 or later" in remark
    assert remark.endswith(f"on {where}.")


@pytest.mark.parametrize(
    ("plan", "workload", "remarks"),
    [
        (
            {},
            {"documents": {"mean_tokens": 1000}},
            ("Documents are kept apart where the data set marks their ends.",),
        ),
        (
            {"ep": 4},
            {"model": "mixtral-8x7b", "expert_capacity_factor": 1.25},
            ("The capacity counts for each expert, not for all experts of a rank.",),
        ),
        (
            {},
            {"model": {"num_mtp_layers": 1}},
            ("Modules of multi-token prediction are on the last stage.",),
        ),
        ({}, {"model": {"num_mtp_layers": 1}, "stage_layers": [15, 17]}, ()),  # then the layout says where
        ({"pp": 1, "dp": 16}, {"model": {"num_mtp_layers": 1}}, ()),
    ],
)
def test_remarks_say_what_the_arguments_leave_open(
    plan: Mapping[str, object], workload: Mapping[str, object], remarks: tuple[str, ...]
) -> None:
    network = workload.get("model")
    model_of = {"model": shape(**network)} if isinstance(network, dict) else {}
    launch = launched({"checkpoint_scheme": "async", **plan}, workload={**workload, **model_of})
    assert launch.remarks == remarks


def shape(**fields: object) -> dict[str, object]:
    return {**model("llama-3.1-8b").model_dump(mode="json"), **fields}


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"lora": {"rank": 16}}, "workload.lora = rank 16: Megatron-LM trains all weights"),
        (
            {"model": shape(sliding_window={"window_tokens": 4096, "is_chunked": True})},
            "workload.model.sliding_window.is_chunked = true: Megatron-LM has windows that move with each token",
        ),
        (
            {"model": shape(parallel_block="one_norm")},
            "workload.model.parallel_block = one_norm: Megatron-LM runs attention and feed-forward block one",
        ),
        (
            {"model": small_hybrid(16, 16).model_dump(mode="json") | {"num_layers": 32}},
            "workload.model.linear_attention.kind = mamba-2: Megatron-LM needs the order of a hybrid's blocks",
        ),
        (
            {"model": shape(hyper_connections={"num_streams": 4})},
            "workload.model.hyper_connections.num_streams = 4: Megatron-LM's pretrain_gpt.py builds no layers",
        ),
        (
            {"model": shape(qk_norm="all_heads")},
            "workload.model.qk_norm = all_heads: Megatron-LM has norms of queries and keys for one head",
        ),
        (
            {"model": shape(num_learned_positions=2048)},
            "workload.model.num_learned_positions = 2048: must be at least sequence_length (8192)",
        ),
        (
            {"model": shape(num_learned_positions=8192, num_mtp_layers=1)},
            "workload.model.num_learned_positions = 8192: Megatron-LM has multi-token prediction with rotary",
        ),
        (
            {
                "model": shape(
                    experts={
                        "num_experts": 8,
                        "experts_per_token": 2,
                        "expert_ffn_hidden_size": 4096,
                        "shared_ffn_hidden_size": 4096,
                        "has_biases": True,
                    }
                )
            },
            "workload.model.experts.has_biases = true: Megatron-LM has no shared experts beside experts with",
        ),
    ],
)
def test_networks_that_megatron_does_not_have_are_refused(workload: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        launched({}, workload=workload)
    assert message in str(caught.value)


def test_packed_documents_are_not_split_among_context_parallel_ranks() -> None:
    workload = {"documents": {"mean_tokens": 1000}}
    with pytest.raises(InputError, match=r"context_parallel = 2 beside workload\.documents"):
        launched({"pp": 1, "cp": 2}, workload=workload)
    assert launched({"pp": 1, "dp": 16}, workload=workload).runs.context_parallel == 1


def test_other_chips_are_refused_and_amd_has_a_copy() -> None:
    for name in ("tpu-v4", "trainium2", "gaudi3"):
        job = job_with({"accelerator": name, "num_gpus": 32, "rent_usd_per_gpu_hour": 1})
        with pytest.raises(
            InputError,
            match=rf"offers\[0\]\.accelerator = {name}: Megatron-LM runs on GPUs of NVIDIA and AMD",
        ):
            launch_plan(job, PLAN)
    amd = launch_plan(
        job_with({"accelerator": "mi300x", "num_gpus": 32}), {**PLAN, "power_cap_fraction": 0.8}
    )
    assert "AMD maintains a copy of Megatron-LM for its accelerators, ROCm/Megatron-LM." in amd.remarks
    assert amd.power_limit_w == pytest.approx(600.0)
    assert amd.power_command is None


def test_a_plan_that_cannot_run_is_refused() -> None:
    with pytest.raises(InputError, match="tensor_parallel"):
        launched({"tp": 3, "num_gpus": 32})
