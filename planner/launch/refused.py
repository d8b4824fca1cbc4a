"""What does Megatron-LM refuse? Networks, accelerators and lengths that nothing stands in for."""

from __future__ import annotations

from collections.abc import Iterator

from constraints.best_cut import present_cut
from planner.chosen_kernels import FRAMEWORK, without_kernels
from planner.launch.model import has_biases
from planner.shared_choices import cut_at_indexers
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.errors import Problem

VENDORS = ("NVIDIA", "AMD")
"""Whose accelerators run it; AMD maintains a copy of it (ROCm/Megatron-LM)."""


def refused(job: Job, plan: Plan) -> list[Problem]:
    """Returns what cannot be replaced."""
    accelerator, workload = job.offers[plan.offer].accelerator, job.workload
    problems = [*_shapes(workload.model), *_positions(workload), *_rows(workload, plan)]
    if workload.model.indexer:
        problems += [*_chosen_tokens(job, plan), *_shared_choices(job, plan)]
    if accelerator.vendor not in VENDORS:
        rule = f"{FRAMEWORK} runs on GPUs of {' and '.join(VENDORS)}; take an offer of theirs"
        problems.append((f"offers[{plan.offer}].accelerator", accelerator.id, rule))
    if workload.lora:
        rule = f"{FRAMEWORK} trains all weights; adapters are trained by Megatron-Bridge and NeMo"
        problems.append(("workload.lora", f"rank {workload.lora.rank}", rule))
    if workload.images:
        rule = (
            f"{FRAMEWORK}'s pretrain_gpt.py trains on text; vision encoders are trained by Megatron-Bridge, and "
            "workload.images=null starts the language model alone"
        )
        problems.append(("workload.images.per_sequence", f"{workload.images.per_sequence:g}", rule))
    if workload.documents and plan.context_parallel > 1:
        # `get_batch` of pretrain_gpt.py, and `cu_seqlens_q_per_step` of Transformer Engine's context_parallel.py.
        rule = f"{FRAMEWORK} splits packed sequences, and its attention expects parts of each document; leave one out"
        problems.append(("context_parallel", f"{plan.context_parallel} beside workload.documents", rule))
    return [Problem(path=path, value=value, rule=rule) for path, value, rule in problems]


def _shapes(model: ModelShape) -> list[tuple[str, str, str]]:
    """What of a network Megatron-LM's GPT models do not have."""
    window = model.sliding_window
    found = []
    if window and window.is_chunked:
        rule = f"{FRAMEWORK} has windows that move with each token, not in steps of their size"
        found.append(("workload.model.sliding_window.is_chunked", "true", rule))
    if model.linear_attention:
        rule = f"{FRAMEWORK} needs the order of a hybrid's blocks (--hybrid-layer-pattern), which a job does not have"
        found.append(("workload.model.linear_attention.kind", model.linear_attention.kind, rule))
    if compressed := model.compressed_attention:
        rule = (
            f"{FRAMEWORK} of August 2026 has no attention to compressed tokens (csa.py) but on its branch dev"
        )
        found.append(("workload.model.compressed_attention.query_rank", str(compressed.query_rank), rule))
    if hyper := model.hyper_connections:
        rule = f"{FRAMEWORK}'s pretrain_gpt.py builds no layers with several residual streams (mhc_num_residual_streams)"
        found.append(("workload.model.hyper_connections.num_streams", str(hyper.num_streams), rule))
    if model.parallel_block:
        rule = f"{FRAMEWORK} runs attention and feed-forward block one after the other"
        found.append(("workload.model.parallel_block", model.parallel_block, rule))
    if model.qk_norm == "all_heads":
        rule = f"{FRAMEWORK} has norms of queries and keys for one head, and without weights"
        found.append(("workload.model.qk_norm", model.qk_norm, rule))
    if model.experts and model.experts.has_biases and model.experts.shared_ffn_hidden_size:
        rule = f"{FRAMEWORK} has no shared experts beside experts with biases"
        found.append(("workload.model.experts.has_biases", "true", rule))
    return found


def _positions(workload: Workload) -> Iterator[tuple[str, str, str]]:
    """What its learned positions exclude."""
    num_learned = workload.model.num_learned_positions
    if not num_learned:
        return
    path, value = "workload.model.num_learned_positions", str(num_learned)
    if num_learned < workload.sequence_length:
        yield path, value, f"must be at least sequence_length ({workload.sequence_length})"
    if workload.model.num_mtp_layers:
        yield path, value, f"{FRAMEWORK} has multi-token prediction with rotary positions alone"


def _rows(workload: Workload, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Tokens that cannot be cast: a rank's (`assert_dim_for_fp8_exec` of Transformer Engine), and whole blocks of scales."""
    if plan.precision not in {Precision.FP8, Precision.FP4}:
        return
    is_mxfp8 = plan.precision is Precision.FP8 and workload.fp8_recipe == "mxfp8"
    block = 32 if is_mxfp8 else 16 if plan.precision is Precision.FP4 else 8
    is_split = workload.has_sequence_parallel or workload.model.experts
    gathered = workload.sequence_length * plan.micro_batch_size // plan.context_parallel
    own = gathered // plan.tensor_parallel if is_split else gathered
    if gathered % block or own % 8:
        tokens, multiple = (own, 8) if own % 8 else (gathered, block)
        rule = f"a product has {tokens} tokens of a micro-batch, and Transformer Engine casts multiples of {multiple}"
        yield "workload.sequence_length", str(workload.sequence_length), rule


def _chosen_tokens(job: Job, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What its fused kernels for chosen tokens do not take; it would run others, which are not simulated."""
    yield from without_kernels(job, plan)
    if has_biases(job.workload.model):
        rule = f"{FRAMEWORK} has no biases of products beside attention to chosen tokens"
        yield "workload.model", job.workload.model.name, rule


def _shared_choices(job: Job, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Chunks of which some would have to see what a layer of another rank saw."""
    model, cut = job.workload.model, present_cut(job, plan)
    if cut and model.indexer and plan.pipeline_parallel > 1 and cut_at_indexers(model, cut) is None:
        number = model.indexer.num_among(model.num_layers)
        rule = f"must be at most {number}: in {FRAMEWORK} each chunk begins with a layer that has an indexer"
        yield "pipeline_parallel x virtual_pipeline", str(len(cut)), rule
