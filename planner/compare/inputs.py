"""In which inputs do two jobs differ, and how does one look with an input of the other? Fields, matched by their names.

Offers are matched by their accelerators, not by their places in the list; of several with the same one the first with
the first, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.job.in_short import in_short
from planner.text import human
from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Accelerator, Fabric, Node, Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.model import ModelShape
from simulator.domain.offer import Estimate, GpuRange, Offer
from simulator.domain.workload import Workload
from simulator.record import Record

CHOOSING = ("limits", "objectives", "preference", "search", "what_if", "input_factors")
"""Fields of a job that decide which design is chosen, and change no figure of a design."""
CHOOSING_OF_OFFER = ("num_gpus",)
NAMING = ("name", "price_source")
"""Fields that change nothing."""
WHOLE = (ModelShape, Accelerator, Node, Fabric, Estimate, GpuRange, HourlyProfile, Calibration)
"""Types that change as a whole: single fields of a model or an accelerator make no sense beside those of another."""
PRICE_FIELDS = ("rent_usd_per_gpu_hour", "purchase_usd_per_node")
"""An offer has one of them, so that they change together."""
MODEL_FIELDS = ("model", "images")
"""A workload without images has a model without an encoder, so that they change together."""
NOT_ON_OFFER = "not on offer"

OfferKey = tuple[str, int]
"""An accelerator, and which of its offers, counted from 0: places in the list differ from job to job."""
Path = tuple[str | int, ...]
"""Place in a job: names of fields, and positions in tuples."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One input in which two jobs differ, or a few that only make sense together."""

    name: str
    """Place as users write it, offers by their accelerators."""
    record: Path
    """Place of the record that has the fields."""
    fields: tuple[str, ...]
    before: str
    """What stands there in the first job, in short."""
    after: str
    is_choosing: bool
    """Whether it only decides which design is chosen."""
    accelerator: str = ""
    """What one side has more offers of, where that is the difference."""


def offer_keys(job: Job) -> list[OfferKey]:
    """Returns what the offers of a job are matched by, in their order."""
    names = [offer.accelerator.id for offer in job.offers]
    return [(name, names[:place].count(name)) for place, name in enumerate(names)]


def offer_label(key: OfferKey, *jobs: Job) -> str:
    """Returns an offer as users write it: `offers[gb200]`, and `offers[gb200 #2]` where a job has several of it."""
    name, place = key
    is_alone = all(len(_offers_of(job, name)) <= 1 for job in jobs)
    return f"offers[{name}]" if is_alone else f"offers[{name} #{place + 1}]"


def _offers_of(job: Job, accelerator: str) -> tuple[Offer, ...]:
    return tuple(offer for offer in job.offers if offer.accelerator.id == accelerator)


def with_one_offer(job: Job, offer: Offer) -> Job:
    """Returns a job in which nothing but one offer can be had."""
    return job.model_copy(update={"offers": (offer,)})


def differences(first: Job, second: Job, label: str = "") -> list[Difference]:
    """Returns every input in which two jobs differ, in the order of the fields.

    Args:
        first: a job.
        second: another one.
        label: of the offer, where both have one that is one of several elsewhere.
    """
    found = [
        difference
        for name in Job.model_fields
        if name not in ("offers", *NAMING)
        for difference in _between(getattr(first, name), getattr(second, name), (), name, name)
    ]
    return [*found, *_offers(first, second, label)]


def _offers(first: Job, second: Job, label: str) -> Iterator[Difference]:
    own, others = offer_keys(first), offer_keys(second)
    for name in dict.fromkeys(name for name, _ in (*own, *others)):
        for key in (key for key in own if key[0] == name and key in others):
            mine, theirs = first.offers[own.index(key)], second.offers[others.index(key)]
            called = label or offer_label(key, first, second)
            yield from _records(mine, theirs, ("offers", own.index(key)), called, is_choosing=False)
        counts = [len(_offers_of(job, name)) for job in (first, second)]
        if counts[0] != counts[1]:
            before, after = (_count_text(count, is_one_enough=0 in counts) for count in counts)
            yield Difference(
                name=f"offers[{name}]",
                record=(),
                fields=("offers",),
                before=before,
                after=after,
                is_choosing=True,
                accelerator=name,
            )


def _count_text(count: int, *, is_one_enough: bool) -> str:
    """How often an accelerator is on offer; nobody counts where one side does not have it."""
    if not count:
        return NOT_ON_OFFER
    return "on offer" if is_one_enough else human.counted(count, "offer")


def text_in(job: Job, difference: Difference, first: Job) -> str:
    """Returns what stands in a third job where the first one differs from another, in short.

    The third job may have another offer or site there as a whole, which is a difference of its own, or none.
    """
    mine: object = first
    theirs: object = job
    for step in difference.record:
        if isinstance(step, int):
            key, keys = offer_keys(first)[step], offer_keys(job)
            if key not in keys:
                return NOT_ON_OFFER
            mine, theirs = first.offers[step], job.offers[keys.index(key)]
        else:
            mine, theirs = getattr(mine, step), getattr(theirs, step, None)
    if difference.fields == PRICE_FIELDS and isinstance(theirs, Offer):
        return price_text(theirs)
    if difference.fields == MODEL_FIELDS and isinstance(theirs, Workload):
        return model_text(theirs)
    (field,) = difference.fields
    before, after = getattr(mine, field), getattr(theirs, field, None)
    # How often an accelerator is on offer differs by its count alone.
    return difference.before if difference.accelerator or before == after else _told_apart(before, after)[1]


