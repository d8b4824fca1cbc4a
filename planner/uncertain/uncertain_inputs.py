"""Which inputs of some designs are uncertain, how wide is each range, and where does it come from?

Inputs and ranges are those of the draws (`objectives.input_table`, `objectives.unsure_inputs`), described here by fields of
the job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from objectives.input_table import (
    HARDWARE_PRICE,
    INPUTS,
    LAYOUT_TIME,
    NETWORK_BANDWIDTH,
    STEP_TIME,
    STRAGGLER_EXCESS,
    Input,
    Place,
    value_at,
)
from objectives.unsure_inputs import UnsureInput, unsure_inputs
from planner.text import human
from planner.uncertain.uncertainty import accuracy_of
from simulator.domain.job import Job
from simulator.domain.offer import Estimate
from simulator.domain.options import InputFactors
from simulator.domain.plan import PlanTable
from simulator.record import Record, meanings

_WHY = {
    HARDWARE_PRICE: "the price range of the job",
    NETWORK_BANDWIDTH: "estimate: share of the fabric left by other jobs, 20 % either way",
    STRAGGLER_EXCESS: "its logarithm among 3,079 jobs (arXiv 2505.05713) by default",
}
"""Where the ranges come from that are not the job's `input_factors`."""
_OF_CATALOG = {"accelerator", "node", "fabric"}
"""Parts of an offer that a job names, so that `--set` takes none of their fields."""
_PARTS = {STEP_TIME: "the part that all layouts share", LAYOUT_TIME: "the part of each layout"}
"""Parts of the error of a step."""


class UncertainInput(Record):
    """One uncertain input and its range."""

    name: str
    """Field of the job, as `--set` takes it; for anything else, such as a figure of the catalogue or a factor on several
    fields, a description."""
    factor: str
    """Field of [InputFactors](job-file.md#inputfactors) with its range; or `hardware_price`, `layout_time` (the part of the
    step time's error that each layout has of its own) or `network_bandwidth`."""
    unit: str
    """Unit of the values; empty for shares and where the name has it, `x` for factors."""
    low: float
    """Lowest value: the 5th percentile."""
    mid: float
    """Value of the job."""
    high: float
    """Highest value: the 95th percentile."""
    why: str
    """Where the range comes from."""


@dataclass(frozen=True, kw_only=True)
class Lever:
    """One uncertain input of some designs, which all that share it have in common."""

    input: UncertainInput
    owner: str
    """What these designs share: accelerator or region; empty for the whole job."""
    offers: tuple[int, ...]
    """Their offers."""
    low: float
    """Factor at the low end of the range,"""
    high: float
    """and at the high end."""
    above: float
    """The factor multiplies what the value has above this."""

    @property
    def name(self) -> str:
        """Its name in the table of inputs."""
        return self.input.factor

    def value(self, factor: float) -> float:
        """Returns the value at a factor."""
        return self.above + (self.input.mid - self.above) * factor


def levers(job: Job, plans: PlanTable) -> Iterator[Lever]:
    """Yields the inputs on which designs may depend, each once for all designs that share it.

    The prices of two offers are two inputs, even on the same accelerators, and a price has no range if the job gives none.
    Ranges are those of the first design that shares the input.
    """
    for unsure in unsure_inputs(job, plans).values():
        known, done = INPUTS[unsure.name], set[tuple[int, ...] | str]()
        is_price = known.name == HARDWARE_PRICE
        for row, draw in enumerate(unsure.draws):
            own = int(plans.offer[row])
            shared_by = (own,) if is_price else draw
            is_certain = unsure.log_low[row] == unsure.log_high[row]
            if shared_by in done or (is_certain and not is_price):
                continue
            done.add(shared_by)
            offers = (own,) if is_price else _sharing(job, plans, known, own)
            if (shown := _value(job, known, offers)) is not None:
                yield _lever(job, plans, unsure, row, shown, offers)


def _sharing(job: Job, plans: PlanTable, known: Input, own: int) -> tuple[int, ...]:
    """The offers of the designs that share an input with one of them, which is the first."""
    others = (int(offer) for offer in np.unique(plans.offer) if offer != own)
    return own, *(offer for offer in others if known.owner(job, offer) == known.owner(job, own))


@dataclass(frozen=True, kw_only=True)
class _Value:
    """What readers see of an input: the value of the field that it multiplies, or the factor itself."""

    name: str
    unit: str = "x"
    mid: float = 1.0
    above: float = 0.0
    most: float = math.inf


def _value(job: Job, known: Input, offers: tuple[int, ...]) -> _Value | None:
    """The only value that an input multiplies for the offers that share it, or its factor if there are several.

    `None` if all of them are 0 or left out.
    """
    if known.name == STRAGGLER_EXCESS:
        return _Value(name="straggler slow-down", mid=job.reliability.straggler_slowdown, above=1.0)
    found = [
        (field, place, value)
        for field in known.fields
        for place in field.places(job, offers)
        if (value := _shown(value_at(job, place))) not in {None, 0.0, field.above}
    ]
    if known.fields and not found:
        return None
    words = "step time of the layout" if known.name == LAYOUT_TIME else human.words(known.name)
    is_alike = len({(field.path, value) for field, _, value in found}) == 1
    if is_alike and isinstance(mid := found[0][2], (int, float)):
        field, place, _ = found[0]
        name = words if set(place) & _OF_CATALOG else _path(place)
        return _Value(name=name, unit=field.unit, mid=mid, above=field.above, most=field.most)
    return _Value(name=words)


def _shown(value: object) -> object:
    return value.mid if isinstance(value, Estimate) else value


def _path(place: Place) -> str:
    """A place as `--set` takes it: `offers[0].fabric.port_usd`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)[1:]


def _lever(
    job: Job, plans: PlanTable, unsure: UnsureInput, row: int, shown: _Value, offers: tuple[int, ...]
) -> Lever:
    extent = shown.mid - shown.above
    low, high = math.exp(unsure.log_low[row]), math.exp(unsure.log_high[row])
    high = min(high, max(1.0, (shown.most - shown.above) / extent))
    return Lever(
        input=UncertainInput(
            name=shown.name,
            factor=unsure.name,
            unit=shown.unit,
            low=shown.above + extent * low,
            mid=shown.mid,
            high=shown.above + extent * high,
            why=_why(job, plans, row, unsure.name),
        ),
        owner=INPUTS[unsure.name].owner(job, offers[0]),
        offers=offers,
        low=low,
        high=high,
        above=shown.above,
    )


def _why(job: Job, plans: PlanTable, row: int, name: str) -> str:
    """Where the range of an input comes from: for most, the docstring of its field in `InputFactors`."""
    if getattr(job.input_factors, name, None) is None and name in (STEP_TIME, LAYOUT_TIME):
        accuracy = accuracy_of(job, plans, row)
        borrowed = "" if accuracy.is_measured else ", the least accurate group"
        return f"error of simulated steps on {accuracy.compared_with}{borrowed}: {_PARTS[name]}"
    if name == STEP_TIME:
        return "the job's range"
    return _WHY.get(name) or " ".join(meanings(InputFactors)[name].split()).removesuffix(".")
