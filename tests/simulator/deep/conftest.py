"""Which trace do several tests of operator traces start from?"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.triosim_files import read_triosim
from tests.simulator.deep.traces import write_small


@pytest.fixture
def small(tmp_path: Path) -> OperatorTrace:
    """The smallest trace of the tests, read from TrioSim's files."""
    return read_triosim(write_small(tmp_path / "small"), batch_size=16)
