"""How do the pages present whole runs? Predictions with and without each run's own data, arithmetic, the metered run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.sheets import markdown_row
from objectives.baselines import nameplate_energy_j
from planner.text import human
from planner.validation.whole_run_jobs import MLPERF_STEPS, MLPERF_WORK_STEPS
from planner.validation.whole_runs import (
    Prediction,
    PublishedRun,
    Simulated,
    arithmetic_runs,
    predictions,
    published_runs,
)
from simulator.catalog import accelerator, node
from simulator.machine.power import PHASE_FRACTIONS
from simulator.units import JOULES_PER_MWH, KILO

METERED_RUN = "run-093"
METERED_STEP_S = 10.6256
METERED_NODE_W = 6849.0
"""Mean AC power of a node over the run: MLPerf Training v4.0, power measurement, 64 nodes."""
GPUS_PER_NODE = 8


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(markdown_row(*cells) for cells in [head, ["---"] * len(head), *lines])


def off(fraction: float) -> str:
    """Returns a deviation for readers."""
    return f"{fraction:+.1%}"


def _mwh(value: float) -> str:
    return human.digits(value, significant=4)


def hours_table() -> str:
    """Returns GPU-hours, published and predicted."""
    head = (
        "run",
        "published",
        "capplan, cold",
        "off",
        "capplan, shipped",
        "off",
        "LLMCarbon, cold",
        "off",
        "our cold step",
        "cold goodput",
    )
    return table(head, map(_hours_cells, predictions()))


def _hours_cells(run: Prediction) -> list[str]:
    known = run.published.gpu_hours
    return [
        run.published.model,
        f"{known:,.0f}",
        f"{run.cold.gpu_hours:,.0f}",
        off(run.cold.hours_error_fraction),
        f"{run.shipped.gpu_hours:,.0f}",
        off(run.shipped.hours_error_fraction),
        f"{run.llmcarbon.gpu_hours:,.0f}",
        off(run.llmcarbon.gpu_hours / known - 1.0),
        f"{run.cold.step_s:.2f} s",
        f"{run.cold.goodput_fraction:.1%}",
    ]


def energy_table() -> str:
    """Returns energies, published and predicted."""
    head = (
        "run",
        "published, MWh",
        "capplan, cold, MWh",
        "off",
        "capplan, shipped, MWh",
        "off",
        "LLMCarbon, cold, MWh",
        "our cold W per GPU",
        "what the published figures are",
    )
    return table(head, map(_energy_cells, predictions()))


def _energy_cells(run: Prediction) -> list[str]:
    return [
        run.published.model,
        _published_mwh(run.published),
        *_energy_and_error(run.cold),
        *_energy_and_error(run.shipped),
        _mwh(run.llmcarbon.energy_mwh),
        f"{run.cold.power_w_per_gpu:,.0f}",
        run.note,
    ]


def _published_mwh(run: PublishedRun) -> str:
    return "not published" if run.energy_mwh is None else _mwh(run.energy_mwh)


def _energy_and_error(run: Simulated) -> tuple[str, str]:
    error = run.energy_error_fraction
    return _mwh(run.energy_mwh), "not a measurement" if error is None else off(error)


def seen_table() -> str:
    """Returns what the shipped prediction has seen of each run itself, and what the cold one uses instead."""
    return table(
        ("run", "in the constants and inputs as shipped", "cold"),
        ([run.published.model, run.own_figures, run.in_their_place] for run in predictions()),
    )


def llmcarbon_text() -> str:
    """Returns how LLMCarbon arrives at its figures for an 8-bit run."""
    run = _metered()
    known, sixteen_bit_hours = run.published, run.llmcarbon.sixteen_bit_gpu_hours
    assert known.energy_mwh is not None, "the run was metered"
    energy_mwh = nameplate_energy_j(sixteen_bit_hours, known.rated_w) / JOULES_PER_MWH
    steps_alone = MLPERF_STEPS / MLPERF_WORK_STEPS
    errors = [energy_mwh * share / known.energy_mwh - 1.0 for share in (1.0, steps_alone)]
    hours_error = off(sixteen_bit_hours / known.gpu_hours - 1.0)
    return f"""\
