"""What could be recommended instead? The front, and the fastest design of every offer and size, with and without spares.

The front contains the best designs at the job's prices. An offer that loses there may win at other prices. Each offer
therefore contributes designs, whether or not they are on the front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.recommended.design_words import in_site, layout
from planner.recommended.recommendation import Design, Recommendation
from planner.report.fastest import FastestRuns
from planner.text import human
from planner.uncertain.input_uncertainty import MOST_RIVALS
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from studies.designs.spread_rows import spread_rows

MOST_OFFERS: Final = 8
"""Most offers that contribute designs in addition to the front; keeps jobs with many offers fast."""
MOST_SIZES: Final = 6
"""Most sizes of an offer that are tried in addition to the front."""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A design that may be recommended under other circumstances."""

    plan: Plan
    """Its decisions."""
    accelerator: str
    """Name of its accelerator."""
    where: str
    """Its site, such as ` in sweden`; empty where the job has one only."""
    design_id: int | None
    """Id of the design on the front; `None` if it is not on the front."""

    @property
    def words(self) -> str:
        """Description of the rival for readers."""
        name = f"{human.count(self.plan.num_gpus)} x {self.accelerator}{self.where}, {layout(self.plan)}"
        return f"{name}, not on the front" if self.design_id is None else f"design {self.design_id}, {name}"


def rivals(job: Job, answer: Recommendation, best: Design, fastest: FastestRuns) -> tuple[Rival, ...]:
    """Returns the recommended design, at most `MOST_RIVALS` others of the front, and the designs of every offer."""
    others = [design for design in answer.front if design.design_id != best.design_id]
    rows = spread_rows(len(others), MOST_RIVALS)
    front = [
        Rival(
            plan=design.plan,
            accelerator=design.accelerator,
            where=in_site(job, design.plan.offer),
            design_id=design.design_id,
        )
        for design in (best, *(others[row] for row in rows))
    ]
    known = {rival.plan for rival in front}
    return (*front, *(rival for rival in _of_offers(job, best, fastest) if rival.plan not in known))


def offers_tried(job: Job, best: Design) -> list[int]:
    """Returns the offers that contribute designs, the recommended one first."""
    own = best.plan.offer
    return [own, *(offer for offer in range(len(job.offers)) if offer != own)][:MOST_OFFERS]


def sizes_of(job: Job, offer: int, num_gpus: int, most: int = MOST_SIZES) -> list[int]:
    """Returns sizes of an offer: its ends, `num_gpus` if the offer allows it, and powers of two between, evenly spread.

    Powers of two have layouts for most batches; doublings of a rack of 72 have few.
    """
    allowed = job.offers[offer].num_gpus
    powers = {1 << power for power in range(allowed.min.bit_length(), allowed.max.bit_length())}
    sizes = sorted(powers | {allowed.min, allowed.max})
    chosen = {sizes[row] for row in spread_rows(len(sizes), most)}
    return sorted(chosen | ({num_gpus} if allowed.min <= num_gpus <= allowed.max else set()))


def _of_offers(job: Job, best: Design, fastest: FastestRuns) -> list[Rival]:
    """The fastest layout of every offer and size, run like the recommended design; with and without spares if allowed."""
    layouts = [
        (offer, run.plans.plan(0))
        for offer in offers_tried(job, best)
        for run in fastest.at(offer, sizes_of(job, offer, best.plan.num_gpus))
        if run is not None
    ]
    return [
        Rival(
            plan=_run_like(best.plan, plan, offer, has_spares=has_spares),
            accelerator=job.offers[offer].accelerator.id,
            where=in_site(job, offer),
            design_id=None,
        )
        for offer, plan in layouts
        for has_spares in job.search.with_spares
    ]


def _run_like(best: Plan, fastest: Plan, offer: int, *, has_spares: bool) -> Plan:
    """A layout of an offer that is saved and capped like the recommended plan."""
    as_best = {
        "offer": offer,
        "num_spare_nodes": fastest.num_spare_nodes if has_spares else 0,
        "checkpoint_scheme": best.checkpoint_scheme,
        "checkpoint_interval_s": best.checkpoint_interval_s,
        "power_cap_fraction": best.power_cap_fraction,
    }
    return fastest.model_copy(update=as_best)
