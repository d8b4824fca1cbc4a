"""What changes under other circumstances? The figures of a case, their changes, and the limits that it violates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable, excess_over, limited_quantities
from objectives.pausing import PausedTable, paused_runs
from objectives.usage import Usage
from planner.recommended.comparisons import WhatIfCase
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.options import Pause
from simulator.record import finite_or_none
from simulator.table import Floats
from simulator.units import DAY, HOUR, JOULES_PER_KWH


def case_of(
    name: str,
    chosen: Evaluation,
    part: Evaluation,
    note: str = "",
    *,
    waited_s: float = 0.0,
) -> WhatIfCase:
    """Returns a case in which another evaluation, one row, takes the place of the recommended design.

    Args:
        name: what is otherwise.
        chosen: the recommended design.
        part: the other evaluation.
        note: what it takes.
        waited_s: before it starts; such a wait keeps the deadline.
    """
    scores = part.scores
    figures = (
        (scores.time_to_train_s + waited_s) / DAY,
        scores.cost_usd,
        scores.energy_j / JOULES_PER_KWH,
        scores.carbon_kgco2e,
    )
    return _case(name, chosen, figures, part.excess, note)


def hours_to_spare(job: Job, chosen: Evaluation) -> int | None:
    """Returns how many whole hours the start may wait until the deadline is missed; `None` without a deadline."""
    if job.limits.deadline_days is None:
        return None
    needed = limited_quantities(job, chosen.plans, chosen.scores, chosen.outcomes)["deadline_days"]
    spare_s = (job.limits.deadline_days - float(needed[0])) * DAY
    return max(0, math.floor(spare_s / HOUR))


def paused_case(name: str, job: Job, chosen: Evaluation, pause: Pause) -> WhatIfCase:
    """Returns the recommended design with its pauses; no figures where no stretch between them is long enough."""
    paused = paused_runs(job, chosen.plans, chosen.outcomes, pause)
    if not np.isfinite(paused.wall_s[0]):
        return WhatIfCase(case=name, note="no interval between pauses is longer than a restart")
    figures = (
        paused.wall_s / DAY,
        paused.cost_usd,
        paused.energy_j / JOULES_PER_KWH,
        paused.carbon_kgco2e,
    )
    excess = _excess_of_pauses(job, chosen, pause, paused)
    return _case(name, chosen, figures, excess, _note_of(paused))


def _note_of(paused: PausedTable) -> str:
    waited_s, num_pauses = float(paused.waited_s[0]), float(paused.num_pauses[0])
    pauses = "1 pause" if num_pauses == 1.0 else f"{num_pauses:,.0f} pauses"
    return f"{pauses}, and a start {human.duration(waited_s)} later" if waited_s else pauses


def _excess_of_pauses(job: Job, chosen: Evaluation, pause: Pause, paused: PausedTable) -> ExcessTable:
    """Limits of time, money and carbon meet the paused run; a run that is unlucky pauses, too."""
    limits = job.limits
    in_time, in_money = (
        paused if probability is None else _unlucky(job, chosen, pause, probability)
        for probability in (limits.deadline_probability, limits.budget_probability)
    )
    return replace(
        chosen.excess,
        deadline_days=excess_over(limits.deadline_days, in_time.wall_s / DAY),
        budget_usd=excess_over(limits.budget_usd, in_money.cost_usd),
        carbon_kgco2e=excess_over(limits.carbon_kgco2e, paused.carbon_kgco2e),
    )


def _unlucky(job: Job, chosen: Evaluation, pause: Pause, probability: float) -> PausedTable:
    """The paused run that is as long as the wanted probability asks for."""
    certain = job.limits.model_copy(update={"deadline_probability": probability})
    asked = job.model_copy(update={"limits": certain})
    quantities = limited_quantities(asked, chosen.plans, chosen.scores, chosen.outcomes)
    usage = Usage.of(chosen.outcomes).lasting(quantities["deadline_days"] * DAY)
    return paused_runs(job, chosen.plans, chosen.outcomes, pause, usage)


def _case(
    name: str, chosen: Evaluation, figures: tuple[Floats, ...], excess: ExcessTable, note: str
) -> WhatIfCase:
    before = chosen.scores
    known = (
        before.time_to_train_s / DAY,
        before.cost_usd,
        before.energy_j / JOULES_PER_KWH,
        before.carbon_kgco2e,
    )
    days, usd, kwh, kg = (finite_or_none(values[0]) for values in figures)
    changes = [finite_or_none(new[0] - old[0]) for new, old in zip(figures, known, strict=True)]
    return WhatIfCase(
        case=name,
        time_to_train_days=days,
        cost_usd=usd,
        energy_kwh=kwh,
        carbon_kgco2e=kg,
        time_change_days=changes[0],
        cost_change_usd=changes[1],
        energy_change_kwh=changes[2],
        carbon_change_kgco2e=changes[3],
        limits_broken=_broken(excess),
        note=note,
    )


def _broken(excess: ExcessTable) -> dict[str, float | None]:
    shares = {name: float(getattr(excess, name)[0]) for name in excess.names()}
    return {name: finite_or_none(share) for name, share in shares.items() if share > 0.0}
