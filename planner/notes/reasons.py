"""Why this design and not another? Sentences with numbers from the front and the counts of excluded designs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable, set_limits, wanted_probability
from planner.recommended.design_words import in_site
from planner.recommended.limit_uses import limit_uses, share_of_runs
from planner.recommended.recommendation import Recommendation, Rejection
from planner.text import human
from planner.text.limit_words import are_feasible
from planner.text.objective_words import OBJECTIVE_WORDS, amount
from simulator.domain.job import Job, Objective
from simulator.domain.offer import Offer
from simulator.domain.plan import Plan
from simulator.table import Floats
from studies.designs.offer_tally import OfferTally
from studies.study import StudyResult


def _change(value: float, reference: float) -> str:
    """Returns the relative change of a value from a reference: `+3.1 %`, `x 12.0`; `from zero` if the reference is 0."""
    if value == reference:
        return "+0.0 %"
    return human.change(value / reference - 1.0) if reference else "from zero"


def _difference(objective: Objective, value: float, reference: float) -> str:
    """Returns the relative change of a value, or the value itself: of a risk, whose ratios say nothing, and from 0."""
    if objective.is_risk:
        return amount(objective, value)
    return f"+{amount(objective, value)}" if value > 0.0 == reference else _change(value, reference)


def why_chosen(job: Job, front: Evaluation, row: int, tally: OfferTally) -> tuple[str, ...]:
    """Returns why a row of the front is recommended: its rank in each objective, and the trade-offs of its rivals.

    Args:
        job: the job.
        front: the front.
        row: the recommended design.
        tally: what the designs of each offer reached.
    """
    values = front.objectives(job)
    plan = front.plans.plan(row)
    sentences = [_method(job, len(front)), *_offer(job, plan.offer), *_size(job, plan)]
    if len(front) == 1:
        return (*sentences, *_not_on_front(job, front, row, tally), *_headroom(job, front, row))
    for k, objective in enumerate(job.objectives):
        best = int(np.argmin(values[:, k]))
        name = OBJECTIVE_WORDS[objective]
        if values[row, k] <= values[best, k]:
            num_others = int((values[:, k] == values[row, k]).sum()) - 1
            shared = f", shared with {human.counted(num_others, 'other')}" if num_others else ""
            sentences.append(
                f"It has the lowest {name} on the front: {amount(objective, values[row, k])}{shared}."
            )
        else:
            sentences.append(_against(job, front, values, row, best, k))
    return (*sentences, *_not_on_front(job, front, row, tally), *_headroom(job, front, row))


def _not_on_front(job: Job, front: Evaluation, row: int, tally: OfferTally) -> Iterator[str]:
    """The accelerators on offer, by site, that no design of the front has, and the least that their designs reach."""
    kinds = [f"{offer.accelerator.name}{in_site(job, number)}" for number, offer in enumerate(job.offers)]
    taken = {kinds[offer] for offer in np.unique(front.plans.offer)}
    offers: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        offers.setdefault(kind, []).append(number)
    for name, numbers in offers.items():
        if name not in taken:
            chosen = front.objectives(job)[row]
            yield f"No design on the front has {name}{_at_best(job, tally, numbers, chosen)}."


def _at_best(job: Job, tally: OfferTally, offers: Sequence[int], chosen: Floats) -> str:
    """What the designs of some offers reach in each objective, or why none is feasible."""
    num_designs, num_feasible = (int(each[offers].sum()) for each in (tally.num_designs, tally.num_feasible))
    has_limits = bool(set_limits(job))
    if not num_designs:
        return ": none was simulated"
    if not num_feasible:
        broken = ", ".join(f"{number:,} {name}" for name, number in tally.breaking_of(offers).items())
        feasible = are_feasible(1, has_limits=has_limits)
        return f": none of {human.designs(num_designs)} simulated {feasible}; violated: {broken}"
    least = tally.least[offers].min(axis=0)
    reached = ", ".join(
        f"{OBJECTIVE_WORDS[objective]} {amount(objective, value)}"
        + ("" if objective.is_risk else f" ({_change(value, own)})")
        for objective, value, own in zip(job.objectives, least.tolist(), chosen.tolist(), strict=True)
    )
    feasible = are_feasible(num_feasible, has_limits=has_limits)
    if num_feasible == 1:
        return f"; the only one that {feasible} has {reached}"
    return f"; the lowest values of its {num_feasible:,} designs that {feasible}: {reached}"


def _method(job: Job, num_front: int) -> str:
    names = ", ".join(OBJECTIVE_WORDS[objective] for objective in job.objectives)
    if num_front == 1:
        return f"It is best in every objective ({names}): no other feasible design is on the front."
    weights = job.objective_weights
    weighed = "equal weights" if len(set(weights)) == 1 else "weights " + ":".join(f"{w:g}" for w in weights)
    return (
        f"It is the best compromise of the {num_front} designs on the front: with any other, the percentage losses in "
        f"{names} ({weighed}) are at least as large as the gains."
    )


def _offer(job: Job, taken: int) -> list[str]:
    """Which of several offers of the same accelerator at the same site is used, and at what price."""
    others = [f"offers[{other}]" for other in _twins(job, taken)]
    if not others:
        return []
    have = "has" if len(others) == 1 else "have"
    return [
        f"It uses offers[{taken}], {_price(job.offers[taken])}; {' and '.join(others)} {have} the same accelerator."
    ]


def _size(job: Job, plan: Plan) -> list[str]:
    """Whether a range of sizes ends with the recommended one, so that it may have been cut short."""
    allowed = job.offers[plan.offer].num_gpus
    if plan.num_gpus < allowed.max or allowed.min == allowed.max:
        return []
    return [
        f"It has all {plan.num_gpus:,} GPUs that offers[{plan.offer}].num_gpus allows; more may be better still."
    ]


def _twins(job: Job, taken: int) -> list[int]:
    """Other offers of the same accelerator at the same site."""
    sold = [(offer.accelerator.id, job.site_of(offer).region) for offer in job.offers]
    return [other for other in range(len(sold)) if other != taken and sold[other] == sold[taken]]


def _price(offer: Offer) -> str:
    if offer.purchase_usd_per_node:
        return f"bought at {human.dollars(offer.purchase_usd_per_node.mid)} per node"
    rent = offer.rent_usd_per_gpu_hour.mid if offer.rent_usd_per_gpu_hour else 0.0
    back = offer.interruptions_per_1000_node_days
    reclaimed = f", reclaimed {back:g} times in 1,000 node-days" if back else ""
    return f"rented at {human.dollars(rent)} per GPU-hour{reclaimed}"


def _against(job: Job, front: Evaluation, values: np.ndarray, row: int, best: int, k: int) -> str:
    objective = job.objectives[k]
    chosen, rival = front.plans.plan(row), front.plans.plan(best)
    chip = job.offers[rival.offer].accelerator.name
    loses = [
        f"{_difference(name, values[best, other], values[row, other])} {OBJECTIVE_WORDS[name]}"
        for other, name in enumerate(job.objectives)
        if other != k
    ]
    layout = (
        "the same accelerators" if (chosen.offer, chosen.num_gpus) == (rival.offer, rival.num_gpus) else ""
    )
    which = f" of offers[{rival.offer}]" if _twins(job, rival.offer) else ""
    is_rented, is_other_rented = (
        job.offers[each.offer].purchase_usd_per_node is None for each in (chosen, rival)
    )
    which += ", bought" if is_rented and not is_other_rented else ""
    who = layout or f"{rival.num_gpus:,} x {chip}{which}{in_site(job, rival.offer)}"
    price = f": {', '.join(loses)}" if loses else ""
    return (
        f"The lowest {OBJECTIVE_WORDS[objective]} is {amount(objective, values[best, k])} "
        f"({_change(values[best, k], values[row, k])}) with {who}{price}."
    )


_LIMITS = {
    "budget_usd": "budget",
    "deadline_days": "deadline",
    "power_w": "power limit",
    "hall_power_w": "hall power",
    "rack_power_w": "rack power",
    "power_swing_w": "power swing",
    "power_ramp_w_per_s": "power ramp",
    "power_range_fraction": "power range",
    "num_gpus": "GPU limit",
    "carbon_kgco2e": "carbon limit",
}
"""Names of the limits for readers."""


def _headroom(job: Job, front: Evaluation, row: int) -> list[str]:
    """Returns the headroom under each limit; for limits with a probability, the headroom at that probability."""
    parts = []
    for use in limit_uses(job, front.take(np.array([row]))):
        left = f"{human.whole_percent(1.0 - use.used / use.allowed)} of the {_LIMITS[use.limit]}"
        parts.append(left + share_of_runs(use.probability))
    return [f"Headroom: {', '.join(parts)}."] if parts else []


RULES = {
    "memory": "the most loaded accelerator needs more memory than it has",
    "host_memory": "saves in flight and offloading need more host memory than a node has",
    "progress": "failures occur faster than work can be saved, or than nodes return",
    "budget_usd": "cost above budget_usd = {}",
    "deadline_days": "time to train above deadline_days = {}",
    "power_w": "peak power above power_w = {}",
    "hall_power_w": "peak IT power above hall_power_w = {}",
    "rack_power_w": "peak IT power of a rack above rack_power_w = {}",
    "power_swing_w": "power swing of the facility above power_swing_w = {}",
    "power_ramp_w_per_s": "power ramp of the facility above power_ramp_w_per_s = {}",
    "power_range_fraction": "power swing as a share of the peak above power_range_fraction = {}",
    "num_gpus": "more than num_gpus = {}",
    "carbon_kgco2e": "carbon above carbon_kgco2e = {}",
}


def searched_text(answer: Recommendation) -> str:
    """Returns how many designs the search simulated; a proof that none exists can do without any."""
    if answer.status == "infeasible" and not answer.num_evaluated:
        return "no design was left to simulate"
    feasible = are_feasible(answer.num_feasible, has_limits=answer.has_limits)
    simulated = human.designs(answer.num_evaluated)
    return f"{simulated} simulated, {human.count(answer.num_feasible)} {feasible}"


def rule_text(job: Job, name: str) -> str:
    """Returns a constraint in words, with the job's limit."""
    if name == "memory" and (free := job.search.memory_headroom_fraction):
        return f"{RULES[name]}, less search.memory_headroom_fraction = {human.figure(free)}"
    limit = getattr(job.limits, name, None)
    wanted = wanted_probability(job, name)
    runs = f" in more than {human.percent(1.0 - wanted)} of the runs" if wanted is not None else ""
    return (RULES[name].format(human.figure(limit)) if limit is not None else RULES[name]) + runs


def rejections(job: Job, result: StudyResult) -> tuple[Rejection, ...]:
    """Returns how many designs each constraint excluded; constraints that excluded none are left out."""
    before, after = result.space.num_pruned, result.archive.num_breaking
    return tuple(
        Rejection(
            constraint=name,
            rule=rule_text(job, name),
            num_before_simulation=before.get(name, 0),
            num_after_simulation=after[name],
        )
        for name in ExcessTable.names()
        if before.get(name, 0) + after[name] > 0
    )
