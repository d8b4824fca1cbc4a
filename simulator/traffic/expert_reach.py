"""How many of the equal parts of all experts, such as link domains, does a token reach?

A token draws k of E experts at random, or of the experts of some groups, which it draws first (group-limited routing). With P
parts, C(a, b) the ways to draw b of a, and o the number of experts that a part shares with the drawn groups, which have q E/G
(q of G groups),

    reached      P (1 - C(E - E/P, k) / C(E, k))
    in groups    sum over parts of 1 - mean over draws of q groups of C(q E/G - o, k) / C(q E/G, k)

since a part is missed when all k experts lie in other parts.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import comb

import numpy as np

from simulator.domain.blocks import MixtureOfExperts
from simulator.table import Floats, total


def num_reached(experts: MixtureOfExperts, parts: Floats) -> Floats:
    """Returns how many of the equal parts of all experts, `(n,)`, a token reaches when its experts are drawn at random."""
    k, num_groups, chosen = experts.experts_per_token, experts.num_groups, experts.groups_per_token
    if chosen == num_groups:
        return parts * (1.0 - _missed(experts.num_experts, experts.num_experts * (1.0 - 1.0 / parts), k))
    group_size = experts.num_experts / num_groups
    pool, of_part = chosen * group_size, num_groups / parts
    near_parts = np.maximum(parts, num_groups) * chosen / num_groups
    near = near_parts * (1.0 - _missed(pool, pool * (1.0 - 1.0 / near_parts), k))
    missed = total(
        _choose(of_part, among)
        * _choose(num_groups - of_part, chosen - among)
        * _missed(pool, np.full_like(parts, pool - among * group_size), k)
        for among in range(chosen + 1)
    )
    found = np.where(parts >= num_groups, near, parts * (1.0 - missed / comb(num_groups, chosen)))
    for number in np.unique(parts):
        if _lie_astride(experts, number):
            found[parts == number] = _reached_astride(experts, int(number))
    return found


def _lie_astride(experts: MixtureOfExperts, parts: float) -> bool:
    """Returns whether neither parts consist of whole groups nor groups of whole parts."""
    is_whole = parts == int(parts) and experts.num_experts % parts == 0
    return bool(is_whole and parts % experts.num_groups and experts.num_groups % parts)


@cache
def _reached_astride(experts: MixtureOfExperts, parts: int) -> float:
    """Returns the same where parts share some groups with each other."""
    of_part, of_group = experts.num_experts // parts, experts.num_experts // experts.num_groups
    owners = (
        Counter(expert // of_group for expert in range(part * of_part, (part + 1) * of_part))
        for part in range(parts)
    )
    alike = Counter(tuple(sorted(shared.values())) for shared in owners)
    return sum(number * (1.0 - _missed_astride(experts, shared)) for shared, number in alike.items())


def _missed_astride(experts: MixtureOfExperts, shared: tuple[int, ...]) -> float:
    """Returns the probability that a token has no expert of a part that shares so many with each of its groups."""
    num_groups, chosen, k = experts.num_groups, experts.groups_per_token, experts.experts_per_token
    draws = Counter({(0, 0): 1})
    """Ways to draw so many of the groups of the part, with so many of its experts."""
    for own in shared:
        draws += Counter({(groups + 1, among + own): ways for (groups, among), ways in draws.items()})
    pool = chosen * experts.num_experts // num_groups
    missed = sum(
        ways * comb(num_groups - len(shared), chosen - groups) * comb(pool - among, k)
        for (groups, among), ways in draws.items()
        if groups <= chosen
    )
    return missed / (comb(num_groups, chosen) * comb(pool, k))


def _missed(num_experts: float, others: Floats, drawn: int) -> Floats:
    """Probability that all experts that are drawn from so many are among the `others`, those of other parts, `(n,)`."""
    missed = np.ones_like(others)
    for already in range(drawn):
        missed *= np.maximum(others - already, 0.0) / (num_experts - already)
    return missed


def _choose(number: Floats, chosen: int) -> Floats:
    """Ways to choose from a number, `(n,)`, which need not be whole."""
    ways = np.ones_like(number)
    for already in range(chosen):
        ways *= np.maximum(number - already, 0.0) / (already + 1.0)
    return ways
