"""Do ranks of designs, and what decides them, come out as counted by hand?"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fit_training import UNKNOWNS, prior
from benchmarks.rule_variants import VARIANTS
from benchmarks.vtrain_ranks import (
    RankedJob,
    deviation_by_resampling,
    expecting,
    largest_exchange,
    recomputing,
)
from planner.calibration.steps import MeasuredSteps
from planner.measured.runs import read_rows


def job(*simulated_s: float) -> RankedJob:
    measured_s = np.arange(1.0, len(simulated_s) + 1.0)
    return RankedJob(name="a", measured_s=measured_s, simulated_s=np.array(simulated_s))


def test_designs_in_their_order_have_a_correlation_of_one_and_no_regret() -> None:
    ordered = job(1.1, 2.2, 3.3, 4.4)
    assert ordered.correlation == pytest.approx(1.0)
    assert ordered.regret_fraction == 0.0
    assert ordered.lead_fraction == pytest.approx(1.0)


def test_a_design_that_is_much_too_fast_decides_the_correlation() -> None:
    # Ranks 1, 2, 3, 4 against 2, 3, 4, 1: squares 1, 1, 1 and 9, so that Spearman's is 1 - 6 x 12 / (4 x 15).
    spoilt = job(1.0, 2.0, 3.0, 0.5)
    assert spoilt.correlation == pytest.approx(-0.2)
    assert spoilt.regret_fraction == 3.0
    assert spoilt.is_far.tolist() == [False, False, False, True]
    assert spoilt.far_share == pytest.approx(9 / 12)
    assert spoilt.take(~spoilt.is_far).correlation == pytest.approx(1.0)


def test_one_pair_of_neighbours_moves_the_mean_by_its_share() -> None:
    # One exchange among four designs in order costs 6 x 2 / (4 x 15), of two jobs half of that.
    assert largest_exchange([job(1.0, 2.0, 3.0, 4.0)] * 2) == pytest.approx(0.1)


@pytest.mark.long
def test_resampling_is_repeatable_and_says_that_few_designs_are_unsure() -> None:
    few, many = ([job(*np.roll(np.arange(1.0, n + 1.0), 2))] for n in (8, 40))
    assert deviation_by_resampling(few) == deviation_by_resampling(few)
    assert deviation_by_resampling(few) > deviation_by_resampling(many) > 0.0


def test_another_expectation_replaces_that_of_one_constant() -> None:
    known = expecting([("shared_card_fraction", 0.354)])
    is_other = known.expected != prior().expected
    assert [unknown.name for unknown, other in zip(UNKNOWNS, is_other, strict=True) if other] == [
        "shared_card_fraction"
    ]
    assert known.expected[is_other] == [0.354]


def test_one_source_may_be_read_with_another_recomputation() -> None:
    rows = [row for row in read_rows() if row["row_id"] in ("kort-0001", "nemo-0003")]
    steps = MeasuredSteps.of(rows)
    changed = recomputing(steps, "Korthikanti et al.", "none")
    assert [row["recompute"] for row in steps.rows if row["row_id"] == "kort-0001"] == ["full"]
    assert [row["recompute"] for row in changed.rows if row["row_id"] == "kort-0001"] == ["none"]
    assert [row for row in changed.rows if row["row_id"] != "kort-0001"] == [
        row for row in steps.rows if row["row_id"] != "kort-0001"
    ]
    assert len(changed.rows) == len(steps.rows) > 1


def test_every_variant_of_a_rule_has_rows() -> None:
    rows = [row for row in read_rows() if not row["left_out_because"]]
    assert [variant.name for variant in VARIANTS if not any(map(variant.is_chosen, rows))] == []
