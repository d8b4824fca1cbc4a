"""From which year is the software that ran a step?"""

from __future__ import annotations

import re

from planner.measured.frameworks.release_numbers import Month, numbered_month

LAST_COPIED_HEADS_YEAR = 2025
"""Until then torchtitan copied keys and values for the query heads that share them (its pull request 2259)."""
LAST_EAGER_LOSS_YEAR = 2024
"""Since April 2025 torchtitan compiles its loss where it compiles layers (its pull request 1033)."""
LAST_JOINED_LOGITS = (2025, 10)
"""Month until which pipelines of torchtitan returned the model's outputs (its pull request 1922)."""
LAST_PLAIN_EXCHANGE = {"hopper": (2025, 4), "blackwell": (2025, 11)}
"""Month until which Megatron Core had no dispatcher but its own for experts across nodes: DeepEP came with its release 0.12,
and Hybrid-EP, which Blackwell's link domains need, with 0.15."""
FIRST_SEQUENCE_PARALLEL_YEAR = 2022
"""Norms that tensor-parallel ranks split by sequence are of May 2022 (arXiv 2205.05198)."""
LAST_SEPARATE_YEAR = 2020
"""Since September 2020 Megatron-LM fuses bias, activation, dropout and residual (its commit 51a2e6b0ff)."""

_YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")
_YEAR_OF_A_PAGE = re.compile(r"(?<![^\W_])(20[12]\d)(?:0[1-9]|1[0-2])?(?![^\W_])")
"""Years in addresses, perhaps with a month: `llama3_h100_202412_torchtitan.md`."""
_MONTHLY = re.compile(r"(?<![\d.])(2\d)\.(0[1-9]|1[0-2])(?!\d)")
"""Releases that are called by year and month, such as 24.05."""
_ABBREVIATED_YEAR = re.compile(r"(?<=\w) ?['\N{RIGHT SINGLE QUOTATION MARK}](2\d)\b")
"""Years of conferences: SC'21."""
_ARXIV = re.compile(r"(?<![\d.])(1[6-9]|2\d)(?:0[1-9]|1[0-2])\.\d{5}(?!\d)")


def release_year(name: str) -> int | None:
    """Returns the year of a release: the latest date in a name, or else that of its number; `None` if it has neither."""
    years = [int(year) for year in _YEAR.findall(name)] + [year for year, _ in _told_months(name)]
    if not years and (month := numbered_month(name)):
        return month[0]
    return max(years, default=None)


def published_year(source: str, reference: str) -> int | None:
    """Returns the year in which measurements were published, which is assumed for releases whose name states none.

    Args:
        source: name of the publication; the first of its years and releases counts.
        reference: where it is found; used if the source states no year: an arXiv preprint's year, or else any year.
    """
    years = [int(year) for year in _YEAR.findall(source)]
    years += [2000 + int(year) for year in _ABBREVIATED_YEAR.findall(source) + _ARXIV.findall(source)]
    years += [2000 + int(year) for year, _ in _MONTHLY.findall(source)]
    years = years or [2000 + int(year) for year in _ARXIV.findall(reference)]
    return min(years or [int(year) for year in _YEAR_OF_A_PAGE.findall(reference)], default=None)


def exact_month(name: str) -> Month | None:
    """Returns year and month of a release; `None` if a name states only the year, or nothing."""
    if months := _told_months(name):
        return max(months)
    month = numbered_month(name)
    return month if month and month[0] == release_year(name) else None


def release_month(name: str) -> Month | None:
    """Returns the same, but December if a name states only the year."""
    year = release_year(name)
    return exact_month(name) or (None if year is None else (year, 12))


def _told_months(name: str) -> list[Month]:
    return [(2000 + int(year), int(month)) for year, month in _MONTHLY.findall(name)]
