"""What does a pass through a part of the model consist of? Work, traffic between it, and traffic that overlaps with it.

Values of these types stand for one micro-batch on one rank; `simulator.deep.plans.plan_graph` makes tasks of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from simulator.deep.plans.plan_collectives import Collective
from simulator.traffic.layer_collectives import CORE_SHARE

FORWARD, BACKWARD, WEIGHT_GRADIENT = range(3)
"""Directions of a pass; zero-bubble schedules compute gradients of weights in a pass of their own."""
LENT = "cores lent to"
"""Label of the extra time that work takes because overlapping traffic takes cores."""
WEIGHTS = "products"
"""Label of gradients of weights that are computed later than those of inputs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """An operator."""

    label: str
    duration_s: float
    in_pairs: bool = False
    """Whether it is done only in pairs of a forward and a backward (`simulator.pipeline.dual_pipe`)."""
    but_in_pairs: bool = False
    """Whether it is done only outside such pairs."""
    has_weights: bool = False
    """Whether its backward pass computes gradients of weights."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Traffic, one collective after another, that overlaps with work; what follows waits for both."""

    traffic: tuple[Collective, ...]
    items: tuple[Item, ...]
    in_pairs: bool = False
    """Whether they overlap only in pairs of a forward and a backward; elsewhere the work waits for the traffic."""


Item = Work | Collective | Beside
Items = tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class PartPasses:
    """The passes of one micro-batch through one part of the model: a layer, the embedding or the output layer."""

    forward: Items
    backward: Items
    weight_gradient_s: float = 0.0
    """The part of the backward pass that zero-bubble schedules compute later."""

    @property
    def input_gradient(self) -> Items:
        """The backward pass without that part: products are shorter, all else stays, such as the core that hides rings."""
        whole_s = sum(each.duration_s for each in works_of(self.backward) if each.has_weights)
        left = max(0.0, 1.0 - self.weight_gradient_s / whole_s) if whole_s else 1.0
        later = work(WEIGHTS, self.weight_gradient_s, in_pairs=True)
        return tuple(
            replace(item, items=(*item.items, *later)) if isinstance(item, Beside) and item.in_pairs else item
            for item in stretched(self.backward, left, has_weights=True)
        )

    @property
    def weight_gradient(self) -> Items:
        """The part left for later; nothing in a pair, whose traffic hides behind the whole backward pass."""
        is_hidden = any(isinstance(item, Beside) and item.in_pairs for item in self.backward)
        found = Work(label=WEIGHTS, duration_s=self.weight_gradient_s, but_in_pairs=is_hidden)
        return (found,) if self.weight_gradient_s > 0.0 else ()


def work(label: str, duration_s: float, *, in_pairs: bool = False, has_weights: bool = False) -> Items:
    """Returns an operator, or nothing where it takes no time."""
    found = Work(label=label, duration_s=duration_s, in_pairs=in_pairs, has_weights=has_weights)
    return (found,) if duration_s > 0.0 else ()


def moves(*traffic: Collective) -> tuple[Collective, ...]:
    """Returns the collectives that send anything."""
    return tuple(each for each in traffic if each.moves)


def beside(
    traffic: tuple[Collective, ...], items: Items, *, lent_to: str = "", in_pairs: bool = False
) -> Items:
    """Returns work that overlaps with traffic.

    Args:
        traffic: the collectives.
        items: the work.
        lent_to: name of the traffic that takes cores from the work; empty: it takes none.
        in_pairs: whether the traffic overlaps with the work only in pairs, and comes before it elsewhere.
    """
    if not moves(*traffic):
        return items
    traffic_s, cover_s = sum(each.alone_s for each in traffic), seconds_of(items)
    lent_s = CORE_SHARE * min(traffic_s, cover_s) if lent_to else 0.0
    lent = work(f"{LENT} {lent_to}", lent_s, in_pairs=in_pairs)
    return (Beside(traffic=moves(*traffic), items=(*items, *lent), in_pairs=in_pairs),)


