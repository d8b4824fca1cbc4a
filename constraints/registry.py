"""Which constraints must a design keep? Each by name: what it says, its formula, unit and source, and what to change.

Layouts, limits, answers and purchase plans use these names for constraints and no others. Letters as in docs/model.md:
t, p, v, c, e, D are tensor, pipeline, virtual-pipeline, context, expert and data parallelism, N the accelerators, b the
sequences of a micro-batch, B those of a step, s the tokens of a sequence, L the layers; x | y: x divides y. The ranks of a
shard group, `shard_ranks`, are z.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from constraints.layout import LAYOUT_RULES
from simulator.record import Record

MEGATRON = "Shoeybi et al., arXiv 1909.08053"
MEGATRON_PIPELINE = "Narayanan et al., arXiv 2104.04473"
SEQUENCE_PARALLEL = "Korthikanti et al., arXiv 2205.05198"
ZERO = "Rajbhandari et al., arXiv 1910.02054"
JOB = "the job (limits)"
FLEET = "the fleet"


class Constraint(Record):
    """One constraint in words."""

    name: str
    """Its name in jobs and answers."""
    kind: Literal["layout", "physics", "limit", "purchase"]
    """`layout`: the split cannot run or is not on offer; `physics`: memory and progress; `limit`: one that the job sets;
    `purchase`: one of a purchase plan for several jobs."""
    sentence: str
    """The rule in words."""
    formula: str
    """The constraint as a comparison, in the letters of docs/model.md."""
    unit: str
    """Unit of both sides; 1 for counts and shares."""
    source: str
    """Source of the constraint."""
    way_out: str
    """What to change if it is violated."""


def _layout_constraints() -> tuple[Constraint, ...]:
    """The rules of layouts, in the order in which reports name them."""
    sentences = {rule.name: rule.sentence for rule in LAYOUT_RULES}
    return tuple(
        Constraint(name=name, kind="layout", sentence=sentence, unit="1", **_ABOUT_LAYOUTS[name])
        for name, sentence in sentences.items()
    )


def _about(formula: str, source: str, way_out: str) -> dict[str, str]:
    return {"formula": formula, "source": source, "way_out": way_out}


_ABOUT_LAYOUTS: Mapping[str, dict[str, str]] = {
    "gpu_range": _about(
        "offers[].num_gpus.min <= N <= offers[].num_gpus.max, nodes + spares <= offers[].max_nodes",
        "the job (offers): what is available",
        "offers[].num_gpus, offers[].max_nodes, or data_parallel",
    ),
    "whole_nodes": _about(
        "(accelerators of a node) | N",
        "nodes are sold and rented whole (catalogue, nodes)",
        "data_parallel, or another node",
    ),
    "attention_heads": _about(
        "t | heads, and t | KV heads or KV heads | t, and t | heads of vision; t = 1 with compressed attention",
        f"{MEGATRON}: heads are split over ranks; more ranks than KV heads hold copies of them; compressed attention "
        "has all heads on every rank (DSv4HybridAttention of Megatron Core)",
        "tensor_parallel",
    ),
    "feed_forward": _about(
        "t | ffn_hidden_size, and that of vision", f"{MEGATRON}: columns are split", "tensor_parallel"
    ),
    "layers": _about(
        "p v <= L, or p v = L + 2",
        f"{MEGATRON_PIPELINE}; uneven chunks: Megatron Core, pipeline_model_parallel_layout; no layer at both ends: Llama 3, "
        "arXiv 2407.21783, section 3.3.2",
        "pipeline_parallel or virtual_pipeline",
    ),
    "interleaving": _about(
        "v = 1, or p > 1 and p | B / (D b), or n is given; under zb_v any, under dual_pipe_v B / (D b) >= 2 p",
        f"{MEGATRON_PIPELINE}, section 2.2; deepseek-ai/DualPipe, dualpipev.py",
        "virtual_pipeline, interleaved_group_size, data_parallel or micro_batch_size",
    ),
    "interleaved_groups": _about(
        "v > 1 under 1f1b, p <= n <= B / (D b), and B / (D b) mod n = 0 or >= p, where interleaved_group_size n is given",
        "Megatron Core, microbatch_group_size_per_vp_stage (schedules.py); Llama 3, arXiv 2407.21783, section 3.3.2",
        "interleaved_group_size, virtual_pipeline, data_parallel or micro_batch_size",
    ),
    "schedule": _about(
        "v = 1 under gpipe and zb_h1, v = 2 under zb_v and dual_pipe_v, and p > 1 under all four",
        "GPipe: Huang et al., arXiv 1811.06965; zero bubbles: Qi et al., arXiv 2401.10241 and 2405.15362; DeepSeek-V3, arXiv "
        "2412.19437",
        "pipeline_schedule, virtual_pipeline or pipeline_parallel",
    ),
    "weight_gradients": _about(
        "inputs of products stay or are restored, and zero_stage <= 1, under zb_h1, zb_v and dual_pipe_v",
        "weight gradients are computed after the backward pass: Qi et al., arXiv 2401.10241",
        "pipeline_schedule, recompute or zero_stage",
    ),
    "batch": _about(
        "D b | B", "every replica takes the same number of micro-batches (Megatron-LM)",
        "workload.global_batch_size, data_parallel or micro_batch_size",
    ),
    "sequence": _about(
        "2 c | s where c > 1; with sequence parallelism 2 c t | s, and t | s at c = 1",
        f"two pieces per rank balance the causal mask: Llama 3, arXiv 2407.21783, section 3.3.2; t: {SEQUENCE_PARALLEL}",
        "context_parallel, tensor_parallel or workload.sequence_length",
    ),
    "context_exchange": _about(
        "u = 1, or t u | heads, t u | KV heads and u | c; with a window u = c unless all_gather; compressed: c = 1",
        "DeepSpeed Ulysses, arXiv 2309.14509: each of u ranks holds a share of the heads; windows: Transformer Engine",
        "workload.context_exchange, context_parallel or tensor_parallel",
    ),
    "experts": _about(
        "e | experts, e t_e | t c D and t_e | expert_ffn_hidden_size; e = 1 for dense models",
        "every rank holds the same number of experts (GShard, arXiv 2006.16668)",
        "expert_parallel or workload.expert_tensor_parallel",
    ),
    "number_format": _about(
        "the accelerator has a peak rate in the format",
        "catalogue, accelerators",
        "workload.precisions, or another accelerator",
    ),
    "recomputed_layers": _about(
        "recompute = full and n <= L / (p v) rounded up, where recompute_num_layers n is given",
        "Megatron Core, recompute_num_layers: layers of a chunk, or of a group within it",
        "recompute_num_layers, recompute, pipeline_parallel or virtual_pipeline",
    ),
    "shard_groups": _about(
        "c | z, z | D c and zero_stage >= 1, where z is given; with experts z t | e t_e or e t_e | z t",
        "HSDP: Zhao et al., arXiv 2304.11277, section 3.2.2: every shard group holds a whole copy",
        "shard_ranks (search.hybrid_sharding), zero_stage, data_parallel or context_parallel",
    ),
    "whole_matrices": _about(
        "zero_stage <= 1, no z and no fp16, where workload.muon is given",
        "Megatron Core: layer_wise_optimizer.py, and _get_megatron_emerging_optimizer of optimizer/__init__.py",
        "zero_stage, shard_ranks, precision, or workload.muon",
    ),
    "peer_memory": _about(
        "N > (peer_copies - 1) x accelerators of a node",
        "Gemini (Wang et al., SOSP 2023): copies are on different nodes",
        "checkpoint_scheme, checkpointing.peer_copies, or more nodes",
    ),
    "live_replica": _about(
        "D >= 2 and zero_stage = 0, or D c >= 2 z; with experts also D c t >= 2 e t_e",
        f"{ZERO}: from stage 1, no two replicas of a shard group hold the same optimizer states",
        "checkpoint_scheme, data_parallel, zero_stage, shard_ranks or expert_parallel",
    ),
    "gradient_mirror": _about(
        "D >= 2 and zero_stage <= 2",
        "FlowCheck (EuroSys 2025) and Checkmate (arXiv 2507.13522) read the gradients that replicas exchange",
        "checkpoint_scheme, data_parallel or zero_stage",
    ),
    "server_memory": _about(
        "(bytes of state + bytes of gradient) x parameters <= servers x memory of a server",
        "FlowCheck (EuroSys 2025): servers hold the whole state",
        "checkpointing.num_servers, or omit it: as many as needed",
    ),
}  # fmt: skip


_DEGREES = Constraint(
    name="degrees",
    kind="layout",
    sentence="the product of the degrees of parallelism must equal the number of accelerators that train",
    formula="t p c D = N",
    unit="1",
    source=MEGATRON_PIPELINE,
    way_out="num_gpus, or one of the degrees",
)

PHYSICS = (
    Constraint(
        name="memory",
        kind="physics",
        sentence="the training must fit in the memory of the most loaded accelerator",
        formula="max over stages (weights + gradients + optimizer + activations + buffers) <= memory x (1 - memory_headroom)",
        unit="B",
        source=f"docs/model/memory.md: {SEQUENCE_PARALLEL}; {ZERO}",
        way_out="more tensor_parallel or pipeline_parallel, a higher zero_stage, recompute, smaller micro-batches",
    ),
    Constraint(
        name="host_memory",
        kind="physics",
        sentence="saves in progress and offloaded data must fit in a node's main memory",
        formula="(saves at once) x (bytes of a node's shards and of its peers' copies) + offloaded bytes <= main memory",
        unit="B",
        source="Gemini (Wang et al., SOSP 2023); docs/model/checkpoints.md, docs/model/memory.md (Offloading)",
        way_out="another checkpoint_scheme, fewer checkpointing.peer_copies, less offloading, or more nodes",
    ),
    Constraint(
        name="progress",
        kind="physics",
        sentence="the run must save work faster than failures lose it",
        formula="expected wall time < infinity",
        unit="s",
        source="Daly, FGCS 22 (2006): above some failure rate, no work is kept; docs/model/run.md (The expected run)",
        way_out="shorter or faster saves (checkpoint_scheme, storage), fewer nodes, reliability",
    ),
)
"""Constraints that users cannot change."""


def _limit(name: str, sentence: str, formula: str, unit: str, way_out: str) -> Constraint:
    return Constraint(
        name=name, kind="limit", sentence=sentence, formula=formula, unit=unit, source=JOB, way_out=way_out
    )


LIMITS = (
    _limit(
        "budget_usd", "the cost of the run must not exceed the budget",
        "rent, or ownership and electricity, for the expected wall time <= budget_usd", "USD",
        "limits.budget_usd, a cheaper offer, or fewer accelerators where time allows",
    ),
    _limit(
        "budget_probability", "the cost of the run must stay within the budget with at least this probability",
        "P(cost <= budget_usd) >= budget_probability", "1",
        "limits.budget_probability or limits.budget_usd",
    ),
    _limit(
        "deadline_days", "the run must end by the deadline",
        "expected wall time <= deadline_days", "d",
        "limits.deadline_days, more or faster accelerators (offers), fewer tokens",
    ),
    _limit(
        "deadline_probability", "the run must end by the deadline with at least this probability",
        "P(wall time <= deadline_days) >= deadline_probability", "1",
        "limits.deadline_probability or limits.deadline_days",
    ),
    _limit(
        "power_w", "the facility must not draw more power than the site supplies",
        "IT power at full load x (power usage effectiveness in the warmest hour) <= power_w", "W",
        "limits.power_w, search.power_caps, or fewer accelerators",
    ),
    _limit(
        "hall_power_w", "the cluster must not draw more power than its hall supplies",
        "IT power of all nodes, fabric and storage <= hall_power_w", "W",
        "limits.hall_power_w, search.power_caps, or fewer accelerators",
    ),
    _limit(
        "rack_power_w", "a rack must not draw more power than its feed supplies",
        "IT power of the nodes of a rack (nodes_per_rack) <= rack_power_w", "W",
        "limits.rack_power_w, search.power_caps, or another node",
    ),
    _limit(
        "power_swing_w", "a sudden change of the facility's power must not exceed the limit",
        "power while computing - power while standing still <= power_swing_w", "W",
        "limits.power_swing_w, operation.power_floor_fraction, search.power_caps, or fewer accelerators",
    ),
    _limit(
        "power_range_fraction", "a sudden change of power must not exceed this share of its peak",
        "(computing - standing still) / computing <= power_range_fraction", "1",
        "limits.power_range_fraction, operation.power_floor_fraction or search.power_caps",
    ),
    _limit(
        "power_ramp_w_per_s", "power must not rise or fall faster than the limit",
        "(computing - standing still) / operation.power_ramp_s <= power_ramp_w_per_s", "W/s",
        "limits.power_ramp_w_per_s, operation.power_ramp_s, operation.power_floor_fraction or search.power_caps",
    ),
    _limit(
        "num_gpus", "the accelerators that train must not exceed the limit",
        "N <= num_gpus", "1", "limits.num_gpus, or faster accelerators",
    ),
    _limit(
        "carbon_kgco2e", "the emissions of the run must not exceed the limit",
        "energy x grid carbon intensity + share of embodied carbon <= carbon_kgco2e", "kg",
        "limits.carbon_kgco2e, another site, search.power_caps, or newer accelerators",
    ),
)  # fmt: skip
"""Limits that a job sets."""


def _purchase(name: str, sentence: str, formula: str, unit: str, way_out: str) -> Constraint:
    return Constraint(
        name=name, kind="purchase", sentence=sentence, formula=formula, unit=unit, source=FLEET,
        way_out=way_out,
    )  # fmt: skip


PURCHASES = (
    _purchase(
        "job_window", "every job must run between its earliest start and its deadline",
        "earliest_start_day <= start and start + duration <= deadline_day", "d",
        "jobs[].deadline_day or jobs[].earliest_start_day",
    ),
    _purchase(
        "node_delivery", "at any time, jobs must not use more nodes than have been delivered or rented for them",
        "at any time: nodes in use <= nodes delivered or reserved until then", "1",
        "offers[].buy.first_delivery_day and max_nodes, or rent",
    ),
    _purchase(
        "node_supply", "nodes bought, reserved, or rented at once must not exceed those on offer",
        "nodes bought, reserved, or rented at once <= max_nodes of the offer", "1", "offers[].buy or rent: max_nodes",
    ),
    _purchase(
        "num_lots", "nodes must be delivered in at most the agreed number of lots",
        "lots with nodes <= max_lots", "1", "offers[].buy.max_lots",
    ),
    _purchase(
        "site_power_w", "all nodes at the site together must not draw more power than it supplies",
        "at any time: peak power of running jobs + idle power of the other nodes that were bought <= power_w", "W",
        "limits.power_w, other start days, or rent",
    ),
    _purchase(
        "fleet_budget_usd", "the total cost of all jobs must not exceed the budget",
        "use of what is bought + reservations + rent + electricity <= budget_usd", "USD", "limits.budget_usd",
    ),
    _purchase(
        "capital_usd", "the capital cost of purchases must not exceed the limit",
        "sum of nodes bought x (price + network + installation) <= capital_usd", "USD", "limits.capital_usd, or rent",
    ),
)  # fmt: skip
"""Constraints on a plan over several jobs."""

CONSTRAINTS: Mapping[str, Constraint] = MappingProxyType(
    {one.name: one for one in (_DEGREES, *_layout_constraints(), *PHYSICS, *LIMITS, *PURCHASES)}
)
"""All constraints by name, in the order in which reports name them."""