def _between(
    mine: object, theirs: object, record: Path, field: str, label: str, *, is_choosing: bool = False
) -> Iterator[Difference]:
    """Yields the differences of one field."""
    if mine == theirs:
        return
    is_choosing = is_choosing or field in CHOOSING
    is_record = isinstance(mine, Record) and type(mine) is type(theirs) and not isinstance(mine, WHOLE)
    if is_record and not _is_moved(mine, theirs):
        assert isinstance(mine, Record)
        assert isinstance(theirs, Record)
        yield from _records(mine, theirs, (*record, field), label, is_choosing=is_choosing)
        return
    before, after = _told_apart(mine, theirs)
    yield Difference(
        name=label,
        record=record,
        fields=(field,),
        before=before,
        after=after,
        is_choosing=is_choosing,
    )


def _told_apart(mine: object, theirs: object) -> tuple[str, str]:
    """Two values in short; records with one name, such as fabrics of one kind, also with the fields in which they differ."""
    before, after = in_short(mine), in_short(theirs)
    if before != after or not isinstance(mine, WHOLE):
        return before, after
    fields = [name for name in type(mine).model_fields if getattr(mine, name) != getattr(theirs, name)]

    def with_fields(record: object) -> str:
        told = (f"{name} {in_short(getattr(record, name))}" for name in fields)
        return f"{in_short(record)} ({', '.join(told)})"

    return with_fields(mine), with_fields(theirs)


def _is_moved(mine: object, theirs: object) -> bool:
    """Returns whether two sites are different places, whose figures belong together."""
    return isinstance(mine, Site) and isinstance(theirs, Site) and mine.region != theirs.region


def _records(
    mine: Record, theirs: Record, record: Path, label: str, *, is_choosing: bool
) -> Iterator[Difference]:
    """Yields the differences of two records of one type, field by field."""
    names = [name for name in type(mine).model_fields if name not in NAMING]
    if isinstance(mine, Offer) and isinstance(theirs, Offer):
        yield from _price(mine, theirs, record, label)
        names = [name for name in names if name not in PRICE_FIELDS]
    if isinstance(mine, Workload) and isinstance(theirs, Workload) and _is_seeing(mine) != _is_seeing(theirs):
        yield Difference(
            name=f"{label}.model and images",
            record=record,
            fields=MODEL_FIELDS,
            before=model_text(mine),
            after=model_text(theirs),
            is_choosing=is_choosing,
        )
        names = [name for name in names if name not in MODEL_FIELDS]
    for name in names:
        chooses = is_choosing or (isinstance(mine, Offer) and name in CHOOSING_OF_OFFER)
        values = getattr(mine, name), getattr(theirs, name)
        yield from _between(*values, record, name, f"{label}.{name}", is_choosing=chooses)


def _price(mine: Offer, theirs: Offer, record: Path, label: str) -> Iterator[Difference]:
    prices = [tuple(getattr(offer, name) for name in PRICE_FIELDS) for offer in (mine, theirs)]
    if prices[0] != prices[1]:
        before, after = (price_text(offer) for offer in (mine, theirs))
        yield Difference(
            name=f"{label}.price",
            record=record,
            fields=PRICE_FIELDS,
            before=before,
            after=after,
            is_choosing=False,
        )


def _is_seeing(workload: Workload) -> bool:
    return workload.images is not None


def model_text(workload: Workload) -> str:
    """Returns what is trained, on which images: `Qwen3-VL 8B, 4 images of 256 tokens`."""
    name, images = in_short(workload.model), workload.images
    return f"{name}, {images.per_sequence:g} images of {images.tokens_per_image} tokens" if images else name


def price_text(offer: Offer) -> str:
    """Returns what an offer costs: `rent 2.6 (2 to 4) USD/GPU-hour`."""
    rent, purchase = (getattr(offer, name) for name in PRICE_FIELDS)
    return f"rent {in_short(rent)} USD/GPU-hour" if rent else f"purchase {in_short(purchase)} USD/node"


def swapped(job: Job, difference: Difference, other: Job) -> Job:
    """Returns a job with one input of another, whose offers stand in the same order; nothing is validated."""
    found = _swapped(job, other, difference.record, difference.fields)
    assert isinstance(found, Job)
    return found


def with_input(job: Job, difference: Difference, other: Job) -> Job:
    """Returns a job with one input of another, in which other things may be on offer; nothing is validated."""
    if difference.fields == ("offers",):
        return _with_offers_of(job, difference.accelerator, other)
    theirs = dict(zip(offer_keys(other), other.offers, strict=True))
    aligned = tuple(theirs.get(key, offer) for key, offer in zip(offer_keys(job), job.offers, strict=True))
    return swapped(job, difference, other.model_copy(update={"offers": aligned}))


def _with_offers_of(job: Job, accelerator: str, other: Job) -> Job:
    """A job with as many offers of one accelerator as the other has; those that both have stay as they are."""
    kept = [offer for offer in job.offers if offer.accelerator.id != accelerator]
    mine, theirs = _offers_of(job, accelerator), _offers_of(other, accelerator)
    return job.model_copy(update={"offers": (*kept, *mine[: len(theirs)], *theirs[len(mine) :])})


def _swapped(mine: object, theirs: object, record: Path, fields: tuple[str, ...]) -> object:
    if not record:
        assert isinstance(mine, Record)
        return mine.model_copy(update={name: getattr(theirs, name) for name in fields})
    step, *rest = record
    if isinstance(step, int):
        assert isinstance(mine, tuple)
        assert isinstance(theirs, tuple)
        inner = _swapped(mine[step], theirs[step], tuple(rest), fields)
        return (*mine[:step], inner, *mine[step + 1 :])
    assert isinstance(mine, Record)
    inner = _swapped(getattr(mine, step), getattr(theirs, step), tuple(rest), fields)
    return mine.model_copy(update={step: inner})
