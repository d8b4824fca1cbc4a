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


def test_a_message_of_thousands_of_problems_shows_the_first_ones_and_how_many_there_are() -> None:
    problems = [Problem(path=f"axes[{index}]", value="x", rule="must be a number") for index in range(1_234)]
    error = InputError(problems, "sweep.yaml")
    first, *lines = str(error).splitlines()
    assert first == "sweep.yaml: 1234 problems"
    assert lines[-2:] == ["  axes[49] = x: must be a number", "  and 1,184 more"]
    assert len(lines) == 51
    assert len(error.problems) == 1_234
    assert len(str(InputError(problems[:50])).splitlines()) == 51
