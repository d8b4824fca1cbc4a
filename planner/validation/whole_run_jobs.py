"""Which published runs have a known layout, and what is known about each? Every input with its origin and its source."""

from __future__ import annotations

from planner.validation.known_run import Input, KnownRun, Origin

MLPERF_STEPS = 288
"""Steps to the target in the GPT-3 submissions on 512 H100 to MLPerf Training v3.0 and v3.1."""
MLPERF_V31_S, MLPERF_V31_EVALUATION_S = 3498.0, 308.0
"""Duration of the v3.1 submission, and the part of it spent in its 24 evaluations."""
MLPERF_WORK_STEPS = MLPERF_STEPS * MLPERF_V31_S / (MLPERF_V31_S - MLPERF_V31_EVALUATION_S)
"""As many steps as take the time of those to the target plus the evaluations between them."""


def _published(field: str, value: object, source: str) -> Input:
    return Input(field=field, value=value, origin=Origin.PUBLISHED, source=source)


def _assumed(field: str, value: object, reason: str) -> Input:
    return Input(field=field, value=value, origin=Origin.ASSUMED, source=reason)


def _own(field: str, value: object, source: str) -> Input:
    return Input(field=field, value=value, origin=Origin.OWN, source=source)


_BLOOM, _SCRIPT = "arXiv 2211.05100", "bigscience-workshop/bigscience, train/tr11-176B-ml"
_LLAMA = "arXiv 2407.21783"
_MT_NLG = "arXiv 2201.11990, section 2"
_MLPERF, _EARLIER = "MLPerf Training v4.0, power, 64 nodes", "its submissions of this size to v3.0 and v3.1"
_DEEPSEEK = "arXiv 2412.19437"
_HIDDEN = True
_AT_THE_METER = "metered at the nodes: without network and cooling"

