"""Does a sweep show the best interval of every scheme, what has no layout, and why? Rows that are made up, and their text."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from planner.cli.terminal.output import rendered
from planner.notes.step_note import StepNote, StepNotes
from planner.sweep.grid import Sweep
from planner.sweep.table import Row
from planner.sweep.view import number, show_sweep
from planner.text.text_blocks import grid, side_by_side
from simulator.step.step_reach import BeyondPart

SWEEP = Sweep.model_validate(
    {
        "name": "sizes",
        "job": {},
        "num_gpus": [8, 16, 24, *range(32, 128, 8)],
        "checkpoint_schemes": ["async", "none", "replica_ft"],
        "checkpoint_intervals_s": ["auto", 1200, 60],
    }
)


def row(num_gpus: int, scheme: str, goodput: float, days: float, **others: object) -> Row:
    figures = {
        "goodput_fraction": goodput,
        "time_to_train_days": days,
        "mfu_fraction": 0.5,
        "cost_usd": 1.3e5,
        "energy_kwh": 5e4,
        "carbon_kgco2e": 19_300.0,
        "step_time_s": 2.0,
        "step_time_notes": StepNotes(),
    }
    known = {
        "accelerator": "b300",
        "num_gpus": num_gpus,
        "checkpoint_scheme": scheme,
        "used_interval_s": math.inf,
    }
    row = {**known, **figures, "is_fastest_layout": True, "broken_constraint": "", **others}
    ends = {
        "step_time_low_s": 0.96 * number(row, "step_time_s"),
        "step_time_high_s": 1.07 * number(row, "step_time_s"),
    }
    return {**ends, **row}


def noted(*sentences: str) -> StepNotes:
    return StepNotes(*(StepNote(sentence=sentence) for sentence in sentences))


def broken(num_gpus: int, scheme: str, rule: str) -> Row:
    return {"num_gpus": num_gpus, "checkpoint_scheme": scheme, "broken_constraint": rule}


ROWS = [
    row(8, "async", 0.95, 20.0, used_interval_s=600.0),
    row(8, "async", 0.95, 20.0, used_interval_s=1200.0),
    row(8, "async", 0.90, 22.0, used_interval_s=60.0),
    row(8, "none", 0.5, math.inf, step_time_s=3.0, is_fastest_layout=False),
    broken(8, "replica_ft", "live_replica"),
    # Neither run ends; the one with the better goodput is told.
    row(16, "async", 0.3, math.inf, used_interval_s=60.0, mfu_fraction=0.4, accelerator="gb200"),
    row(16, "none", 0.2, math.inf),
    broken(16, "replica_ft", "live_replica"),
    *(broken(24, scheme, "host_memory") for scheme in ("async", "none", "replica_ft")),
]
TABLE = """
sizes: 6 designs

At every size
  GPUs  accelerator  MFU     time        async          none    replica_ft
  8     b300         50.0 %  20.0 days   95.00    10.0  50.00*  -
  16    gb200        40.0 %  never ends  30.00     1.0  20.00   -
  24    -            -       -           -              -       -

  Each cell: the highest goodput over all intervals (%), and its interval (minutes). Cost, energy,
  carbon: --output FILE.csv, --json.
  * on the fastest layout that supports the scheme, which is not the fastest layout overall.
