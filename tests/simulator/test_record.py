"""Do records refuse what they do not know, and keep what they are?"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simulator.record import Choice, Record, meanings


class Length(Record):
    """A length."""

    length_m: float
    """How long it is, metres."""


class Box(Length):
    """What has a length and a width."""

    width: Length
    """How wide it is."""
    name: str = ""


class Colour(Choice):
    """Two colours."""

    RED = "red"
    BLUE = "blue"


def test_records_with_equal_fields_are_equal_and_can_be_keys() -> None:
    assert {Length(length_m=1.0): "one"}[Length(length_m=1)] == "one"


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Length(length_m=1.0).length_m = 2.0


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Length.model_validate({"length_m": 1.0, "width_m": 2.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "nan"])
def test_a_number_has_to_be_finite(value: float | str) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Length.model_validate({"length_m": value})


def test_the_schema_describes_each_field_by_its_docstring() -> None:
    assert Length.model_json_schema()["properties"]["length_m"]["description"] == "How long it is, metres."


def test_fields_mean_what_their_docstrings_say_those_of_the_base_too() -> None:
    assert meanings(Box) == {"length_m": "How long it is, metres.", "width": "How wide it is."}


def test_the_schema_describes_fields_of_bases_and_fields_that_are_records() -> None:
    schema = Box.model_json_schema()
    texts = {name: field.get("description") for name, field in schema["properties"].items()}
    assert texts == {"length_m": "How long it is, metres.", "width": "How wide it is.", "name": None}
    assert schema["$defs"]["Length"]["properties"]["length_m"]["description"] == texts["length_m"]


@pytest.mark.parametrize("colour", Colour)
def test_a_choice_comes_back_from_its_code(colour: Colour) -> None:
    assert Colour.from_code(colour.code) is colour
    assert Colour(str(colour)) is colour


def test_codes_follow_the_definition() -> None:
    assert [colour.code for colour in Colour] == [0, 1]


@pytest.mark.parametrize("code", [2, 99])
def test_a_code_outside_of_the_choice_is_refused(code: int) -> None:
    with pytest.raises(IndexError):
        Colour.from_code(code)