KNOWN_RUNS = (
    KnownRun(
        row="run-021",
        framework="Megatron-DeepSpeed",
        inputs=(
            _published("workload.model", "bloom-176b", _BLOOM),
            _published("workload.tokens", 366e9, _BLOOM),
            _published("workload.sequence_length", 2048, _BLOOM),
            _published("workload.global_batch_size", 2048, _BLOOM),
            _published("offer.accelerator", "a100-sxm4-80gb", _BLOOM),
            _published("offer.node", "bloom-node", f"{_BLOOM}: four links of 100 Gbit/s a node"),
            _published("offer.fabric", "omni-path", _BLOOM),
            _published("offer.num_gpus", 384, f"{_BLOOM}: 48 nodes"),
            _published("site", "jean-zay", "arXiv 2211.02001"),
            _published("plan.tp", 4, f"{_BLOOM}, {_SCRIPT}"),
            _published("plan.pp", 12, f"{_BLOOM}, {_SCRIPT}"),
            _published("plan.dp", 8, f"{_BLOOM}, {_SCRIPT}"),
            _published("plan.mbs", 2, _SCRIPT),
            _published("plan.recompute", "full", _SCRIPT),
            _own("plan.num_spare_nodes", 4, f"{_BLOOM}: four nodes in reserve"),
            _own("plan.checkpoint_scheme", "sync_sharded", f"{_SCRIPT}: the run waits for its saves"),
            _own("plan.checkpoint_interval_s", 18_000.0, f"{_SCRIPT}: a save every 3-7 h"),
            _own("storage.write_bytes_per_s", 57e9, f"{_SCRIPT}: 2.3 TB in 40 s"),
            _own("storage.read_bytes_per_s", 57e9, "as fast as saves"),
            _own("reliability.preset", "mature", "the nearest in the rate of failures"),
            _own("reliability.failures_per_1000_node_days", 3.0, f"{_SCRIPT}: 1 a week on 48 nodes"),
            _own("reliability.process_fault_fraction", 0.3, f"{_SCRIPT}: most were of GPUs"),
        ),
        own_figures="58 steps of BigScience in the constants, this run's production step of 104.5 s among them; its failures, "
        "saves and storage, and its nodes in reserve",
        in_their_place="a fit without BigScience; the rules",
        publisher="BigScience",
        note="hours are of the whole occupancy; energy is nameplate arithmetic",
    ),
    KnownRun(
        row="run-013",
        framework="Meta internal",
        inputs=(
            _published("workload.model", "llama-3.1-405b", f"{_LLAMA}, table 3"),
            _published("workload.tokens", 15.6e12, f"{_LLAMA}, section 1"),
            _published("workload.sequence_length", 8192, f"{_LLAMA}, table 4"),
            _published("workload.global_batch_size", 2048, f"{_LLAMA}, table 4: 16 M tokens"),
            _published("offer.accelerator", "h100-sxm5-80gb", f"{_LLAMA}, section 3.3.1"),
            _published("offer.fabric", "ethernet-roce-400g", f"{_LLAMA}, section 3.3.1"),
            _published("offer.num_gpus", 16_384, f"{_LLAMA}, table 4"),
            _assumed(
                "site",
                "us-iowa",
                "where it stood is not published; the grid changes neither hours nor energy",
            ),
            _published("plan.tp", 8, f"{_LLAMA}, table 4"),
            _published("plan.pp", 16, f"{_LLAMA}, table 4"),
            _published("plan.dp", 128, f"{_LLAMA}, table 4"),
            _published("plan.zero_stage", 2, f"{_LLAMA}, section 3.3.2: gradients are sharded, weights stay"),
            _published("plan.recompute", "none", f"{_LLAMA}, section 3.3.2"),
            _assumed("plan.vpp", 8, "an interleaved schedule is published, not its chunks: one layer each"),
            _assumed("plan.mbs", 1, "not published"),
            _own("storage.write_bytes_per_s", 2e12, f"{_LLAMA}, section 3.3.1: sustained by its cluster"),
            _own("storage.read_bytes_per_s", 2e12, f"{_LLAMA}, section 3.3.1"),
            _own("reliability.preset", "frontier", f"{_LLAMA}, table 5: 419 interruptions in 54 days"),
        ),
        own_figures="none of its steps in the constants; its 419 interruptions in 54 days are the rate of failures "
        "(`frontier`); its storage",
        in_their_place="the rules",
        note="hours hold all stages of training; 3.8e25 FLOP at the published 400 TFLOP/s are 26.4 M; no energy is "
        "published, but hours, watts and tonnes",
    ),
    KnownRun(
        row="run-030",
        framework="Megatron-DeepSpeed",
        inputs=(
            _published("workload.model", "mt-nlg-530b", _MT_NLG),
            _published("workload.tokens", 270e9, "arXiv 2201.11990, section 3"),
            _published("workload.sequence_length", 2048, "arXiv 2201.11990, section 3"),
            _published("workload.global_batch_size", 1920, "arXiv 2201.11990, section 3"),
            _published("offer.accelerator", "a100-sxm4-80gb", _MT_NLG),
            _published("offer.num_gpus", 4480, "Epoch AI; all 560 nodes of its machine"),
            _assumed("site", "us-iowa", "the grid changes neither hours nor energy"),
            _published("plan.tp", 8, _MT_NLG),
            _published("plan.pp", 35, _MT_NLG),
            _assumed("plan.dp", 16, "steps are published with 8, 10 and 12 replicas; 16 fill the machine"),
            _assumed("plan.mbs", 1, "not published"),
            _published("plan.recompute", "full", _MT_NLG),
        ),
        own_figures="3 steps of the same model and layout at 2,240, 2,800 and 3,360 GPUs in the constants",
        in_their_place="a fit without MT-NLG",
        publisher="MT-NLG",
        note="published hours are themselves an estimate (Epoch AI)",
    ),
    KnownRun(
        row="run-093",
        framework="NVIDIA release",
        inputs=(
            _published("workload.model", "gpt3-175b", _MLPERF),
            _published(
                "workload.tokens",
                MLPERF_WORK_STEPS * 2048 * 2048,
                f"{_EARLIER}: {MLPERF_STEPS} steps, and {MLPERF_V31_EVALUATION_S:g} of {MLPERF_V31_S:,g} s for evaluations",
            ),
            _published("workload.sequence_length", 2048, _MLPERF),
            _published("workload.global_batch_size", 2048, _MLPERF),
            _published("offer.accelerator", "h100-sxm5-80gb", _MLPERF),
            _published("offer.node", "hgx-h100-immersion", _MLPERF),
            _published("offer.fabric.kind", "infiniband-ndr", _MLPERF),
            _published("offer.fabric.switch_power_w", 0, _AT_THE_METER),
            _published("offer.fabric.optic_power_w", 0, _AT_THE_METER),
            _published("offer.num_gpus", 512, _MLPERF),
            _published("site.region", "the meter at the nodes", _AT_THE_METER),
            _published("site.power_usage_effectiveness", 1.0, _AT_THE_METER),
            _assumed("site.grid_kgco2e_per_kwh", 0.4, "changes neither hours nor energy"),
            _assumed("site.electricity_usd_per_kwh", 0.1, "changes neither hours nor energy"),
            _published(
                "reliability.restart.initialize_s", 0.0, "the clock of MLPerf starts with the training"
            ),
            _published("reliability.restart.warm_up_s", 0.0, "the clock of MLPerf starts with the training"),
            _published("plan.tp", 4, _MLPERF),
            _published("plan.pp", 8, _MLPERF),
            _published("plan.vpp", 12, _EARLIER),
            _published("plan.dp", 16, _MLPERF),
            _published("plan.mbs", 2, _MLPERF),
            _published("plan.precision", "fp8", _MLPERF),
            _own("plan.checkpoint_scheme", "none", "submissions do not save"),
            _own("reliability.failures_per_1000_node_days", 1e-6, "what fails is not submitted"),
            _own("reliability.straggler_log_mean", None, "submitters vet their machines"),
        ),
        own_figures="5 steps of MLPerf Training in the constants, two of them of this model, layout and size (v3.0, v3.1); "
        "power of computation and host fitted to its meters; no failures, stragglers or saves, as after the fact",
        in_their_place="a fit without MLPerf Training; power of computation as metered on B200; the "
        "power of the host stays as solved from its logs; the rules",
        publisher="MLPerf Training",
        unseen_compute_power_fraction=1.05,
        note="metered at the nodes; its work is 288 steps and evaluations, as in the submissions of this size to v3.0 and v3.1",
    ),
    KnownRun(
        row="run-101",
        framework="HAI-LLM",
        inputs=(
            _published("workload.model.name", "deepseek-v3", f"{_DEEPSEEK}, section 4.2"),
            _published(
                "workload.model.num_mtp_layers", 1, f"{_DEEPSEEK}, sections 2.2 and 4.2: one token more"
            ),
            _published("workload.tokens", 14.8e12, f"{_DEEPSEEK}, section 4.2"),
            _published("workload.sequence_length", 4096, f"{_DEEPSEEK}, section 4.2"),
            _published(
                "workload.global_batch_size", 15_360, f"{_DEEPSEEK}, section 4.2: from 3,072 in the beginning"
            ),
            _published(
                "workload.overlaps_expert_exchange", _HIDDEN, f"{_DEEPSEEK}, section 3.2.1: by DualPipe"
            ),
            _assumed(
                "workload.stage_layers",
                [4] * 15 + [1],
                "not published; as Megatron-Bridge cuts it into as many chunks, the last one with multi-token prediction",
            ),
            _published("offer.accelerator", "h800-sxm5-80gb", f"{_DEEPSEEK}, section 3.1"),
            _published("offer.num_gpus", 2048, f"{_DEEPSEEK}, section 3.1"),
            _assumed("site", "us-iowa", "the grid changes neither hours nor energy"),
            _published("plan.tp", 1, f"{_DEEPSEEK}, section 3.2"),
            _published(
                "plan.pp",
                8,
                f"{_DEEPSEEK}, section 3.2: 16 stages, of which DualPipe has two that do the same",
            ),
            _published("plan.ep", 64, f"{_DEEPSEEK}, section 3.2"),
            _published("plan.dp", 256, f"{_DEEPSEEK}, section 3.2: 128, for both directions of each"),
            _published(
                "plan.pipeline_schedule", "dual_pipe_v", f"{_DEEPSEEK}, section 3.2.1: the equal of DualPipe"
            ),
            _published("plan.vpp", 2, f"{_DEEPSEEK}, section 3.2.1: two stages on each accelerator"),
            _published("plan.zero_stage", 1, f"{_DEEPSEEK}, section 3.2"),
            _published("plan.precision", "fp8", f"{_DEEPSEEK}, section 3.3"),
            _assumed("plan.mbs", 1, "not published"),
            _published(
                "workload.recompute_modules",
                ["mla_up_proj", "layernorm", "moe_act"],
                f"{_DEEPSEEK}, sections 3.2.3, 3.3.3",
            ),
            _published("plan.recompute", "selective", f"{_DEEPSEEK}, section 3.2.3"),
        ),
        own_figures="none of its steps in the constants; its report for the habits of HAI-LLM",
        in_their_place="the rules",
        note="hours of the pre-training alone",
    ),
)
"""The runs of `data/published_runs.csv` that are predicted."""