LLMCarbon is given the peak of the format that a run computes in, although it was made for 16 bits. With the 16-bit peak it
predicts {sixteen_bit_hours:,.0f} GPU-hours ({hours_error}) for the run in FP8. Its energy is then off by {off(errors[0])},
or by {off(errors[1])} if only the {MLPERF_STEPS} steps to the target count as the run's work, without the time of
its evaluations. For a mixture of experts it is given the parameters that a token passes through."""


def arithmetic_table() -> str:
    """Returns published energies that are GPU-hours times a power, and those that follow from published hours and watts."""
    head = ("run", "published, MWh", "GPU-hours x W (x PUE), MWh", "off")
    return table(head, map(_arithmetic_cells, arithmetic_runs()))


def _arithmetic_cells(run: PublishedRun) -> list[str]:
    product, known = run.nameplate_mwh, run.energy_mwh
    error = "" if known is None else off(product / known - 1.0)
    return [run.model, _published_mwh(run), f"{_factors(run)} = {_mwh(product)}", error]


def _factors(run: PublishedRun) -> str:
    pue = f" x {run.pue:g}" if run.pue > 1.0 else ""
    return f"{run.gpu_hours:,.0f} x {run.rated_w:g}{pue}"


def left_out_table() -> str:
    """Returns the published runs that are not predicted, with the reasons."""
    runs = (run for run in published_runs().values() if run.not_compared)
    return table(("run", "why it is not predicted"), ([run.model, run.not_compared] for run in runs))


def metered_text() -> str:
    """Returns the metered run next to its prediction, and the constants that were fitted to it."""
    run = _metered()
    known_mwh = run.published.energy_mwh
    assert known_mwh is not None, "the run was metered"
    ours = (run.cold, run.shipped)
    rows = [
        compared_cells("step", "s", METERED_STEP_S, [each.step_s for each in ours]),
        compared_cells(
            "power of a node, AC",
            "kW",
            METERED_NODE_W / KILO,
            [GPUS_PER_NODE * each.power_w_per_gpu / KILO for each in ours],
        ),
        compared_cells(
            "energy of 64 nodes", "kWh", known_mwh * KILO, [each.energy_mwh * KILO for each in ours]
        ),
    ]
    head = ("GPT-3 175B, FP8, 512 H100", "metered", "capplan, cold", "off", "capplan, shipped", "off")
    return f"{table(head, rows)}\n\n{_fitted()}"


def _metered() -> Prediction:
    return next(run for run in predictions() if run.published.row_id == METERED_RUN)


def compared_cells(name: str, unit: str, metered: float, ours: Sequence[float]) -> list[str]:
    """Returns one metered quantity next to its predictions."""
    found = [cell for value in ours for cell in (f"{_mwh(value)} {unit}", off(value / metered - 1.0))]
    return [name, f"{_mwh(metered)} {unit}", *found]


def _fitted() -> str:
    """What the model takes from the very meters that it is compared with."""
    h100, b200 = (accelerator(name).compute_power_fraction for name in ("h100-sxm5-80gb", "b200-sxm-180gb"))
    host_w, new_host_w = node("hgx-h100-immersion").host_power_w, node("dgx-b200").host_power_w
    evaluation, collectives = PHASE_FRACTIONS.evaluation, PHASE_FRACTIONS.communication
    return f"""\
The layout is TP 4, PP 8 with twelve chunks a stage (as in the submissions of this size to v3.0 and v3.1), DP 16 and
micro-batch 2.

- *Shipped:* little of this is unseen, so small errors show that the phases add up, not skill. The constants of training steps
  are fitted on steps of the same model, layout and size that were submitted to v3.0 and v3.1. Two powers are fitted to the
  meters of this run: computation without a limit on H100, {h100:g} of its TDP, and evaluation, {evaluation:g}. The host power
  of its nodes, {host_w:g} W, is solved from the same logs, though the LoRA run on one such node (7.16 kW, accelerators at their
  TDP) determines it alone. Failures and stragglers are left out, as is known of a run that was submitted.
- *Cold:* the steps of MLPerf Training are not in the fit. Computation draws the same share of the TDP as on B200, {b200:g}. The
  fleet has typical failures and stragglers, which cause most of the difference in energy.

Other runs determine further constants: the LoRA run on 8 B200 (MLPerf Training v5.0) the power of computation of B200 and its
host, {new_host_w:g} W; LoRA runs on H100 (v4.0) exposed collectives, {collectives:g}; starts of jobs (v4.0, v4.1) what host and
fans of idle nodes draw."""
