"""How do the pages tell of whole runs? Tables of predictions, of arithmetic, of the metered run and of what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner import human
from planner.whole_runs import Prediction, PublishedRun, arithmetic_runs, predictions, published_runs
from simulator.catalog import accelerator, node
from simulator.power import PHASE_FRACTIONS
from simulator.units import KILO

METERED_RUN = "run-093"
METERED_STEP_S = 10.6256
METERED_NODE_W = 6849.0
"""Mean AC power of a node over the run: MLPerf Training v4.0, power measurement, 64 nodes."""
GPUS_PER_NODE = 8


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def off(fraction: float) -> str:
    """Returns a deviation for readers."""
    return f"{fraction:+.1%}"


def _mwh(value: float) -> str:
    return human.digits(value, significant=4)


def hours_table() -> str:
    """Returns GPU-hours, published and predicted."""
    head = ("run", "published", "capplan", "off", "LLMCarbon, cold", "off", "our step", "goodput")
    return table(head, map(_hours_cells, predictions()))


def _hours_cells(run: Prediction) -> list[str]:
    known = run.published.gpu_hours
    return [
        run.published.model,
        f"{known:,.0f}",
        f"{run.our_gpu_hours:,.0f}",
        off(run.hours_error_fraction),
        f"{run.llmcarbon_gpu_hours:,.0f}",
        off(run.llmcarbon_gpu_hours / known - 1.0),
        f"{run.our_step_s:.2f} s",
        f"{run.our_goodput_fraction:.1%}",
    ]


def energy_table() -> str:
    """Returns energies, published and predicted."""
    head = (
        "run",
        "published, MWh",
        "capplan, MWh",
        "off",
        "LLMCarbon, cold, MWh",
        "our W per GPU",
        "what the published figures are",
    )
    return table(head, map(_energy_cells, predictions()))


def _energy_cells(run: Prediction) -> list[str]:
    known, error = run.published.energy_mwh, run.energy_error_fraction
    return [
        run.published.model,
        "not published" if known is None else _mwh(known),
        _mwh(run.our_energy_mwh),
        "not a measurement" if error is None else off(error),
        _mwh(run.llmcarbon_energy_mwh),
        f"{run.our_power_w_per_gpu:,.0f}",
        run.note,
    ]


def arithmetic_table() -> str:
    """Returns published energies that are GPU-hours times a power."""
    return table(
        ("run", "published, MWh", "GPU-hours x W (x PUE), MWh", "off"),
        (
            [
                run.model,
                _mwh(run.energy_mwh),
                f"{_factors(run)} = {_mwh(run.nameplate_mwh)}",
                off(run.nameplate_mwh / run.energy_mwh - 1.0),
            ]
            for run in arithmetic_runs()
            if run.energy_mwh is not None
        ),
    )


def _factors(run: PublishedRun) -> str:
    pue = f" x {run.pue:g}" if run.pue > 1.0 else ""
    return f"{run.gpu_hours:,.0f} x {run.rated_w:g}{pue}"


def left_out_table() -> str:
    """Returns the published runs that are not predicted, with the reasons."""
    runs = (run for run in published_runs().values() if run.not_compared)
    return table(("run", "why it is not predicted"), ([run.model, run.not_compared] for run in runs))


def metered_text() -> str:
    """Returns the metered run beside the prediction, and which constants were fitted to it."""
    run = next(each for each in predictions() if each.published.row_id == METERED_RUN)
    node_w = GPUS_PER_NODE * run.our_power_w_per_gpu
    known_mwh = run.published.energy_mwh
    assert known_mwh is not None, "the run was metered"
    rows = [
        (
            "step",
            f"{METERED_STEP_S} s",
            f"{run.our_step_s:.2f} s",
            off(run.our_step_s / METERED_STEP_S - 1.0),
        ),
        (
            "power of a node, AC",
            f"{METERED_NODE_W / KILO:.2f} kW",
            f"{node_w / KILO:.2f} kW",
            off(node_w / METERED_NODE_W - 1.0),
        ),
        (
            "energy of 64 nodes",
            f"{known_mwh * KILO:.1f} kWh",
            f"{run.our_energy_mwh * KILO:.1f} kWh",
            off(run.our_energy_mwh / known_mwh - 1.0),
        ),
    ]
    return f"{table(('GPT-3 175B, FP8, 512 H100', 'metered', 'capplan', 'off'), rows)}\n\n{_fitted()}"


def _fitted() -> str:
    """What of the model comes from the very meters that it is compared with."""
    h100, b200 = (accelerator(name).compute_power_fraction for name in ("h100-sxm5-80gb", "b200-sxm-180gb"))
    host_w, new_host_w = node("hgx-h100-immersion").host_power_w, node("dgx-b200").host_power_w
    evaluation, collectives = PHASE_FRACTIONS.evaluation, PHASE_FRACTIONS.communication
    return f"""\
The layout is TP 4, PP 8 with twelve chunks a stage (as in the submissions of this size to v3.0 and v3.1), DP 16, micro-batch
2. Layout, step and time are not fitted. Fitted to the meters of this run are the power of computation without a limit of
H100, {h100:g} of its TDP, and of evaluation, {evaluation:g}; the host of its nodes, {host_w:g} W, is solved from the same logs.
Its figures of power therefore show that the phases add up, not skill on a run that was never seen. Fitted to the LoRA run on
8 B200 (MLPerf Training v5.0) are the same of B200, {b200:g} of its TDP, and its host, {new_host_w:g} W; to LoRA runs on
H100 (v4.0) exposed collectives, {collectives:g}; to starts of jobs (v4.0, v4.1) what host and fans of idle nodes draw."""