def between(traffic: tuple[Collective, ...], items: Items) -> Items:
    """Returns items whose operators overlap with traffic of another micro-batch, in proportion to their durations.

    Operators without traffic of their own come first, because elsewhere links would be shared. Collectives that overlap with
    no operator get none.
    """
    traffic_s, whole_s = sum(each.alone_s for each in traffic), seconds_of(items)
    free_s = sum(each.duration_s for each in items if isinstance(each, Work))
    if traffic_s <= free_s or free_s == whole_s:
        return _spread(traffic, items, 1.0 / free_s, 0.0)
    return _spread(traffic, items, 1.0 / traffic_s, (1.0 - free_s / traffic_s) / (whole_s - free_s))


def _spread(traffic: tuple[Collective, ...], items: Items, free: float, busy: float) -> Items:
    """Overlaps each second of operators with a share of the traffic: `free` without traffic of their own, `busy` with."""
    found: Items = ()
    for kind, each in groupby(items, key=type):
        run = tuple(each)
        if kind is Work:
            share = free * seconds_of(run)
            found += beside(tuple(part.scaled(share) for part in traffic), run)
        else:
            found += tuple(
                replace(item, items=_spread(traffic, item.items, busy, busy))
                if isinstance(item, Beside)
                else item
                for item in run
            )
    return found


def between_operators(label: str, duration_s: float, items: Items) -> Items:
    """Returns items with more work after each operator, or each run of operators that overlaps with traffic, in proportion."""
    whole_s = seconds_of(items)
    if duration_s == 0.0 or whole_s == 0.0:
        return (*items, *work(label, duration_s))
    share = duration_s / whole_s
    return tuple(part for item in items for part in (item, *work(label, share * seconds_of((item,)))))


def works_of(items: Iterable[Item]) -> list[Work]:
    """Returns all operators in their order."""
    found = []
    for item in items:
        if isinstance(item, Work):
            found.append(item)
        elif isinstance(item, Beside):
            found += works_of(item.items)
    return found


def collectives_of(items: Iterable[Item]) -> list[Collective]:
    """Returns all collectives; those that overlap with work come before those inside the work."""
    found = []
    for item in items:
        if isinstance(item, Collective):
            found.append(item)
        elif isinstance(item, Beside):
            found += [*item.traffic, *collectives_of(item.items)]
    return found


def seconds_of(items: Iterable[Item]) -> float:
    """Returns the total time of the operators."""
    return sum(each.duration_s for each in works_of(items))


def cover_s(items: Items) -> float:
    """Returns how long items take one after another, all of which may overlap with the traffic of others."""
    return seconds_of(items) + sum(each.alone_s for each in collectives_of(items))


def stretched(items: Items, factor: float, *, has_weights: bool = False) -> Items:
    """Returns the same items with operators that take `factor` times as long: all, or only those that have weights."""
    return tuple(_stretched(item, factor, has_weights=has_weights) for item in items)


def _stretched(item: Item, factor: float, *, has_weights: bool) -> Item:
    match item:
        case Work():
            is_longer = item.has_weights or not has_weights
            return replace(item, duration_s=factor * item.duration_s) if is_longer else item
        case Beside():
            return replace(item, items=stretched(item.items, factor, has_weights=has_weights))
        case Collective():
            return item


def repeated(items: Items, number: float) -> Items:
    """Returns items that occur so many times, or so often on average: operators and traffic alike."""
    return tuple(_repeated(item, number) for item in items)


def _repeated(item: Item, number: float) -> Item:
    match item:
        case Work():
            return replace(item, duration_s=number * item.duration_s)
        case Beside():
            traffic = tuple(each.scaled(number) for each in item.traffic)
            return replace(item, traffic=traffic, items=repeated(item.items, number))
        case Collective():
            return item.scaled(number)
