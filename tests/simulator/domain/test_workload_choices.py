"""Do windows, documents, exchanges, parts of experts, adapters and offloading keep what every step keeps, in all mixtures?"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.attention_span import SlidingWindow
from simulator.domain.choices import ContextExchange
from simulator.domain.documents import Documents
from simulator.domain.hardware import Precision
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.model import ModelShape
from simulator.domain.offer import Offer
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.simulate import Outcomes, simulate
from simulator.step.step import STEP_PARTS
from tests.simulator.builders import job_of, plan_of, table_of

WINDOWS = st.none() | st.builds(
    SlidingWindow,
    window_tokens=st.sampled_from([128, 4096]),
    full_every=st.sampled_from([None, 2, 6]),
    is_chunked=st.booleans(),
)
DOCUMENTS = st.none() | st.builds(
    Documents,
    mean_tokens=st.sampled_from([500.0, 8000.0]),
    imbalance=st.sampled_from([None, 1.0, 1.5]),
    filled_fraction=st.sampled_from([0.8, 1.0]),
)

ADAPTERS = Lora(rank=16, targets=ATTENTION_PRODUCTS)


HYBRID_MODELS = ("nemotron-3-super-120b-a12b", "kimi-linear-48b-a3b", "qwen3.5-35b-a3b")


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    model = draw(st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", *HYBRID_MODELS]))
    has_latents, is_hybrid = model in ("deepseek-v2-lite", "kimi-linear-48b-a3b"), model in HYBRID_MODELS
    can_adapt = not has_latents and not is_hybrid  # adapters of latent and linear attention are refused
    exchanges = get_args(ContextExchange)
    shared = draw(st.booleans()) and model != "nemotron-3-super-120b-a12b"  # experts that read a latent
    block = None if is_hybrid else draw(st.sampled_from([None, "one_norm", "two_norms"]))
    norm = (
        None if has_latents else draw(st.sampled_from([None, "per_head"]))
    )  # latents have norms of their own
    return Workload(
        model=windowed(catalog.model(model), draw(WINDOWS)).model_copy(
            update={"parallel_block": block, "qk_norm": norm}
        ),
        tokens=1e12,
        sequence_length=32_768,
        global_batch_size=64,
        precisions=(Precision.BF16, Precision.FP8),
        documents=draw(DOCUMENTS),
        context_exchange=draw(st.none() | st.sampled_from(exchanges)),
        expert_dispatch=draw(st.sampled_from(["all_to_all", "deduplicated"])),
        gathers_routing_maps=draw(st.booleans()),
        expert_products=draw(st.sampled_from(["grouped", "separate"])),
        expert_tensor_parallel=draw(st.sampled_from([1, 2])),
        dispatches_in_8_bits=draw(st.booleans()),
        fills_expert_rows=draw(st.booleans()),
        gathers_cast_inputs=draw(st.booleans()),
        copies_shared_heads=draw(st.booleans()),
        lora=draw(st.sampled_from([None, ADAPTERS])) if can_adapt else None,
        activation_offload_fraction=draw(st.sampled_from([0.0, 0.5])),
        optimizer_offload_fraction=draw(st.sampled_from([0.0, 1.0])),
        weight_prefetch=draw(st.sampled_from(["both", "backward", "none"])),
        sharded_copies=draw(st.sampled_from(["none", "fsdp-2"])),
        overlaps_shared_experts=shared,
        overlaps_expert_exchange=not shared and draw(st.booleans()),
    )


def windowed(model: ModelShape, window: SlidingWindow | None) -> ModelShape:
    return model.model_copy(update={"sliding_window": window})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    zero = draw(st.integers(0, 3))
    is_partial = draw(st.booleans())
    recompute = draw(st.sampled_from(Recompute))
    return plan_of(
        tensor=draw(st.sampled_from([1, 2])),
        pipeline=draw(st.sampled_from([1, 2])),
        context=draw(st.sampled_from([1, 2, 4])),
        data=8,
        expert=1,
        recompute=recompute,
        recompute_num_layers=3 if is_partial and recompute is Recompute.FULL else None,
        zero=zero,
        shards=draw(st.sampled_from([None, 4])) if zero else None,
        precision=draw(st.sampled_from([Precision.BF16, Precision.FP8])),
    )


def with_experts(workload: Workload, plan: Plan) -> Plan:
    return plan.model_copy(update={"expert_parallel": 4 if workload.model.experts else 1})


def outcome(workload: Workload, plan: Plan, *offers: Offer) -> Outcomes:
    return simulate(job_of(workload, *offers), table_of(with_experts(workload, plan)))


@given(workloads(), plans())
def test_parts_sum_to_the_step_and_no_step_beats_the_peak(workload: Workload, plan: Plan) -> None:
    found = outcome(workload, plan)
    parts = sum(getattr(found.steps, name)[0] for name in STEP_PARTS)
    assert parts == pytest.approx(found.steps.step_time_s[0], rel=1e-9)
    assert 0 < found.summary.mfu_fraction[0] < 1


def grown(workload: Workload, name: str) -> Workload:
    """Returns the workload with twice as much of something."""
    if name in ("sequence_length", "global_batch_size"):
        return workload.model_copy(update={name: 2 * getattr(workload, name)})
    model = workload.model
    return workload.model_copy(update={"model": model.model_copy(update={name: 2 * getattr(model, name)})})


@given(
    workloads(),
    plans(),
    st.sampled_from(
        ["num_layers", "ffn_hidden_size", "vocabulary_size", "sequence_length", "global_batch_size"]
    ),
)
def test_more_work_never_takes_less_time_nor_memory(workload: Workload, plan: Plan, name: str) -> None:
    few, much = outcome(workload, plan), outcome(grown(workload, name), plan)
    assert much.steps.step_time_s[0] >= few.steps.step_time_s[0] * (1 - 1e-12)
    assert much.summary.peak_memory_bytes[0] >= few.summary.peak_memory_bytes[0] * (1 - 1e-12)


@given(workloads(), plans())
def test_what_shortens_attention_never_makes_a_step_longer(workload: Workload, plan: Plan) -> None:
    even = workload.documents and workload.documents.model_copy(update={"imbalance": 1.0})
    masked = workload.model_copy(update={"documents": even, "context_exchange": "all_to_all"})
    plain = masked.model_copy(update={"documents": None, "model": windowed(workload.model, None)})
    shorter_s, longer_s = (outcome(one, plan).steps.step_time_s[0] for one in (masked, plain))
    assert shorter_s <= longer_s * (1 + 1e-12)


@given(workloads(), plans())
def test_memory_falls_with_context_parallelism(workload: Workload, plan: Plan) -> None:
    plain = plan.model_copy(
        update={"context_parallel": 1, "num_gpus": plan.num_gpus // plan.context_parallel}
    )
    shared = workload.model_copy(update={"context_exchange": "ring"})
    peaks = [
        outcome(shared, one).summary.peak_memory_bytes[0]
        for one in (plain, plain.model_copy(update={"context_parallel": 2, "num_gpus": 2 * plain.num_gpus}))
    ]
    assert peaks[1] <= peaks[0] * (1 + 1e-12)
    assert np.isfinite(peaks).all()
