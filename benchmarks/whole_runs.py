"""How near are whole runs, predicted cold, to what was published? GPU-hours and energy, beside nameplate and LLMCarbon.

    python -m benchmarks.whole_runs whole_runs.csv                     prints the tables
    python -m benchmarks.whole_runs whole_runs.csv --write docs/whole-runs.md

Step time, goodput and power are our own. Only what a planner would know before the run is given: model, tokens, layout,
hardware, failure rate of the fleet. Energies that are GPU-hours times rated power are arithmetic, and listed as such.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from constraints.evaluation import evaluate
from objectives.baselines import llmcarbon_cold_efficiency, nameplate_energy_j
from planner.job_file import parse_job
from planner.plan_input import plan_of
from simulator.plan import PlanTable
from simulator.units import HOUR, JOULES_PER_MWH

PAGE_HEAD = """\
# Whole runs: what was published, what capplan predicts cold

Written by `python -m benchmarks.whole_runs whole_runs.csv --write docs/whole-runs.md`; the table of published runs is not
shipped. Cold means: model, tokens, layout, hardware and the failure rate of the fleet are given, and nothing that was
measured in the run itself. Step time, goodput and power are the simulator's.
"""
OLD_MEGATRON: Mapping[str, object] = {
    "attention": "unfused",
    "has_sequence_parallel": False,
    "overlaps_gradient_sync": False,
}
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
    """Its row in the table of published runs."""
    source: str
    """Where the layout comes from."""
    job: Mapping[str, object]
    plan: Mapping[str, object]
    note: str = ""


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
        note="metered at the nodes; tokens are those of 3,412 s at 10.6256 s a step, evaluations included; twelve chunks a "
        "stage, as in the submissions of this size to v3.0 and v3.1",
    ),
)
NAMEPLATE_W = {"A100-80GB": 400.0, "H100-80GB": 700.0, "V100": 300.0}
PEAK_FLOP_PER_S = {"A100-80GB": 312e12, "H100-80GB": 989e12, "V100": 125e12}
CIRCULAR_WITHIN = 0.01
"""A published energy that is this near to GPU-hours x rated power x PUE is that product."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One run: published and predicted."""

    model: str
    gpu_hours: float
    our_gpu_hours: float
    llmcarbon_gpu_hours: float
    energy_mwh: float | None
    our_energy_mwh: float
    llmcarbon_energy_mwh: float
    our_step_s: float
    our_goodput_fraction: float
    our_power_w_per_gpu: float
    note: str


def read_runs(path: Path) -> dict[str, dict[str, str]]:
    """Returns the rows of the table of published runs by their id."""
    with path.open(encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def predicted(run: KnownRun, row: Mapping[str, str]) -> Prediction:
    """Returns one run with our prediction and LLMCarbon's, both cold."""
    job = parse_job(run.job)
    plan, _ = plan_of(job, run.plan)
    result = evaluate(job, PlanTable.from_plans([plan]))
    wall_s = float(result.scores.time_to_train_s[0])
    gpu_hours = plan.num_gpus * wall_s / HOUR
    energy_j = float(result.scores.energy_j[0])
    parameters, peak = float(row["params_b"]) * 1e9, PEAK_FLOP_PER_S[row["gpu"]]
    rate = peak * llmcarbon_cold_efficiency(parameters, peak)
    their_hours = 6.0 * parameters * job.workload.tokens / rate / HOUR
    pue = job.site.power_usage_effectiveness
    return Prediction(
        model=row["model"],
        gpu_hours=float(row["gpu_hours"]),
        our_gpu_hours=gpu_hours,
        llmcarbon_gpu_hours=their_hours,
        energy_mwh=float(row["energy_mwh"]) if row["energy_mwh"] else None,
        our_energy_mwh=energy_j / JOULES_PER_MWH,
        llmcarbon_energy_mwh=nameplate_energy_j(their_hours, NAMEPLATE_W[row["gpu"]], pue) / JOULES_PER_MWH,
        our_step_s=float(result.outcomes.steps.step_time_s[0]),
        our_goodput_fraction=float(result.outcomes.run.goodput_fraction[0]),
        our_power_w_per_gpu=energy_j / wall_s / plan.num_gpus / pue,
        note=run.note,
    )


def circular(rows: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, float, float]]:
    """Yields runs whose published energy is arithmetic: model, published and reproduced MWh."""
    for row in rows.values():
        if not row["energy_mwh"] or "MEASURED" in row["notes"]:
            continue
        pue = float(row["pue"] or 1.0)
        for factor in {1.0, pue}:
            computed = (
                nameplate_energy_j(float(row["gpu_hours"]), NAMEPLATE_W[row["gpu"]], factor) / JOULES_PER_MWH
            )
            if abs(computed / float(row["energy_mwh"]) - 1.0) <= CIRCULAR_WITHIN:
                yield row["model"], float(row["energy_mwh"]), computed
                break


