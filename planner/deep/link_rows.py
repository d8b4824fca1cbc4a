"""Which links of a network are waited for, row by row? Links that are alike share a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.deep.played_step import HotLink
from planner.text import human


def link_rows(links: Sequence[HotLink], num_accelerators: int) -> Iterator[tuple[str, str, str, str]]:
    """Yields the cells of a link: name, bytes, how long it is full, and how long an average accelerator waits for it.

    Args:
        links: the links, those with the longest waits first.
        num_accelerators: accelerators over which waits are averaged.
    """
    for number, link in enumerate(links):
        if any(link.is_like(other) for other in links[:number]):
            continue
        more = f", and {human.count(link.num_alike - 1)} like it" if link.num_alike > 1 else ""
        full = f"full {human.percent(link.full_fraction)} of the step"
        waited = human.duration(link.waited_s / num_accelerators)
        yield f"{link.link}{more}", f"{human.short(link.num_bytes)}B", full, waited
