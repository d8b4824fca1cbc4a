"""Which inputs of a fleet does a purchase plan ignore, or read differently than intended? One sentence each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from planner.calibration.notes import calibration_notes
from planner.job.in_short import in_short
from planner.job.sites import PROFILES
from planner.notes.price_notes import far_node_price, far_rent
from planner.purchase.fleet import Fleet, FleetLimits, FleetOffer
from planner.purchase.plan import ScheduledRun
from planner.purchase.ways import document_of
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.ownership import Depreciation, Ownership
from simulator.units import DAY, YEAR

LEAST_SLACK_FRACTION = 0.15
"""Slack before a deadline, as a share of a run's length, below which a note is shown (choice): one run in twenty of the typical
fleet takes longer than expected by about as much."""


def slack_notes(runs: Iterable[ScheduledRun]) -> tuple[str, ...]:
    """Returns a note if runs end so close to their deadlines that a slow run would be late."""
    tight = [_slack_text(run) for run in runs if _slack_days(run) < LEAST_SLACK_FRACTION * _length_days(run)]
    if not tight:
        return ()
    note = (
        "Runs have their expected length; failures and stragglers make many of them longer. There is little slack before "
        f"the deadline of {', '.join(tight)}: set an earlier deadline_day to add slack, and compare the cost."
    )
    return (note,)


def _slack_text(run: ScheduledRun) -> str:
    return (
        f"{run.job} ({human.digits(_slack_days(run))} days after a run of {human.digits(_length_days(run))})"
    )


def _slack_days(run: ScheduledRun) -> float:
    return run.deadline_day - run.end_day


def _length_days(run: ScheduledRun) -> float:
    return run.end_day - run.start_day


def power_notes(limits: FleetLimits, idle_w: Iterable[float]) -> tuple[str, ...]:
    """Returns a note if the site's power is below that of any node that could be bought, as if it were in other units.

    Args:
        limits: of the plan.
        idle_w: of a node of each kind that is for sale.
    """
    least_w = min(idle_w, default=0.0)
    if limits.power_w is None or limits.power_w >= least_w:
        return ()
    note = (
        f"limits.power_w = {human.figure(limits.power_w)} W is less than a single node draws when idle, "
        f"{human.power(least_w)}: no node can be bought. Is it in watts?"
    )
    return (note,)


def life_notes(fleet: Fleet, ownership: Ownership) -> tuple[str, ...]:
    """Returns a note if nodes can be bought that are held for longer than they or their network are written off over.

    Args:
        fleet: jobs and offers.
        ownership: terms of ownership, with their defaults.
    """
    first_days = (offer.buy.first_delivery_day for offer in fleet.offers if offer.buy)
    held_years = (fleet.horizon_days - min(first_days, default=fleet.horizon_days)) * DAY / YEAR
    lives = {"lifetime_years": ownership.lifetime_years, "network_lifetime_years": ownership.network_years}
    name = min(lives, key=lambda each: lives[each])
    if held_years <= lives[name] or ownership.depreciation is not Depreciation.STRAIGHT_LINE:
        return ()
    note = (
        f"Bought nodes can be held for {human.digits(held_years)} years, longer than ownership.{name} ({lives[name]:g}): their "
        "cost and carbon go on at the same rate, as if all were replaced at the same price, but capital_usd and left_usd are "
        "those of the first purchase alone. Set a shorter horizon_days, or longer lives."
    )
    return (note,)


def scope_notes(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Returns a note if jobs count the making of different parts, though they share nodes.

    Args:
        jobs: the jobs of a fleet on one of its offers.
    """
    first, *others = jobs
    if all(job.carbon_scope == first.carbon_scope for job in others):
        return ()
    return (
        f"The jobs differ in carbon_scope: of nodes that are bought or reserved, what {first.name} counts is counted.",
    )


def notes_of(fleet: Fleet, folder: Path, jobs: Sequence[Sequence[Job]]) -> tuple[str, ...]:
    """Returns the sentences.

    Args:
        fleet: jobs and offers.
        folder: where paths of job files start.
        jobs: for each offer the jobs with this offer alone.
    """
    return (
        *_budgets(fleet, folder),
        *_ownerships(fleet, folder),
        *_idle_shares(fleet),
        *_profiles(fleet),
        *_far_prices(fleet, jobs),
        *_late_offers(fleet),
        *_long_terms(fleet),
        *_repeated_offers(fleet),
        *_calibrations(jobs),
    )


