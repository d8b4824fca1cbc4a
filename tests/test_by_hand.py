"""Does the README's answer agree with a calculator?"""

from __future__ import annotations

from docs.by_hand import checks

EXACT = {
    "steps",
    "a step at the full dense peak",
    "with stragglers",
    "weights of a GPU",
    "states of the optimizer, over all replicas",
    "restarts",
    "lost work",
    "time to train",
    "rent",
    "operational carbon",
    "embodied carbon of GPUs and hosts",
}
"""Figures that the arithmetic gives in full; the page says what the others leave out."""


def test_figures_of_the_answer_follow_from_each_other_and_from_the_job() -> None:
    found = [check for part in checks().values() for check in part]
    assert {check.what for check in found} >= EXACT
    off = {check.what: check.off for check in found}
    assert {
        what: share for what, share in off.items() if abs(share) > (0.002 if what in EXACT else 0.05)
    } == {}
