"""Does a text that names arguments call them as each front does, wherever it arrives?"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from simulator.argument_names import Argument, Words, told
from simulator.errors import CatalogError, InputError, Problem, TrackingError, words_of

AGAIN = [lambda text: pickle.loads(pickle.dumps(text)), copy.copy, copy.deepcopy]  # noqa: S301
"""Ways from one process, or place, to another."""


def shouted(argument: Argument) -> str:
    return argument.name.upper()


@pytest.mark.parametrize(
    ("argument", "python"),
    [
        (Argument("num_gpus"), "num_gpus"),
        (Argument("rules", "triosim"), "rules=triosim"),
        (Argument("overrides", place=1), "overrides[1]"),
    ],
)
def test_a_text_calls_an_argument_as_python_does(argument: Argument, python: str) -> None:
    assert (argument, f"{argument}", str(Words("give ", argument))) == (python, python, f"give {python}")


def test_each_front_has_its_own_names() -> None:
    inner = Words("give ", Argument("num_gpus"))
    assert told(Words("leave it out, or ", inner, " anew"), shouted) == "leave it out, or give NUM_GPUS anew"
    assert told(Argument("rules", "triosim"), shouted) == "RULES"
    assert told("num_gpus is a field here", shouted) == "num_gpus is a field here"


@pytest.mark.parametrize("again", AGAIN)
def test_a_text_of_another_process_is_made_of_the_same_parts(again: Callable[[Words], Words]) -> None:
    text = again(Words("give ", Argument("rules", "triosim")))
    assert text == "give rules=triosim"
    assert told(text, lambda argument: f"{argument.name} {argument.value}") == "give rules triosim"


@pytest.mark.parametrize("again", AGAIN)
def test_a_refusal_names_what_each_front_was_given(again: Callable[[InputError], InputError]) -> None:
    rule = Words("is 4, and ", Argument("num_gpus"), " is 3")
    problems = [
        Problem(path=Argument("parallel"), value="tp", rule=rule),
        Problem(path="num_gpus", value="", rule="of a file"),
    ]
    error = again(CatalogError(problems, Argument("plan")))
    assert str(error) == "plan: 2 problems\n  parallel = tp: is 4, and num_gpus is 3\n  num_gpus: of a file"
    assert error.told(shouted) == (
        "PLAN: 2 problems\n  PARALLEL = tp: is 4, and NUM_GPUS is 3\n  num_gpus: of a file"
    )


def test_what_is_added_to_an_error_keeps_its_arguments() -> None:
    error = TrackingError(Words("no store (", Argument("tracking_uri"), ")"))
    longer = TrackingError(Words(words_of(error), "; do without"))
    assert str(longer) == "no store (tracking_uri); do without"
    assert longer.told(shouted) == "no store (TRACKING_URI); do without"
    assert words_of(OSError("no such disk")) == "no such disk"
