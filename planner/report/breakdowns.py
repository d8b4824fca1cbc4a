"""Where do memory, time, money, energy and carbon go? The recommended design, and the best design for each objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.recommended.design_words import offer_words, part_words, site_words
from planner.recommended.recommendation import Design, Recommendation
from planner.report.data import Bar, BarsFigure, Part, Quantity
from planner.report.units import text
from planner.text import human
from planner.text.objective_words import OBJECTIVE_WORDS
from simulator.domain.job import Job, Objective
from simulator.memory.peak import memory_by_stage
from studies.designs.spread_rows import spread_rows

OBJECTIVE_FIELDS: Final[Mapping[Objective, tuple[str, Quantity]]] = {
    Objective.TIME: ("time_to_train_days", "days"),
    Objective.COST: ("cost_usd", "usd"),
    Objective.ENERGY: ("energy_kwh", "kwh"),
    Objective.CARBON: ("carbon_kgco2e", "kgco2e"),
}
"""Field and unit of a design by objective; the other objectives are risks and percentiles, which are not fields of designs."""
ROUNDING: Final = 1e-12
"""Parts below this share of the whole are rounding errors and count as 0."""
MOST_STAGES: Final = 16
"""Most stages that are shown; longer pipelines are shortened, because their middle stages are similar."""


def breakdowns(job: Job, answer: Recommendation, best: Design) -> list[BarsFigure]:
    """Returns all figures of totals and parts, for a recommended design."""
    shown = _shown_designs(answer, best)
    return [
        _compared(
            "cost", _largest("of the cost", best, "cost_parts_usd", "usd"), "usd", "cost_parts_usd", shown
        ),
        _compared(
            "energy",
            _largest("of the energy", best, "energy_parts_kwh", "kwh"),
            "kwh",
            "energy_parts_kwh",
            shown,
        ),
        _compared(
            "carbon",
            _largest("of the carbon", best, "carbon_parts_kgco2e", "kgco2e"),
            "kgco2e",
            "carbon_parts_kgco2e",
            shown,
            answer.carbon_scope,
        ),
        _compared("run", _losses(best), "s", "run_seconds", shown),
        _compared("step", _largest("of a step", best, "step_seconds", "s"), "s", "step_seconds", shown),
        _memory(job, best),
    ]


def shown_name(design: Design) -> str:
    """Returns a short label of a design: `2,048 x h100-sxm5-80gb`."""
    return f"{human.count(design.plan.num_gpus)} x {design.accelerator}"


def _shown_designs(answer: Recommendation, best: Design) -> list[tuple[str, Design]]:
    """The recommended design and the best designs on the front for each objective, each once."""
    roles: dict[int, list[str]] = {best.design_id: ["recommended"]}
    designs = {best.design_id: best} | {design.design_id: design for design in answer.front}
    for least in answer.best_of_each:
        if (objective := Objective(least.objective)) in OBJECTIVE_FIELDS:
            roles.setdefault(least.design_id, []).append(f"lowest {OBJECTIVE_WORDS[objective]}")
    shown = [designs[design_id] for design_id in roles]
    return [
        (
            f"{', '.join(role)}: {shown_name(design)}{offer_words(design, shown)}{site_words(answer, design)}",
            design,
        )
        for role, design in zip(roles.values(), shown, strict=True)
    ]


def _compared(
    name: str,
    title: str,
    quantity: Quantity,
    field: str,
    shown: Sequence[tuple[str, Design]],
    scope: str = "",
) -> BarsFigure:
    """A bar for each design, its parts in the order of the recommended design's largest ones."""
    by_design = [(label, _without_rounding(getattr(design, field))) for label, design in shown]
    order = sorted(by_design[0][1], key=lambda part: -by_design[0][1][part])
    used = [part for part in order if any(parts[part] > 0 for _, parts in by_design)]
    words = {part: part_words(part, [design.plan for _, design in shown]) for part in used}
    bars = [
        Bar(label=label, parts=tuple(Part(label=words[part], value=parts[part]) for part in used))
        for label, parts in by_design
    ]
    whose = (
        "The recommended design and the best design on the front for each objective" if len(bars) > 1 else ""
    )
    note = "; ".join(part for part in (whose, scope) if part)
    return BarsFigure(
        name=name,
        title=title,
        note=f"{note[0].upper()}{note[1:]}." if note else "",
        quantity=quantity,
        bars=tuple(bars),
    )


def _without_rounding(parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the parts, with 0 for those that are only rounding of differences."""
    whole = sum(parts.values())
    return {name: value if value > ROUNDING * whole else 0.0 for name, value in parts.items()}


def _largest(of_what: str, best: Design, field: str, quantity: Quantity) -> str:
    """A title that names the largest part: `81.4 % of the energy (937 MWh) is compute`."""
    parts: Mapping[str, float] = getattr(best, field)
    whole = sum(parts.values())
    name = max(parts, key=lambda part: parts[part])
    share = parts[name] / whole if whole else 0.0
    return f"{human.percent(share)} {of_what} ({text(whole, quantity)}) is {part_words(name, [best.plan])}"


def _losses(best: Design) -> str:
    """A title that names the largest loss of the run."""
    whole = sum(best.run_seconds.values())
    losses = {name: value for name, value in best.run_seconds.items() if name != "productive_s"}
    worst = max(losses, key=lambda name: losses[name])
    useful = human.percent(best.run_seconds["productive_s"] / whole)
    if losses[worst] <= 0.0:
        return f"All of {text(whole, 's')} are productive steps"
    loss = f"the largest loss is {part_words(worst)} ({human.percent(losses[worst] / whole)})"
    return f"{useful} of {text(whole, 's')} are productive steps; {loss}"


def _memory(job: Job, best: Design) -> BarsFigure:
    """A bar for each pipeline stage, compared with the memory of an accelerator."""
    table = memory_by_stage(job.workload, best.plan)
    peaks = table.peak_bytes
    fullest, num_stages = int(np.argmax(peaks)), best.plan.pipeline_parallel
    spread = spread_rows(num_stages, MOST_STAGES)
    columns = {name: np.asarray(column) for name, column in table.columns().items() if np.any(column)}
    bars = [
        Bar(
            label=f"stage {stage}",
            parts=tuple(
                Part(label=part_words(name), value=float(column[stage])) for name, column in columns.items()
            ),
            capacity=best.memory_capacity_bytes,
        )
        for stage in np.unique([*spread, fullest]).tolist()
    ]
    used = human.percent(float(peaks[fullest]) / best.memory_capacity_bytes)
    whose = f"The fullest of {num_stages} stages, stage {fullest}," if num_stages > 1 else "An accelerator"
    left_out = "" if len(bars) == num_stages else f" {len(bars)} of {num_stages} stages are shown."
    return BarsFigure(
        name="memory",
        title=f"{whose} fills {used} of its {human.memory(best.memory_capacity_bytes)}",
        note=f"Memory of one accelerator of each pipeline stage; the line is its capacity.{left_out}",
        quantity="bytes",
        bars=tuple(bars),
    )
