"""Is a step less sure where its row leaves open how tokens reach their experts?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.measured_rows import Unmodelled, read_measured
from planner.measured_runs import Row, compare
from planner.open_choices import open_log_ratios
from planner.validation import Modelled, entries_of
from simulator.table import Floats
from tests.planner.measured import LLAMA_8B, QWEN3_30B, written


def row_of(folder: Path, **changes: object) -> Row:
    (row,) = read_measured(written(folder, {**QWEN3_30B, **changes}))
    assert not isinstance(row, Unmodelled), row
    return row


def ratios_of(row: Row) -> Floats:
    (ratios,) = open_log_ratios(compare([row]))
    return ratios


def test_a_dense_model_and_a_row_that_says_all_leave_nothing_open(tmp_path: Path) -> None:
    dense = {**LLAMA_8B, "notes": ""}
    said = {**QWEN3_30B, "notes": "all-to-all dispatcher; EP overlap off"}
    rows = [row for row in read_measured(written(tmp_path, dense, said)) if not isinstance(row, Unmodelled)]
    assert [len(ratios) for ratios in open_log_ratios(compare(rows))] == [0, 0]


def test_each_open_choice_is_made_the_other_way(tmp_path: Path) -> None:
    # Bridge's habit across nodes is the fastest: one copy of a token to each node, and hidden.
    both = ratios_of(row_of(tmp_path))
    assert np.all(both > 0.0)
    overlap = ratios_of(row_of(tmp_path, notes="DeepEP"))
    dispatch = ratios_of(row_of(tmp_path, notes="EP overlap on"))
    assert sorted([*overlap, *dispatch]) == pytest.approx(sorted(both))
    hidden, exposed = (row_of(tmp_path, notes=f"DeepEP; EP overlap {switch}") for switch in ("on", "off"))
    times_s = [comparison.simulated_s for comparison in compare([hidden, exposed])]
    assert overlap == pytest.approx(np.log(times_s[1] / times_s[0]))


def test_traffic_hides_behind_shared_experts_or_behind_other_micro_batches(tmp_path: Path) -> None:
    shared = row_of(
        tmp_path, model="deepseek-v3", n_gpus=256, ep=64, dp=256, notes="shared-expert overlap; all-to-all"
    )
    row = {**shared, "overlaps_expert_exchange": "false", "overlaps_shared_experts": "true"}
    assert "expert_overlap" in row["assumed"].split()
    assert len(ratios_of(row)) == 1


def test_experts_on_one_rank_have_no_traffic_to_be_unsure_of(tmp_path: Path) -> None:
    assert ratios_of(row_of(tmp_path, ep=1)) == pytest.approx(0.0)


def test_intervals_are_wider_where_a_row_does_not_say(tmp_path: Path) -> None:
    said = {**QWEN3_30B, "id": "said", "notes": "DeepEP; EP overlap on"}
    entries = entries_of(read_measured(written(tmp_path, {**QWEN3_30B, "notes": ""}, said)))
    silent, told = [entry for entry in entries if isinstance(entry, Modelled)]
    assert silent.comparison.simulated_s == told.comparison.simulated_s
    assert silent.interval.high_s > told.interval.high_s
    assert silent.interval.low_s == pytest.approx(told.interval.low_s)  # neither choice is faster
