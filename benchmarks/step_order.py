"""Are steps that were measured as faster also simulated as faster? Rank correlations, and pairs of distinguishable layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from benchmarks.sheets import Sheet, by_group, layout
from planner.measured.runs import Comparison, plan_of
from planner.validation.comparison import MIN_RANKED, rank_correlation

COMMON_TO_A_PAIR = (
    "group",
    "model",
    "num_heads",
    "accelerator",
    "num_gpus",
    "sequence_length",
    "precision",
    "is_production",
)
"""Columns in which two rows agree whose layouts are compared."""
DISTINGUISHABLE = 1.05
"""Ratio of two measured rates from which their order means something: the same configuration in another software
release differs by 5 % (median of 66 configurations)."""


def rank_correlations(comparisons: Sequence[Comparison]) -> dict[str, tuple[int, float]]:
    """Returns size and Spearman correlation of measured and simulated token rates of every group.

    A group is a model on a number of accelerators of one kind; in it, layout, batch, sequence and format differ.
    """

    def name(comparison: Comparison) -> str:
        row = comparison.row
        return f"{row['model']}, {row['num_gpus']} {row['accelerator']}"

    found = {}
    for group, members in by_group(comparisons, name).items():
        if len(members) >= MIN_RANKED:
            measured, simulated = np.array([token_rates(member) for member in members]).T
            found[group] = (len(members), rank_correlation(measured, simulated))
    return found


def token_rates(comparison: Comparison) -> tuple[float, float]:
    """Returns measured and simulated tokens per second."""
    tokens = comparison.tokens_per_step
    return tokens / comparison.measured_s, tokens / comparison.expected_s


@dataclass(frozen=True, kw_only=True)
class OrderedPair:
    """Two steps of one model on the same accelerators with different layouts, whose measured rates can be told apart."""

    source: str
    layouts: frozenset[str]
    """Both, whatever the number of replicas."""
    is_right: bool
    """Whether the faster one is the faster one as simulated."""


def ordered_pairs(comparisons: Sequence[Comparison]) -> list[OrderedPair]:
    """Returns the pairs of layouts that can be told apart.

    The two of a pair share source, model, accelerators, sequence and format, and differ in layout or micro-batch.
    """

    def name(comparison: Comparison) -> str:
        return "|".join(comparison.row[column] for column in COMMON_TO_A_PAIR)

    pairs = []
    for members in by_group(comparisons, name).values():
        for one, other in combinations(members, 2):
            measured, simulated = np.divide(token_rates(one), token_rates(other))
            is_apart = abs(np.log(measured)) >= np.log(DISTINGUISHABLE)
            if is_apart and plan_of(one.row) != plan_of(other.row):
                layouts = frozenset(layout({**step.row, "num_gpus": "any"}) for step in (one, other))
                is_right = bool((measured > 1) == (simulated > 1))
                pairs.append(OrderedPair(source=one.row["group"], layouts=layouts, is_right=is_right))
    return pairs


def ordered_layouts(pairs: Sequence[OrderedPair]) -> tuple[int, float]:
    """Returns how many pairs of layouts there are, each counted once for all sizes, and the share that is ordered rightly."""
    shares = [
        np.mean([pair.is_right for pair in same]) for same in by_group(pairs, _source_and_layouts).values()
    ]
    return len(shares), float(np.mean(shares))


def _source_and_layouts(pair: OrderedPair) -> str:
    return "; ".join((pair.source, *sorted(pair.layouts)))


def rank_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    """Returns the rank correlations of all groups."""
    found = rank_correlations(comparisons)
    lines = [[group, str(size), f"{value:.2f}"] for group, (size, value) in found.items()]
    mean = np.mean([value for _, value in found.values()])
    lines.append(["mean of the groups", str(sum(size for size, _ in found.values())), f"{mean:.2f}"])
    return Sheet(name="rank", head=("model and cluster", "n", "rank correlation"), lines=lines)


def order_sheet(comparisons: Sequence[Comparison]) -> Sheet:
    """Returns how many pairs of layouts are ordered rightly, by source."""
    lines = []
    for source, pairs in sorted(by_group(ordered_pairs(comparisons), lambda pair: pair.source).items()):
        num_layouts, share = ordered_layouts(pairs)
        right = np.mean([pair.is_right for pair in pairs])
        lines.append([source, str(len(pairs)), f"{right:.0%}", str(num_layouts), f"{share:.0%}"])
    steps = ("pairs of steps of other layouts, more than 5 % apart", "ordered rightly")
    head = ("source", *steps, "pairs of layouts, each once for all sizes", "layouts ordered rightly")
    return Sheet(name="order", head=head, lines=lines)
