"""Does the README's answer agree with a calculator?"""

from __future__ import annotations

from docs.by_hand import MEASURED, checks
from docs.readme import answer_of
from planner.measured.runs import read_rows

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


def test_the_answer_has_the_degrees_of_the_published_layout() -> None:
    best = answer_of().best
    assert best is not None
    (row,) = [row for row in read_rows() if row["row_id"] == MEASURED]
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel")
    assert [getattr(best.plan, degree) for degree in degrees] == [int(row[degree]) for degree in degrees]
