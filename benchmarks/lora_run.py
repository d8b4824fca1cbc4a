"""How close is the metered LoRA fine-tuning to its simulation, given the work that its log states? No fit uses its steps.

Nobody but the run itself publishes how many steps the fine-tuning takes to reach its target. It is therefore no cold prediction
of a whole run: its work is given, and only step time and power are compared with the meters.
"""

from __future__ import annotations

from benchmarks.whole_runs_page import GPUS_PER_NODE, compared_cells, table
from planner.validation.known_run import Input, KnownRun, Origin
from planner.validation.whole_runs import Prediction, predicted, published_runs
from simulator.units import KILO

NUM_SAMPLES, BATCH = 3072, 8
RUN_S, STEPS_S = 1694.52, 1500.29
"""Duration of its first run from start to stop, and the part of it spent in steps; the rest were five evaluations."""
METERED_STEP_S = STEPS_S * BATCH / NUM_SAMPLES
METERED_NODE_W = 7157.0
"""Mean AC power of the node over ten runs."""
_SEQUENCE = 8192
_LOG = "MLPerf Training v4.0, smc-ac-power, 1xSMC-H100-SXM-80GB"
_SCRIPT = "MLPerf Training v4.0, NVIDIA, llama2_70b_lora, config_DGXH100_1x8x4xtp4pp1cp1.sh"
_AT_THE_METER = "metered at the node: without network and cooling"


def _published(source: str, **values: object) -> tuple[Input, ...]:
    return _inputs(Origin.PUBLISHED, source, values)


def _inputs(origin: Origin, source: str, values: dict[str, object]) -> tuple[Input, ...]:
    return tuple(
        Input(field=name.replace("__", "."), value=value, origin=origin, source=source)
        for name, value in values.items()
    )


LORA_RUN = KnownRun(
    row="run-095",
    framework="NVIDIA release",
    inputs=(
        *_published(
            _LOG,
            # As many steps as take the time of those to the target plus the evaluations between them.
            workload__tokens=NUM_SAMPLES * _SEQUENCE * RUN_S / STEPS_S,
            offer__accelerator="h100-sxm5-80gb",
            offer__node="hgx-h100-immersion",
            offer__num_gpus=8,
        ),
        *_published(
            _SCRIPT,
            workload__model="llama-2-70b",
            workload__lora={
                "rank": 16,
                "targets": ["linear_qkv", "linear_proj"],
                "exchanges_by_all_to_all": True,
            },
            workload__sequence_length=_SEQUENCE,
            workload__global_batch_size=BATCH,
            plan__tp=4,
            plan__dp=2,
            plan__mbs=1,
            plan__precision="fp8",
        ),
        *_published(
            _AT_THE_METER,
            site__region="the meter at the node",
            site__power_usage_effectiveness=1.0,
            site__grid_kgco2e_per_kwh=0.4,
            site__electricity_usd_per_kwh=0.1,
            reliability__restart__initialize_s=0.0,
            reliability__restart__warm_up_s=0.0,
        ),
        *_inputs(
            Origin.OWN,
            "what fails is not submitted, and submitters vet their machines",
            {
                "plan.checkpoint_scheme": "none",
                "reliability.failures_per_1000_node_days": 1e-6,
                "reliability.straggler_log_mean": None,
            },
        ),
    ),
    own_figures="its work, 384 steps and five evaluations; its meters in the power of the host; no failures, stragglers or "
    "saves; none of its steps in the constants",
    in_their_place="its work all the same; a fit without MLPerf Training; power of computation as metered on B200; the rules",
    publisher="MLPerf Training",
    unseen_compute_power_fraction=1.05,
)


def lora_run() -> Prediction:
    """Returns the run and its predictions."""
    return predicted(LORA_RUN, published_runs()[LORA_RUN.row])


def lora_text() -> str:
    """Returns the table of the run, with what the prediction has seen of it."""
    run = lora_run()
    published, ours = run.published, (run.cold, run.shipped)
    assert published.energy_mwh is not None, "the run was metered"
    rows = [
        compared_cells("step", "s", METERED_STEP_S, [each.step_s for each in ours]),
        compared_cells("GPU-hours", "h", published.gpu_hours, [each.gpu_hours for each in ours]),
        compared_cells(
            "power of the node, AC",
            "kW",
            METERED_NODE_W / KILO,
            [GPUS_PER_NODE * each.power_w_per_gpu / KILO for each in ours],
        ),
        compared_cells(
            "energy", "kWh", published.energy_mwh * KILO, [each.energy_mwh * KILO for each in ours]
        ),
    ]
    head = (
        "Llama 2 70B LoRA, FP8, 8 H100",
        "metered",
        "capplan, work given",
        "off",
        "capplan, shipped",
        "off",
    )
    return f"""\
{table(head, rows)}

How many steps a fine-tuning takes is known only from its log, so this is not a cold prediction of the run: its work is
seen in both columns. The layout is that of NVIDIA's public script of this size: TP 4, DP 2, micro-batch 1, adapters of rank
16 on the attention block. Most of the extra time of *work given* over *shipped* comes from the stragglers of a typical fleet,
which a single node hardly has.

- *Shipped* has seen: {run.own_figures}.
- *Work given* has: {run.in_their_place}."""