"""
EMPTY = " at 32 GPUs, 40 GPUs, 48 GPUs, 56 GPUs, 64 GPUs, 72 GPUs, 80 GPUs, 88 GPUs, 96 GPUs, 104 GPUs, and 2 more;"


def shown(sweep: Sweep, rows: list[Row] = ROWS) -> str:
    text = rendered(lambda console: show_sweep(sweep, rows, console))
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_a_sweep_shows_the_best_interval_of_every_scheme_and_why_cells_are_empty() -> None:
    text = shown(SWEEP)
    words = " ".join(text.split())
    assert text.startswith(TABLE.strip())
    assert "- replica_ft: every layout of the search that fits violates live_replica: " in words
    assert "- async, none, replica_ft: every layout of the search that fits violates host_memory: " in words
    assert EMPTY in words
    assert "With the constants of" not in words


def test_axes_that_leave_time_as_it_is_show_what_they_change() -> None:
    sweep = SWEEP.model_copy(update={"axes": {"site": ["here", "there"]}, "num_gpus": [8, 16]})

    def at(site: str, carbon_kgco2e: float) -> list[Row]:
        endless = dict.fromkeys(("cost_usd", "energy_kwh", "carbon_kgco2e"), math.inf)
        emitting = row(8, "async", 0.95, 20.0, carbon_kgco2e=carbon_kgco2e)
        found = [emitting, row(16, "async", 0.3, math.inf, **endless)]
        return [{"site": site, **each} for each in found]

    told = shown(sweep, [*at("here", 19_300.0), *at("there", 4540.0)]).splitlines()
    figures = [
        line.split("  b300")[1].split("async")[0].split("95.00")[0].split() for line in told if "b300" in line
    ]
    both = ["50.0", "%", "20.0", "days", "$130", "k", "50.0", "MWh"]
    assert figures[0] == [*both, "19.3", "t", "CO2e"]
    assert figures[2] == [*both, "4.54", "t", "CO2e"]
    assert figures[1][:6] == figures[3][:6] == ["50.0", "%", "never", "ends", "-", "-"]
    # Where the tables differ by themselves, they have no more columns.
    slow = [{"site": "there", **row(8, "async", 0.9, 21.0)}]
    assert "cost " not in shown(sweep, [*at("here", 1.0)[:1], *slow])


def test_ten_sizes_without_a_layout_are_all_named() -> None:
    text = shown(SWEEP.model_copy(update={"num_gpus": SWEEP.num_gpus[:-2]}))
    assert " 96 GPUs, 104 GPUs; `capplan recommend`" in " ".join(text.split())


def test_steps_that_are_known_alike_are_told_once() -> None:
    words = " ".join(shown(SWEEP).split())
    assert " 80 % interval of the step time, beside the simulated one: -4 % to +7 %. " in words
    assert "80 % interval" not in shown(SWEEP, ROWS[-3:])


def test_of_steps_that_are_known_less_well_it_is_told_which_and_why() -> None:
    sweep = SWEEP.model_copy(update={"axes": {"workload.model": ("known", "new")}})
    wide = {"workload.model": "new", "step_time_low_s": 1.0, "step_time_high_s": 4.0}
    known = row(8, "async", 0.95, 20.0, **{"workload.model": "known"})
    new, newer = (
        row(size, "async", 0.95, 20.0, **wide, step_time_notes=noted("Never measured.")) for size in (8, 16)
    )
    words = " ".join(shown(sweep, [known, new, newer]).split())
    intervals = "-4 % to +7 % for 1 design (workload.model = known); -50 % to +100 % for 2 designs (workload.model = new)."
    assert f"beside the simulated one: {intervals} 2 designs (workload.model = new): Never measured." in words

    other = row(
        8,
        "async",
        0.95,
        20.0,
        **{"workload.model": "new"},
        step_time_notes=noted("Never measured.", "Scaled."),
    )
    words = " ".join(shown(sweep, [known, new, newer, other]).split())
    assert (
        " 3 designs (workload.model = new): Never measured. 1 design (workload.model = new): Scaled." in words
    )

    all_new = " ".join(shown(sweep, [{**known, "step_time_notes": noted("Never measured.")}, new]).split())
    assert " -50 % to +100 % for 1 design (workload.model = new). Never measured." in all_new


def test_steps_beyond_everything_compared_are_told_once_with_all_their_degrees() -> None:
    sweep = SWEEP.model_copy(update={"axes": {"search.context_parallel": (1, 4, 8)}})
    beyond = "No published step with {parts} was compared, so the error is assumed to be twice as large (docs/validation.md)."
    degree, length = (
        "context parallelism {} (measured: up to 2)",
        "sequences of {} tokens (measured: up to 65,536)",
    )
    parts = {
        4: (BeyondPart(words=degree, figure="4"), BeyondPart(words="latent attention")),
        8: (BeyondPart(words=length, figure="131,072"), BeyondPart(words=degree, figure="8")),
    }
    rows = [
        row(8, "async", 0.95, 20.0, **{"search.context_parallel": ranks}, step_time_notes=StepNotes(note))
        for ranks, own in parts.items()
        for note in [StepNote(sentence=beyond, parts=own)]
    ]
    told = (
        "context parallelism 4 or 8 (measured: up to 2) or latent attention or sequences of 131,072 tokens "
        "(measured: up to 65,536)"
    )
    beyond = beyond.format(parts=told)
    assert f" {beyond}" in " ".join(shown(sweep, rows).split())
    near = row(8, "async", 0.95, 20.0, **{"search.context_parallel": 1})
    words = " ".join(shown(sweep, [near, *rows]).split())
    assert f" 2 designs: {beyond}" in words
    assert words.count("No published step") == 1


def test_models_that_are_changed_are_told_once() -> None:
    changed = [row(size, "async", 0.95, 20.0, model="Known, changed: num_layers 8") for size in (8, 16)]
    words = " ".join(shown(SWEEP, [*changed, row(24, "async", 0.95, 20.0, model="Known")]).split())
    assert words.count("The model is ") == words.count("The model is Known, changed: num_layers 8.") == 1


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_many_schemes_stand_in_several_tables_whose_cells_are_whole(width: int) -> None:
    rows = [
        ("GPUs", "time", *(f"scheme-{number}" for number in range(9))),
        ("131,072", "7.89 days", *9 * ("90.57    65.4",)),
    ]
    console = Console(width=width, file=io.StringIO())
    parts = side_by_side(console, rows, num_first=2)
    assert [cell for part in parts for cell in part[0][2:]] == list(rows[0][2:])
    for part in parts:
        assert {row[:2] for row in part} == {("GPUs", "time"), ("131,072", "7.89 days")}
        out = io.StringIO()
        grid(Console(width=width, file=out), part)
        _, cells = out.getvalue().rstrip("\n").split("\n")
        assert cells.count("90.57    65.4") == len(part[0]) - 2
        assert "131,072" in cells
    assert (len(parts) == 1) is (width == 200)


def test_an_interval_of_a_step_is_not_told_as_none() -> None:
    text = shown(SWEEP, [row(8, "async", 0.95, 20.0, used_interval_s=2.0)])
    assert "95.00    0.03 " in text


def test_a_large_value_of_an_axis_is_told_in_short() -> None:
    sweep = SWEEP.model_copy(update={"axes": {"workload.tokens": (2e12, 123456789.0)}})
    rows = [row(8, "async", 0.95, 20.0, **{"workload.tokens": tokens}) for tokens in (2e12, 123456789.0)]
    text = shown(sweep, rows)
    assert "At workload.tokens = 2e+12\n" in text
    assert "At workload.tokens = 123456789.0\n" in text
