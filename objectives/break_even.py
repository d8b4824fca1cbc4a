"""When does buying pay off? Each design rented and owned, and the calendar months until a purchase has paid for itself.

    saved (1 - (1 + r)^-t) / r = outlay        t in years, r the cost of capital; saved t = outlay without interest

The saving of a year is the rent for the share of it in which the cluster is used, less what owners pay all year long. A
landlord who takes nodes back takes them from renters alone, whose runs are longer by that.
Storage bought for the run is paid for either way, so it is not part of the outlay.

The outlay is the price of the nodes, less the present value of their sale at the end of their life. For parts with another
life it includes the share that the life of the nodes uses up. A purchase that has not paid off by the end of that life
never does. An annuity makes the same test: without economic depreciation, buying pays off exactly where owning costs less
than renting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from objectives.cost import (
    MONTH,
    annuity_fraction,
    held_years,
    owned_parts,
    purchase,
    rent_cost,
    resale_usd,
    storage_usd,
    value_today_usd,
    written_off_usd_per_year,
)
from objectives.usage import Usage, num_held_gpus
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.domain.ownership import Ownership
from simulator.domain.plan import PlanTable
from simulator.table import Floats, total
from simulator.units import HOUR, YEAR

MONTHS_PER_YEAR = YEAR / MONTH
RUNNING = ("maintenance_usd", "staff_usd", "electricity_usd", "demand_usd")
"""Parts of the cost that owners pay in addition to the purchase."""


@dataclass(frozen=True, kw_only=True)
class RentOrOwn:
    """Each design both ways, at the middle of both prices, `(n,)`; NaN where a price is not known."""

    rent_usd: Floats
    own_usd: Floats
    break_even_months: Floats
    """Calendar months at the job's utilisation after which a purchase has paid off; infinite where it never does."""


def rent_or_own(job: Job, plans: PlanTable, usage: Usage, owned: Usage | None = None) -> RentOrOwn:
    """Returns what each design costs rented and owned, and when a purchase pays off.

    Prices are the offer's own, else those that it names for comparison, else the catalogue's price of the node.

    Args:
        job: the job.
        plans: `(n,)` designs.
        usage: what they use.
        owned: what they use on nodes that no landlord takes back; left out: the same.
    """
    owned = owned or usage
    rents = np.array([rent_of(offer) for offer in job.offers])[plans.offer]
    nodes = np.array([node_price_of(offer) for offer in job.offers])[plans.offer]
    rent, node = np.nan_to_num(rents), np.nan_to_num(nodes)
    # Who rents pays for the same work, which takes longer where nodes are taken back.
    is_finite = np.isfinite(usage.wall_s) & np.isfinite(owned.wall_s)
    longer = np.where(is_finite, usage.wall_s, np.nan) / np.where(is_finite, owned.wall_s, 1.0)
    saved = _rent_usd_per_year(job, plans, rent) * longer - running_usd_per_year(job, plans, owned, node)
    rented = rent_cost(job, plans, usage, rent) + storage_usd(job, usage)
    months = payback_months(job.ownership, outlay_usd(job, plans, owned, node), saved)
    return RentOrOwn(
        rent_usd=np.where(np.isnan(rents), np.nan, rented),
        own_usd=np.where(np.isnan(nodes), np.nan, total(owned_parts(job, plans, owned, node).values())),
        break_even_months=np.where(np.isnan(rents + nodes), np.nan, months),
    )


def _rent_usd_per_year(job: Job, plans: PlanTable, usd_per_gpu_hour: Floats) -> Floats:
    """Returns the rent for the hours of a year in which the cluster is used, `(n,)`."""
    used_hours = YEAR / HOUR * job.ownership.utilization_fraction
    return num_held_gpus(job, plans) * usd_per_gpu_hour * used_hours


def running_usd_per_year(job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats) -> Floats:
    """Returns what owners pay in a calendar year in addition to the purchase, `(n,)`; NaN where a run never ends.

    Maintenance, staff and the demand charge accrue all year, electricity for the share of the year that is used.
    """
    is_finite = np.isfinite(usage.wall_s)
    parts = owned_parts(job, plans, usage, usd_per_node)
    paid = np.where(is_finite, total([parts[name] for name in RUNNING]), np.nan)
    return np.asarray(paid / np.where(is_finite, held_years(job.ownership, usage.wall_s), 1.0))


def outlay_usd(job: Job, plans: PlanTable, usage: Usage, usd_per_node: Floats) -> Floats:
    """Returns what savings must pay back within the life of the nodes, `(n,)`, as value at the start."""
    own, price = job.ownership, purchase(job, plans, usage.peak_power_w, usd_per_node)
    rest = total(written_off_usd_per_year(own, price).values())
    within_life = rest / annuity_fraction(own.capital_cost_fraction_per_year, own.lifetime_years)
    return np.asarray(value_today_usd(own, price.nodes) - resale_usd(own, price.nodes) + within_life)


def payback_months(own: Ownership, outlay: Floats, saved_usd_per_year: Floats) -> Floats:
    """Returns after how many calendar months savings have paid back an outlay, interest included, `(n,)`.

    Infinite where they have not by the end of the nodes' life, NaN where the outlay or the savings are NaN.
    """
    rate = own.capital_cost_fraction_per_year
    # Savings of at least the annuity pay off within the life, so the argument of the logarithm below is positive.
    pays = saved_usd_per_year > 0.0
    pays &= saved_usd_per_year >= outlay * annuity_fraction(rate, own.lifetime_years)
    years = np.divide(outlay, saved_usd_per_year, out=np.zeros(len(outlay)), where=pays)
    if rate > 0.0:
        years = -np.log1p(-rate * years) / np.log1p(rate)
    months = np.where(pays, years * MONTHS_PER_YEAR, np.inf)
    return np.where(np.isnan(outlay + saved_usd_per_year), np.nan, months)


def rent_of(offer: Offer) -> float:
    """Returns the middle rent of an offer, its own or the one for comparison; NaN where there is none."""
    estimate = offer.rent_usd_per_gpu_hour or offer.other_rent_usd_per_gpu_hour
    return estimate.mid if estimate else np.nan


def node_price_of(offer: Offer) -> float:
    """Returns the middle price of an offer's node: its own, else the one for comparison, else the catalogue's, else NaN."""
    estimate = offer.purchase_usd_per_node or offer.other_purchase_usd_per_node
    if estimate:
        return estimate.mid
    return np.nan if offer.node.purchase_usd is None else offer.node.purchase_usd
