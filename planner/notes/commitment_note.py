"""How much of a rent is for days after the run? Committed days are paid for, whether or not a run uses them."""

from __future__ import annotations

from planner.recommended.recommendation import Design
from planner.text import human
from simulator.domain.job import Job


def commitment_notes(job: Job, design: Design) -> list[str]:
    """Returns a remark where a run ends before the days that are paid for."""
    days = job.offers[design.plan.offer].commitment_days
    spare_days = days - design.time_to_train_days
    rent_usd = design.cost_parts_usd.get("rent_usd", 0.0)
    if rent_usd == 0.0 or spare_days <= human.LEAST_TOLD_FRACTION * days:
        return []
    note = (
        f"The rent is paid for {human.days(days)} (offers[{design.plan.offer}].commitment_days), of which the run takes "
        f"{human.days(design.time_to_train_days)}: {human.dollars(rent_usd * spare_days / days)} of its cost is for days "
        "after it, in which the nodes can do other work. Its energy and carbon are those of the run alone."
    )
    return [note]