def off(value: float, truth: float) -> str:
    """Returns a deviation for readers."""
    return f"{value / truth - 1.0:+.1%}"


def page(predictions: Sequence[Prediction], arithmetic: Sequence[tuple[str, float, float]]) -> str:
    """Returns the tables as Markdown."""
    lines = [
        PAGE_HEAD,
        "## GPU-hours\n",
        "| run | published | capplan | off | LLMCarbon, cold | off | our step | goodput |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_hours_row(run) for run in predictions]
    lines += [
        "\n## Energy\n",
        "W per GPU hold its share of host, fans, fabric and supplies, without cooling.\n",
        "| run | published, MWh | capplan, MWh | off | LLMCarbon, cold, MWh | our W per GPU | what the published figure is |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_energy_row(run) for run in predictions]
    lines += [
        "\n## Published energies that are arithmetic\n",
        "GPU-hours x rated power (x PUE where the source says so). Agreeing with them confirms no model of energy.\n",
        "| run | published, MWh | GPU-hours x rated power, MWh | off |",
        "|---|---|---|---|",
        *(
            f"| {name} | {known:,.4g} | {computed:,.4g} | {off(computed, known)} |"
            for name, known, computed in arithmetic
        ),
    ]
    return "\n".join(lines) + "\n"


def _hours_row(run: Prediction) -> str:
    ours, theirs = off(run.our_gpu_hours, run.gpu_hours), off(run.llmcarbon_gpu_hours, run.gpu_hours)
    return (
        f"| {run.model} | {run.gpu_hours:,.0f} | {run.our_gpu_hours:,.0f} | {ours} | {run.llmcarbon_gpu_hours:,.0f} "
        f"| {theirs} | {run.our_step_s:.2f} s | {run.our_goodput_fraction:.1%} |"
    )


def _energy_row(run: Prediction) -> str:
    known = f"{run.energy_mwh:,.4g}" if run.energy_mwh else "not published"
    is_measured = run.energy_mwh is not None and "arithmetic" not in run.note
    error = off(run.our_energy_mwh, run.energy_mwh) if is_measured and run.energy_mwh else "not a measurement"
    return (
        f"| {run.model} | {known} | {run.our_energy_mwh:,.4g} | {error} | {run.llmcarbon_energy_mwh:,.4g} "
        f"| {run.our_power_w_per_gpu:,.0f} | {run.note} |"
    )


def main() -> None:
    """Prints the tables, or writes the page."""
    parser = argparse.ArgumentParser(description="Compare whole runs, predicted cold, with published ones.")
    parser.add_argument("runs", type=Path, help="table of published runs")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page instead of printing it")
    arguments = parser.parse_args()
    rows = read_runs(arguments.runs)
    predictions = [predicted(run, rows[run.row]) for run in KNOWN_RUNS if run.row in rows]
    text = page(predictions, list(circular(rows)))
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
