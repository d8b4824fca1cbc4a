"""Do errors say the same wherever they arrive?"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from simulator.errors import CatalogError, InputError, Problem


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])  # noqa: S301
@pytest.mark.parametrize("kind", [InputError, CatalogError])
def test_an_input_error_of_another_process_is_the_one_that_was_raised(
    kind: type[InputError], again: Callable[[InputError], InputError]
) -> None:
    problems = [
        Problem(path="site", value="", rule="is missing"),
        Problem(path="", value="", rule="is empty"),
    ]
    error = kind(problems, "job.yaml")
    other = again(error)
    assert type(other) is kind
    assert str(other) == str(error) == "job.yaml: 2 problems\n  site: is missing\n  is empty"
    assert (other.problems, other.source) == (tuple(problems), "job.yaml")
