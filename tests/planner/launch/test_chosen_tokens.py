"""How is attention to chosen tokens run with Megatron-LM, and what does it refuse or replace?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from planner.launch.answer import Launch, launch_plan
from simulator.domain.model import ModelShape
from simulator.errors import InputError
from tests.planner.sharing_layers import sharing
from tests.simulator.builders import changed
from tests.simulator.sparse import DENSE, LATENTS, SMALL, with_indexer
from tests.support import job_with

PLAN = {"tp": 2, "pp": 2, "dp": 8, "checkpoint_scheme": "async"}
"""The plan of most tests: 32 accelerators on four nodes."""


def launched(
    model: ModelShape | str,
    plan: Mapping[str, object],
    *,
    accelerator: object = "h100-sxm5-80gb",
    **workload: object,
) -> Launch:
    network = model if isinstance(model, str) else model.model_dump(mode="json")
    offer = {"accelerator": accelerator, "num_gpus": 32, "rent_usd_per_gpu_hour": 2}
    return launch_plan(job_with(offer, workload={"model": network, **workload}), {**PLAN, **plan})


def values(launch: Launch) -> dict[str, str]:
    return {each.name: " ".join(each.values) for group in launch.arguments for each in group.arguments}


def replaced(launch: Launch) -> dict[str, tuple[str, str]]:
    return {each.field: (each.value, each.runs) for each in launch.differences}


def test_an_indexer_has_its_arguments() -> None:
    found = values(launched("deepseek-v3.2", {}))
    expected = {
        "--experimental-attention-variant": "dsa",
        "--dsa-kernel-backend": "cudnn",
        "--dsa-indexer-n-heads": "64",
        "--dsa-indexer-head-dim": "128",
        "--dsa-indexer-topk": "2048",
        "--dsa-indexer-loss-coeff": "0.01",
        "--dsa-indexer-use-sparse-loss": "",
        "--no-rope-fusion": "",
        "--sequence-parallel": "",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert {"--dsa-indexer-topk-freq", "--dsa-indexer-skip-topk-offset"}.isdisjoint(found)
    other = values(launched("deepseek-v3", {}))
    assert not [
        name for name in other if "dsa" in name or "experimental" in name or name == "--no-rope-fusion"
    ]


def test_layers_that_share_an_indexer_are_told_by_their_distance() -> None:
    found = values(launched("glm-5.2", {}))
    assert found["--dsa-indexer-topk-freq"] == "4"
    assert found["--dsa-indexer-skip-topk-offset"] == "3"


def test_an_indexer_that_is_not_trained_has_no_loss() -> None:
    found = values(launched("glm-5", {}, trains_indexer=False))
    assert found["--dsa-indexer-topk"] == "2048"
    assert {"--dsa-indexer-loss-coeff", "--dsa-indexer-use-sparse-loss"}.isdisjoint(found)


def test_keys_are_gathered_among_context_parallel_ranks() -> None:
    # `DSAttention context parallelism currently supports cp_comm_type=allgather only`, with or without the underscore
    assert values(launched("glm-5", {"pp": 1, "cp": 2}))["--cp-comm-type"] == "all_gather"


def test_remarks_name_the_libraries_behind_the_kernels() -> None:
    (remark,) = [each for each in launched("glm-5", {}).remarks if "chosen tokens" in each]
    assert all(name in remark for name in ("FlashMLA", "cuDNN's frontend", "fast_hadamard_transform"))
    assert not [each for each in launched("deepseek-v3", {}).remarks if "chosen tokens" in each]


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [
        (SMALL, 2, {"workload.has_sequence_parallel": ("false", "true")}),
        (SMALL, 1, {}),
        (DENSE, 2, {}),
    ],
    ids=["chosen tokens", "one rank", "all tokens"],
)
def test_tensor_parallel_ranks_split_the_sequence(
    model: ModelShape, tp: int, expected: dict[str, tuple[str, str]]
) -> None:
    assert replaced(launched(model, {"tp": tp, "dp": 16 // tp}, has_sequence_parallel=False)) == expected


@pytest.mark.parametrize(
    ("model", "precision", "modules", "expected"),
    [
        (
            SMALL,
            "fp8",
            ["mla_up_proj", "core_attn"],
            {"workload.recompute_modules": ("mla_up_proj, core_attn", "core_attn")},
        ),
        (SMALL, "fp8", ["mla_up_proj"], {"recompute": ("selective", "none")}),
        (SMALL, "bf16", ["mla_up_proj", "core_attn"], {}),
        (SMALL, "fp8", ["core_attn"], {}),
        ("deepseek-v3", "fp8", ["mla_up_proj"], {}),
    ],
)
def test_up_projections_are_computed_again_in_16_bits_alone(
    model: ModelShape | str, precision: str, modules: list[str], expected: dict[str, tuple[str, str]]
) -> None:
    launch = launched(
        model,
        {"recompute": "selective", "precision": precision},
        precisions=[precision],
        recompute_modules=modules,
        keeps_cast_weights=True,
        expert_products="separate",
    )
    assert replaced(launch) == expected


def test_formats_and_attention_each_exclude_their_modules() -> None:
    launch = launched(
        SMALL,
        {"recompute": "selective", "precision": "fp8"},
        precisions=["fp8"],
        fp8_recipe="delayed",
        recompute_modules=["mla_up_proj", "layernorm", "core_attn"],
    )
    assert values(launch)["--recompute-modules"] == "core_attn"
    (reason,) = [each.reason for each in launch.differences if each.field == "workload.recompute_modules"]
    assert reason.startswith("delayed scaling excludes")
    assert reason.endswith("in 16 bits alone")


@pytest.mark.parametrize(
    ("plan", "cut"),
    [
        ({"pp": 4, "dp": 4}, "Et*18|(t*20|)*2t*20L"),
        ({"pp": 2}, "Et*38|t*40L"),
        ({"pp": 2, "virtual_pipeline": 2}, "Et*18|(t*20|)*2t*20L"),
    ],
)
def test_chunks_begin_with_layers_that_have_an_indexer(plan: dict[str, object], cut: str) -> None:
    launch = launched("glm-5.2", plan)
    assert values(launch)["--pipeline-model-parallel-layout"] == cut
    assert "workload.stage_layers" in replaced(launch)


@pytest.mark.parametrize(
    ("model", "plan", "workload"),
    [
        ("glm-5.2", {}, {"stage_layers": [38, 40]}),
        ("glm-5.2", {"pp": 1, "dp": 16}, {}),
        ("glm-5", {}, {}),
        ("deepseek-v3", {}, {}),
    ],
    ids=["a cut that fits", "one stage", "an indexer in every layer", "all tokens"],
)
def test_other_cuts_stay(model: str, plan: dict[str, object], workload: dict[str, object]) -> None:
    assert "workload.stage_layers" not in replaced(launched(model, plan, **workload))


def test_more_chunks_than_indexers_are_refused() -> None:
    model = sharing(8, step=4, leading=1)  # layers 0 and 4
    with pytest.raises(
        InputError, match=r"pipeline_parallel x virtual_pipeline = 4: must be at most 2: in Megatron-LM"
    ):
        launched(model, {"pp": 4, "dp": 4})
    assert values(launched(model, {"pp": 2}))["--pipeline-model-parallel-size"] == "2"


@pytest.mark.parametrize(
    ("model", "accelerator", "message"),
    [
        (
            SMALL,
            "a100-sxm4-80gb",
            r"offers\[0\].accelerator = a100-sxm4-80gb: Megatron-LM has fused attention to chosen",
        ),
        (SMALL, "mi300x", r"offers\[0\].accelerator = mi300x: .* on Hopper and Blackwell"),
        (
            with_indexer(changed(DENSE, latent_attention=changed(LATENTS, key_value_rank=256))),
            "h100-sxm5-80gb",
            "latent_attention.key_value_rank = 256: must be 512",
        ),
        (
            changed(SMALL, is_gated=False),
            "h100-sxm5-80gb",
            "has no biases of products beside attention to chosen tokens",
        ),
        (
            changed(SMALL, num_heads=96, num_kv_heads=96),
            "h100-sxm5-80gb",
            "tensor_parallel = 2: leaves 48 heads to a rank, .* multiples of 64",
        ),
        (
            changed(SMALL, num_heads=384, num_kv_heads=384),
            "b200-sxm-180gb",
            "tensor_parallel = 2: leaves 192 heads to a rank, .* multiples of 128",
        ),
    ],
    ids=["A100", "MI300X", "latents", "biases", "48 heads", "192 heads"],
)
def test_what_its_kernels_do_not_take_is_refused(model: ModelShape, accelerator: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        launched(model, {}, accelerator=accelerator)


@pytest.mark.parametrize(
    ("heads", "accelerator"), [(384, "h100-sxm5-80gb"), (256, "b200-sxm-180gb"), (32, "h200-sxm-141gb")]
)
def test_heads_of_whole_tiles_or_parts_of_one_are_run(heads: int, accelerator: str) -> None:
    launch = launched(changed(SMALL, num_heads=heads, num_kv_heads=heads), {}, accelerator=accelerator)
    assert values(launch)["--num-attention-heads"] == str(heads)
