"""What of a fleet does a purchase plan leave aside or read otherwise than meant? A sentence for each, whatever the plan is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from planner.purchase.fleet import Fleet
from planner.purchase.plan import ScheduledRun
from planner.purchase.ways import document_of
from planner.text import human

LEAST_SLACK_FRACTION = 0.15
"""Slack before a deadline, as a share of a run's length, below which it is told (choice): one run in twenty of the typical
fleet takes longer than expected by about as much."""


def slack_notes(runs: Iterable[ScheduledRun]) -> tuple[str, ...]:
    """Returns a remark where runs end so near to their deadlines that a slow one is late."""
    tight = [_slack_text(run) for run in runs if _slack_days(run) < LEAST_SLACK_FRACTION * _length_days(run)]
    if not tight:
        return ()
    note = (
        "Runs are as long as expected; failures and stragglers make many of them longer. Little is left before the deadline "
        f"of {', '.join(tight)}: an earlier deadline_day leaves room, and what that costs is the price of being sure."
    )
    return (note,)


def _slack_text(run: ScheduledRun) -> str:
    return f"{run.job} ({human.digits(_slack_days(run))} days after {human.digits(_length_days(run))})"


def _slack_days(run: ScheduledRun) -> float:
    return run.deadline_day - run.end_day


def _length_days(run: ScheduledRun) -> float:
    return run.end_day - run.start_day


def notes_of(fleet: Fleet, folder: Path) -> tuple[str, ...]:
    """Returns the sentences.

    Args:
        fleet: jobs and offers.
        folder: where paths of job files start.
    """
    return (*_budgets(fleet, folder), *_idle_shares(fleet), *_late_offers(fleet), *_repeated_offers(fleet))


def _budgets(fleet: Fleet, folder: Path) -> Iterator[str]:
    """Budgets of single jobs, which a plan for all of them cannot keep."""
    for job in fleet.jobs:
        limits = document_of(job, folder).get("limits")
        budget = limits.get("budget_usd") if isinstance(limits, Mapping) else None
        if budget is not None:
            yield (
                f"{job.name}: limits.budget_usd ({budget}) of the job is not looked at; limits.budget_usd of the fleet "
                "bounds the cost of all jobs"
            )


def _idle_shares(fleet: Fleet) -> Iterator[str]:
    """A share of idle time, which a plan that counts every hour from delivery on looks at for rented nodes alone."""
    share = fleet.ownership.get("utilization_fraction")
    if share is not None and share != 1:
        yield (
            f"ownership.utilization_fraction ({share}) is not looked at but for the carbon of rented nodes: bought nodes are "
            "counted every hour from their delivery on, used or not"
        )


def _late_offers(fleet: Fleet) -> Iterator[str]:
    """Offers whose first nodes come when no job can run any more."""
    last_day = max(job.deadline_day for job in fleet.jobs)
    for number, offer in enumerate(fleet.offers):
        first_days = []
        if offer.buy:
            first_days.append(("buy.first_delivery_day", offer.buy.first_delivery_day, "bought"))
        if offer.reserve:
            first_days.append(("reserve.first_start_day", offer.reserve.first_start_day, "reserved"))
        for field, day, had in first_days:
            if day >= last_day:
                yield (
                    f"offers[{number}].{field} ({day:g}) is not before the last deadline (day {last_day:g}): no "
                    f"{offer.accelerator} is {had} there"
                )


def _repeated_offers(fleet: Fleet) -> Iterator[str]:
    """Accelerators of several offers, such as steps of a price, or one offer that was written twice."""
    places: dict[str, list[str]] = defaultdict(list)
    for number, offer in enumerate(fleet.offers):
        places[offer.accelerator].append(f"offers[{number}]")
    for accelerator, found in places.items():
        if len(found) > 1:
            yield (
                f"{accelerator} stands in {' and '.join(found)}: each is a supply of its own, so that the nodes of all of "
                "them can be had; leave one out where they mean the same nodes"
            )