def _budgets(fleet: Fleet, folder: Path) -> Iterator[str]:
    """Budgets of single jobs, which a plan for all jobs ignores."""
    for job in fleet.jobs:
        limits = document_of(job, folder).get("limits")
        budget = limits.get("budget_usd") if isinstance(limits, Mapping) else None
        if budget is not None:
            yield (
                f"{job.name}: limits.budget_usd = {in_short(budget)} of the job is ignored; limits.budget_usd of the fleet "
                "limits the cost of all jobs"
            )


def _ownerships(fleet: Fleet, folder: Path) -> Iterator[str]:
    """Terms of ownership of single jobs, of which the fleet has its own."""
    for job in fleet.jobs:
        terms = document_of(job, folder).get("ownership")
        if terms and terms != fleet.ownership:
            yield f"{job.name}: ownership of the job is ignored; ownership of the fleet holds for all jobs"


def _idle_shares(fleet: Fleet) -> Iterator[str]:
    """A utilization below 1, which a plan uses for rented nodes only, because it counts bought nodes for every hour."""
    share = fleet.ownership.get("utilization_fraction")
    if share is not None and share != 1:
        yield (
            f"ownership.utilization_fraction ({share}) is ignored except for the carbon of rented nodes: bought nodes count "
            "for every hour from their delivery, used or not"
        )


def _profiles(fleet: Fleet) -> Iterator[str]:
    """Hourly figures of the site, of which a plan takes the mean."""
    given = fleet.site if isinstance(fleet.site, Mapping) else {}
    if names := [f"site.{name}" for name in PROFILES if given.get(name) is not None]:
        yield f"{' and '.join(names)} {'count' if len(names) > 1 else 'counts'} with the mean of all hours, whenever jobs run"


def _far_prices(fleet: Fleet, jobs: Sequence[Sequence[Job]]) -> Iterator[str]:
    """Prices in another unit, such as that of one GPU for a node."""
    for offer, (job, *_) in zip(fleet.offers, jobs, strict=True):
        rents = [terms.usd_per_gpu_hour for terms in (offer.reserve, offer.rent) if terms]
        for rent in dict.fromkeys(rents):
            yield from far_rent(offer.accelerator, rent)
        if offer.buy:
            yield from far_node_price(job.offers[0].node.id, offer.buy.usd_per_node)


def _late_offers(fleet: Fleet) -> Iterator[str]:
    """Offers whose first nodes arrive after the last deadline."""
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


def _long_terms(fleet: Fleet) -> Iterator[str]:
    """Reserved terms that end after the horizon even if they start as soon as they can: paid in full, used in part."""
    last_day = max(job.deadline_day for job in fleet.jobs)
    for number, offer in enumerate(fleet.offers):
        terms = offer.reserve
        if (
            terms
            and terms.first_start_day < last_day
            and terms.first_start_day + terms.term_days > fleet.horizon_days
        ):
            yield (
                f"offers[{number}].reserve.term_days ({terms.term_days:g}) leads beyond horizon_days ({fleet.horizon_days:g}): "
                "the whole term is paid, bought nodes cost until the horizon only. To compare the two, set a longer "
                "horizon_days, with the jobs of that time."
            )


def _repeated_offers(fleet: Fleet) -> Iterator[str]:
    """Accelerators in several offers on the same kind of terms, such as price tiers, or one offer written twice."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, offer in enumerate(fleet.offers):
        for terms in _kinds_of_terms(offer):
            places[offer.accelerator, terms].append(f"offers[{number}]")
    repeated = {(accelerator, *found): None for (accelerator, _), found in places.items() if len(found) > 1}
    for accelerator, *found in repeated:
        yield (
            f"{accelerator} occurs in {' and '.join(found)}: each counts as a separate supply; remove one if they mean the "
            "same nodes"
        )


def _kinds_of_terms(offer: FleetOffer) -> Iterator[str]:
    """The kinds of terms of an offer: reservations of other lengths, and nodes that are taken back, are kinds of their own."""
    if offer.buy:
        yield "buy"
    if offer.reserve:
        yield f"reserve for {offer.reserve.term_days:g} days"
    if offer.rent:
        yield "rent" if not offer.interruptions_per_1000_node_days else "spot"


def _calibrations(jobs: Sequence[Sequence[Job]]) -> Iterator[str]:
    """What calibrations of the jobs rest on, and which offers they do not cover; of which jobs, unless of all."""
    found: dict[str, list[str]] = defaultdict(list)
    for on_offers in zip(*jobs, strict=True):
        offers = tuple(job.offers[0] for job in on_offers)
        job = on_offers[0].model_copy(update={"offers": offers})
        for note in calibration_notes(job):
            found[note].append(job.name)
    for note, names in found.items():
        yield note if len(names) == len(jobs[0]) else f"{', '.join(names)}: {note}"
