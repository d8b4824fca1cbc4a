"""Are shipped rows simulated once, for the residuals and for their own errors, and all others by themselves?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from planner.measured.runs import Comparison, Row, compare, read_rows
from planner.measured.untold_layouts import has_told_layout
from planner.validation import comparison as module
from planner.validation.comparison import Modelled, entries_of
from planner.validation.interval import development_comparisons
from simulator.domain.calibration import Calibration


def test_only_rows_that_are_not_shipped_as_they_are_are_simulated_beside_the_residuals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *_ = (row for row in read_rows() if not row["left_out_because"] and has_told_layout(row))
    own = {**second, "remarks": "what somebody else measured under the same id"}
    simulated: list[Row] = []

    def watched(rows: Sequence[Row], calibration: Calibration | None = None) -> list[Comparison]:
        simulated.extend(rows)
        return compare(rows, calibration)

    monkeypatch.setattr(module, "compare", watched)
    found = [entry for entry in entries_of([first, own, second]) if isinstance(entry, Modelled)]
    assert simulated == [own]
    assert [entry.comparison.row for entry in found] == [first, own, second]
    assert found[0].comparison.simulated_s == development_comparisons()[first["row_id"]].simulated_s
