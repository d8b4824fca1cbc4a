"""Does every option with a range of numbers refuse "nan" and infinity?"""

from __future__ import annotations

import click
import pytest

from planner.cli.commands import main
from planner.cli.options.finite_range import FiniteRange

PLAY = ("trace", "play", "astra")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN", "Infinity"])
def test_what_is_not_finite_is_in_no_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no finite number|is not in the range"):
        FiniteRange(min=0.0, min_open=True)(text)


def test_a_number_of_the_range_is_itself() -> None:
    assert FiniteRange(0.0, 2.5)("1.5") == 1.5


@pytest.mark.parametrize("option", ["--bandwidth", "--card-bandwidth"])
def test_a_rate_so_low_that_no_time_is_finite_is_refused_with_its_bounds(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (PLAY, ("trace", "simulate", "trace.json", "--gpus", "4")):
        assert main([*command, option, "1e-300"]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"Invalid value for '{option}': 1e-300 is not in the range 1.0<=x<=1000000000000000.0" in told


@pytest.mark.parametrize("text", ["nan", "inf"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("opendc", "export", "job.yaml", "--plan", "dp=8", "--output", "folder", "--every"),
        (*PLAY, "--bandwidth"),
        (*PLAY, "--latency"),
        (*PLAY, "--ramp"),
        (*PLAY, "--card-bandwidth"),
        (*PLAY, "--set-up"),
    ],
    ids=lambda arguments: arguments[-1],
)
def test_an_option_names_itself(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, text]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert arguments[-1] in told
    assert "is no finite number" in told or "is not in the range" in told
