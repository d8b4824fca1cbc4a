"""Which published runs have a known layout, and how would a planner ask for them? With, and without what they told us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

OLD_MEGATRON: Mapping[str, object] = {
    "attention": "unfused",
    "has_sequence_parallel": False,
    "overlaps_gradient_sync": False,
}
TYPICAL = "typical"
"""The preset of a planner who knows no fleet of his own."""
RENT = {"rent_usd_per_gpu_hour": 2.0}
AT_THE_METER = {
    "region": "the meter at the nodes",
    "grid_kgco2e_per_kwh": 0.4,
    "electricity_usd_per_kwh": 0.1,
    "power_usage_effectiveness": 1.0,
}


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """A published run whose layout is known, as a planner would ask for it."""

    row: str
    """Its row in `data/published_runs.csv`."""
    source: str
    """Where the layout comes from."""
    job: Mapping[str, object]
    """The job with what was published of the fleet and the run, as far as it is an input."""
    plan: Mapping[str, object]
    own_figures: str
    """What of the run itself is in these inputs, or in the constants,"""
    in_their_place: str
    """and what stands there without the run."""
    publisher: str = ""
    """Whose steps the constants hold, as `benchmarks.hold_out` names it; empty: none."""
    unseen_job: Mapping[str, object] = field(default_factory=dict)
    """Fields of the job that take the place of what the run itself has told,"""
    unseen_plan: Mapping[str, object] = field(default_factory=dict)
    """the same of the plan; `None` leaves a field out,"""
    unseen_compute_power_fraction: float | None = None
    """and power of computation by other runs' meters, where the shipped one is fitted to this run's."""
    note: str = ""

    def without_the_run(self) -> KnownRun:
        """Returns the run as somebody would ask for it who has seen nothing of it but model, tokens, layout and hardware."""
        plan = {**self.plan, **self.unseen_plan}
        kept = {name: value for name, value in plan.items() if value is not None}
        return replace(self, job={**self.job, **self.unseen_job}, plan=kept)


KNOWN_RUNS = (
    KnownRun(
        row="run-021",
        source="BigScience, train/tr11-176B-ml; arXiv 2211.05100",
        job={
            "workload": {
                "model": "bloom-176b",
                "tokens": 366e9,
                "sequence_length": 2048,
                "global_batch_size": 2048,
                **OLD_MEGATRON,
            },
            "offers": [
                {
                    "accelerator": "a100-sxm4-80gb",
                    "node": "bloom-node",
                    "fabric": "omni-path",
                    "num_gpus": 384,
                    **RENT,
                }
            ],
            "storage": {"write_bytes_per_s": 57e9, "read_bytes_per_s": 57e9},
            "site": "jean-zay",
            "reliability": {
                "preset": "mature",
                "failures_per_1000_node_days": 3.0,
                "process_fault_fraction": 0.3,
            },
        },
        plan={
            "tp": 4,
            "pp": 12,
            "dp": 8,
            "mbs": 2,
            "recompute": "full",
            "checkpoint_scheme": "sync_sharded",
            "checkpoint_interval_s": 18_000.0,
        },
        own_figures="58 steps of BigScience in the constants, this run's production step of 104.5 s among them; its failures "
        "(1 a week on 48 nodes) and their kind; saves every 5 h (3-7 h published); 57 GB/s (2.3 TB in 40 s)",
        in_their_place="a fit without BigScience; failures, saves and storage of a typical fleet",
        publisher="BigScience",
        unseen_job={"storage": {}, "reliability": TYPICAL},
        unseen_plan={"checkpoint_interval_s": None},
        note="hours are of the whole occupancy; energy is nameplate arithmetic",
    ),
    KnownRun(
        row="run-013",
        source="arXiv 2407.21783, section 3.3 and table 4",
        job={
            "workload": {
                "model": "llama-3.1-405b",
                "tokens": 15.6e12,
                "sequence_length": 8192,
                "global_batch_size": 2048,
            },
            "offers": [
                {
                    "accelerator": "h100-sxm5-80gb",
                    "fabric": "ethernet-roce-400g",
                    "num_gpus": 16_384,
                    **RENT,
                }
            ],
            "storage": {"write_bytes_per_s": 2e12, "read_bytes_per_s": 2e12},
            "site": "us-iowa",
            "reliability": "frontier",
        },
        plan={"tp": 8, "pp": 16, "vpp": 8, "dp": 128, "mbs": 1, "num_spare_nodes": 32},
        own_figures="none of its steps in the constants; its 419 interruptions in 54 days are the rate of failures "
        "(`frontier`)",
        in_their_place="failures of a typical fleet",
        unseen_job={"reliability": TYPICAL},
        note="hours hold all stages of training; 3.8e25 FLOP at the published 400 TFLOP/s are 26.4 M; energy is nameplate "
        "arithmetic",
    ),
    KnownRun(
        row="run-030",
        source="arXiv 2201.11990, section 2.3: TP 8, PP 35, batch 1920",
        job={
            "workload": {
                "model": "mt-nlg-530b",
                "tokens": 270e9,
                "sequence_length": 2048,
                "global_batch_size": 1920,
                **OLD_MEGATRON,
            },
            "offers": [{"accelerator": "a100-sxm4-80gb", "num_gpus": 4480, **RENT}],
            "site": "us-iowa",
            "reliability": "typical",
        },
        plan={
            "tp": 8,
            "pp": 35,
            "dp": 16,
            "mbs": 1,
            "recompute": "full",
            "checkpoint_scheme": "sync_sharded",
        },
        own_figures="3 steps of the same model and layout at 2,240, 2,800 and 3,360 GPUs in the constants",
        in_their_place="a fit without MT-NLG",
        publisher="MT-NLG",
        note="published hours are themselves an estimate (Epoch AI)",
    ),
    KnownRun(
        row="run-093",
        source="MLPerf Training v4.0 power, 64 nodes: TP 4, PP 8, DP 16",
        job={
            "workload": {
                "model": "gpt3-175b",
                "tokens": 3412 / 10.6256 * 2048 * 2048,
                "sequence_length": 2048,
                "global_batch_size": 2048,
                "precisions": ["fp8"],
                "overlaps_tensor_comm": True,
                "gradient_bytes": 2,
            },
            "offers": [
                {
                    "accelerator": "h100-sxm5-80gb",
                    "node": "hgx-h100-immersion",
                    "fabric": {"kind": "infiniband-ndr", "switch_power_w": 0, "optic_power_w": 0},
                    "num_gpus": 512,
                    **RENT,
                }
            ],
            "site": AT_THE_METER,
            "reliability": {
                "preset": "typical",
                "failures_per_1000_node_days": 1e-6,
                "straggler_log_mean": None,
                "restart": {"initialize_s": 0.0, "warm_up_s": 0.0},
            },
        },
        plan={
            "tp": 4,
            "pp": 8,
            "vpp": 12,
            "dp": 16,
            "mbs": 2,
            "precision": "fp8",
            "checkpoint_scheme": "none",
        },
        own_figures="5 steps of MLPerf Training in the constants, two of them of this model, layout and size (v3.0, v3.1); "
        "power of computation and host fitted to its meters; no failures and no stragglers, as after the fact; its work is "
        "counted in steps of the measured time, cold as well",
        in_their_place="a fit without MLPerf Training; power of computation as metered on B200; failures and stragglers of a "
        "typical fleet",
        publisher="MLPerf Training",
        unseen_job={"reliability": {"preset": TYPICAL, "restart": {"initialize_s": 0.0, "warm_up_s": 0.0}}},
        unseen_compute_power_fraction=1.05,
        note="metered at the nodes; tokens are those of 3,412 s at 10.6256 s a step, evaluations included; twelve chunks a "
        "stage, as in the submissions of this size to v3.0 and v3.1",
    ),
)
