"""Is it said where compiled code can be kept, if it cannot be kept beside the code?"""

from __future__ import annotations

import pytest
from numba.core.caching import CacheImpl

from simulator.compiled import compiled
from simulator.errors import CapplanError


def test_without_a_folder_for_compiled_code_the_variable_that_names_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])  # as where no folder can be written to

    def twice(number: int) -> int:
        return 2 * number

    with pytest.raises(
        CapplanError, match=r"neither in .*/__pycache__ nor .* set NUMBA_CACHE_DIR to a folder"
    ):
        compiled(twice)
