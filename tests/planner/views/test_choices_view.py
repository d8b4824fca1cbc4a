"""Can a reader see what each other choice would cost, and what rules it out?"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from planner.recommended import choice_words
from planner.recommended.comparisons import OtherChoice
from planner.recommended.recommendation import Recommendation
from planner.views.choices_view import SAME_ACCELERATORS, choice_rows, explained
from planner.views.render import show
from simulator.domain.plan import Plan, Recompute, Schedule
from tests.planner.hand_made import design, recommended
from tests.simulator.builders import plan_of


def choice(
    name: str, value: int | str | None, change: float | None, *violated: str, **more: float
) -> OtherChoice:
    """A choice whose time to train changes by a share."""
    best = design()
    days = None if change is None else best.time_to_train_days * (1 + change)
    return OtherChoice(
        name=name,
        value=value,
        plan=best.plan.model_copy(update={name: value}),
        violated=violated,
        time_to_train_days=days,
        objective_values={},
    )


def rows_of(*choices: OtherChoice) -> list[tuple[str, str, str]]:
    objective_values = {"time_to_train": 2e6, "cost": 1e6, "energy": 1e12}
    return list(choice_rows(design().model_copy(update={"objective_values": objective_values}), choices))


def told(*choices: OtherChoice) -> str:
    ((_, _, others),) = rows_of(*choices)
    return others


def test_values_are_told_with_their_changes_the_fastest_first() -> None:
    slow, fast = choice("zero_stage", 3, 0.121), choice("zero_stage", 1, 0.004)
    assert rows_of(slow, fast) == [("ZeRO stage", str(design().plan.zero_stage), "1: +0.4 %, 3: +12.1 %")]


def test_an_objective_without_an_end_is_not_what_changes_most() -> None:
    values = {"energy": None, "cost": 0.9e6}
    slow = choice("zero_stage", 3, 0.5).model_copy(update={"objective_values": values})
    assert told(slow) == "3: +50.0 % (-10.0 % cost)"


def test_each_choice_has_a_row_with_its_own_value() -> None:
    rows = rows_of(choice("shard_ranks", 8, 0.1), choice("precision", "fp8", 0.2))
    assert [row[:2] for row in rows] == [("sharded over", "all"), ("number format", "bf16")]


@pytest.mark.parametrize(
    ("name", "plan", "text"),
    [
        ("recompute_num_layers", plan_of(recompute=Recompute.FULL), "all"),
        ("recompute_num_layers", plan_of(recompute=Recompute.FULL, recompute_num_layers=2), "2"),
        ("recompute_num_layers", plan_of(), "none"),
        ("interleaved_group_size", plan_of(pipeline=4, virtual=2), "PP"),
        ("interleaved_group_size", plan_of(pipeline=4, virtual=2, group_size=8), "8"),
        ("interleaved_group_size", plan_of(pipeline=4), "none"),
        ("interleaved_group_size", plan_of(pipeline=4, virtual=2, schedule=Schedule.ZB_V), "none"),
        ("shard_ranks", plan_of(data=8), "all"),
    ],
)
def test_what_is_left_out_is_told_as_what_it_stands_for(name: str, plan: Plan, text: str) -> None:
    assert choice_words.written(plan, name) == text


def test_values_that_break_limits_come_last_together_with_those_of_the_same_limits() -> None:
    found = told(
        choice("micro_batch_size", 2, 0.5),
        choice("micro_batch_size", 16, 0.1, "memory"),
        choice("micro_batch_size", 32, None, "budget_usd", "progress"),
        choice("micro_batch_size", 1, 0.1, "memory"),
    )
    assert found == "2: +50.0 %; 16, 1 violate memory; 32 violates budget_usd, progress"


def test_of_many_values_the_fastest_five_are_told_and_the_range_of_the_rest() -> None:
    found = told(*(choice("virtual_pipeline", 2 + n, 0.01 * n) for n in reversed(range(8))))
    assert found.startswith("2: 0.0 %, 3: +1.0 %, 4: +2.0 %, 5: +3.0 %, 6: +4.0 %; ")
    assert found.endswith("; 3 more from +5.0 % to +7.0 %")
    assert told(*(choice("virtual_pipeline", 2 + n, 0.01 * n) for n in range(6))).endswith(
        "; 1 more at +5.0 %"
    )


def test_a_value_with_which_a_run_never_ends_comes_behind_those_with_which_it_does() -> None:
    endless, slow = choice("zero_stage", 3, None), choice("zero_stage", 1, 0.5)
    assert told(endless, slow) == "1: +50.0 %, 3: without end"


def test_a_faster_value_has_the_objective_that_it_makes_worst() -> None:
    faster = choice("micro_batch_size", 1, -0.002).model_copy(
        update={"objective_values": {"time_to_train": 1.996e6, "cost": 1.001e6, "energy": 1.012e12}}
    )
    assert told(faster) == "1: -0.2 % (+1.2 % energy)"
    as_fast = choice("micro_batch_size", 1, 0.0).model_copy(
        update={"objective_values": {"time_to_train": 2e6, "cost": 1.001e6}}
    )
    assert told(as_fast) == "1: 0.0 %"
    in_all = faster.model_copy(update={"objective_values": {"time_to_train": 1.996e6, "cost": 1e6}})
    assert told(in_all) == "1: -0.2 %"
    hardly = faster.model_copy(update={"objective_values": {"time_to_train": 1.996e6, "cost": 1.0004e6}})
    assert told(hardly) == "1: -0.2 %"


def test_a_slower_value_has_the_objective_that_it_makes_best() -> None:
    slower = choice("micro_batch_size", 2, 0.008).model_copy(
        update={"objective_values": {"time_to_train": 2.016e6, "cost": 0.996e6, "energy": 0.989e12}}
    )
    assert told(slower) == "2: +0.8 % (-1.1 % energy)"


def written(answer: Recommendation) -> str:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        show(answer, console)
    return capture.get()


def test_an_answer_has_the_section_where_it_has_choices() -> None:
    answer = recommended()
    heading, about = SAME_ACCELERATORS
    assert heading not in written(answer)
    text = " ".join(
        written(answer.model_copy(update={"other_choices": (choice("zero_stage", 3, 0.1),)})).split()
    )
    assert f"{heading} {about} ZeRO stage {design().plan.zero_stage} 3: +10.0 %" in text


@pytest.mark.parametrize(("others", "is_told"), [("4: +1.0 %", False), ("4: -1.0 % (+2.0 % energy)", True)])
def test_brackets_are_explained_where_there_are_some(others: str, *, is_told: bool) -> None:
    assert ("In brackets: " in explained("How.", [("TP", "2", "1: +3.0 %"), ("PP", "1", others)])) == is_told
