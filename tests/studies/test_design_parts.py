"""Do the parts of a design table hold every design once, each part complete when it is handed over?"""

from pathlib import Path

import numpy as np
import pytest

from simulator.errors import StudyError
from studies.files.design_log import read_designs
from studies.files.design_parts import DESIGNS_PER_PART, DesignParts

BATCH = 4_000


def test_parts_are_handed_over_in_their_order_once_they_are_complete(tmp_path: Path) -> None:
    parts, handed, num_batches = DesignParts(tmp_path), [], 7
    for number in range(num_batches):
        designs = np.arange(number * BATCH, (number + 1) * BATCH)
        for path in parts.append({"design_id": designs}):
            assert len(read_designs(path)["design_id"]) >= DESIGNS_PER_PART
            handed.append(path)
    assert len(handed) == 2  # three batches each
    handed += parts.close()
    assert [path.name for path in handed] == [f"part-{number:05}.parquet" for number in range(3)]
    found = np.concatenate([read_designs(path)["design_id"] for path in handed])
    np.testing.assert_array_equal(found, np.arange(num_batches * BATCH))
    assert parts.close() == []


def test_a_part_that_cannot_be_completed_is_told_with_the_next_batch(tmp_path: Path) -> None:
    parts = DesignParts(tmp_path / "folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "part-00000.parquet").mkdir()
    with pytest.raises(StudyError, match="part-00000"):
        for _ in range(4):
            parts.append({"design_id": np.arange(BATCH)})
