"""Does the answer read well? Figures, order and width of the text for people."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from planner.job.typed_command import TypedCommand
from planner.recommended.design_words import breakdowns
from planner.recommended.recommendation import Recommendation, Relaxation
from planner.text import human
from planner.views.front_view import show_designs
from planner.views.render import MAX_FRONT_ROWS, show, step_error_text
from simulator.accuracy.published_runs import LEAST_ROWS
from tests.planner.hand_made import design, infeasible, interrupted, recommended

MIB = 2.0**20


def text_of(
    answer: Recommendation, *, files: tuple[Path, ...] = (), width: int = 100, is_brief: bool = False
) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    with console.capture() as capture:
        show(answer, console, command=TypedCommand(job="job.yaml"), files=files, is_brief=is_brief)
    return capture.get()


def lines_with(text: str, *words: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if all(word in line for word in words)]


def test_the_first_line_is_the_recommendation_itself() -> None:
    assert (
        text_of(recommended()).splitlines()[0]
        == "Recommended: 1,024 x h100-sxm5-80gb for 31.4 days and $1.85 M"
    )


@pytest.mark.parametrize("answer", [recommended(), infeasible()], ids=["recommended", "infeasible"])
def test_a_brief_answer_begins_like_the_whole_one_and_says_what_it_leaves_out(answer: Recommendation) -> None:
    whole, brief = (
        text_of(answer, files=(Path("front.csv"),), is_brief=is_brief) for is_brief in (False, True)
    )
    kept, _, rest = brief.partition("Left out by --brief")
    assert whole.startswith(kept.rstrip())
    assert ("Results" in kept, "Why this design" in kept) == (answer.recommendation is not None, False)
    front, notes = (
        human.counted(len(each), name) for each, name in ((answer.front, "design"), (answer.warnings, "note"))
    )
    assert f"the front of {front}, rejections, and {notes}." in " ".join(rest.split())
    assert rest.endswith("Files\n    front.csv\n")


def test_the_first_line_names_the_site_where_designs_of_the_front_are_at_several() -> None:
    answer = recommended()
    elsewhere = answer.front[-1].model_copy(update={"region": "sweden"})
    several = answer.model_copy(update={"front": (*answer.front[:-1], elsewhere)})
    best = several.recommendation
    assert best is not None
    assert f"Recommended: 1,024 x h100-sxm5-80gb in {best.region} for " in text_of(several).splitlines()[0]


def test_a_recommended_design_that_may_not_fit_says_so_beneath_the_first_line() -> None:
    for used, begins in (
        (0.951, "It may not fit: 95.1 % of the memory is used"),
        (0.949, "Job "),
        (1.001, "Job "),  # It does not fit.
    ):
        best = design().model_copy(update={"peak_memory_bytes": used * design().memory_capacity_bytes})
        answer = recommended().model_copy(update={"recommendation": best})
        assert text_of(answer).splitlines()[1].startswith(begins)


def test_a_bought_design_says_beneath_the_first_line_what_its_cost_is_not() -> None:
    for parts, begins in (
        ({"capital_usd": 1.2e6}, "The cost is only the share"),
        ({"capital_usd": 0.0}, "Job "),
    ):
        best = design().model_copy(update={"cost_parts_usd": {"rent_usd": 0.0, **parts}})
        answer = recommended().model_copy(update={"recommendation": best})
        assert text_of(answer).splitlines()[1].startswith(begins)


@pytest.mark.parametrize(
    "line",
    [
        "nodes 128 nodes dgx-h100, plus 3 spares",
        "parallelism TP 8 x PP 4 x CP 1 x DP 32; VPP 2, EP 1",
        "micro-batch 1 sequence; global batch 512 sequences",
        "recomputation selective; ZeRO stage 1; bf16",
        "checkpoints async, every 31.0 min of training, about 286 steps",
        "time to train 31.4 days 30.6 days to 33.4 days in 9 of 10 replays; 97.0 % meet the deadline",
        "cost $1.85 M $1.79 M to $1.92 M in 9 of 10 replays",
        "$1.25 M to $2.51 M over the price range of the hardware",
        "energy 850 MWh peak power 1.10 MW",
        "hall 1.00 MW peak IT power, plus 100 kW for cooling; 40.0 kW per rack",
        "power swing 700 kW with cooling, 350 kW/s when all nodes stall; 63.0 % of the IT power",
        "per 1M tokens $0.925 0.425 kWh",
        "per PFLOP-hour $120 of model FLOPs",
        "per exaFLOP 250 g CO2e carbon intensity (CCI); 12,900 t CO2e x days (tCDP)",
        "rent or own $1.85 M rented, $1.50 M owned; buying pays off after 21.5 calendar months",
        "carbon 412 t CO2e",
        "MFU 41.2 % step time 6.32 s, 6.51 s with stragglers",
        "goodput 95.1 % 12.3 failures expected",
        "It is the fastest of the front.",
        "Memory of the fullest GPU: 60.0 of 80.0 GiB",
        "compute 5.00 s 79.1 % ████████████████████████",
        "tensor parallelism 1.32 s 20.9 % ██████",
        "operational 309 t CO2e 75.0 % ██████████████████████",
        "budget cost above budget_usd = 2e6 1,234 56",
        "No price of an optic is known.",
        "Run llama of experiment capplan holds 4,321 designs, 210 of them with their own run.",
        "capplan ui",
        "answer/front.csv",
    ],
)
def test_the_answer_says_in_human_units(line: str) -> None:
    text = text_of(recommended(), files=(Path("answer/front.csv"),))
    assert line in [" ".join(shown.split()) for shown in text.splitlines()]


def test_saves_further_apart_than_the_run_is_long_are_told_as_such() -> None:
    for days, ends in ((2.0, ", longer than the run"), (2.1, "")):
        best = design().model_copy(
            update={"checkpoint_interval_s": 2.05 * 86_400, "time_to_train_days": days}
        )
        text = text_of(recommended().model_copy(update={"recommendation": best}))
        (line,) = (line for line in text.splitlines() if line.strip().startswith("checkpoints"))
        assert line.rstrip().endswith(f" steps{ends}")


def test_a_total_with_one_part_is_not_broken_down() -> None:
    assert "Cost: $" not in text_of(recommended())


def test_parts_that_are_nothing_are_left_out_and_tiny_ones_are_summed_up() -> None:
    text = text_of(recommended())
    assert "expert" not in text
    assert lines_with(text, "other")[0].startswith("other 0.0 GiB 0.0 %")


def test_what_rounding_leaves_is_no_part() -> None:
    parts = {"compute_s": 6.2, "optimizer_s": 0.05, "pipeline_bubble_s": 8.9e-16}
    best = design().model_copy(update={"step_seconds": parts})
    step = next(found for found in breakdowns(best) if found.title.startswith("one step"))
    assert [name for name, *_ in step.parts] == ["compute", "optimizer"]


def test_a_power_cap_is_shown_only_where_there_is_one() -> None:
    assert "power cap" not in text_of(recommended())
    capped = design(power_cap=0.8)
    answer = recommended().model_copy(update={"recommendation": capped, "front": (capped,)})
    assert lines_with(text_of(answer), "power cap") == ["power cap 80.0 % of the accelerators' limit"]
    assert lines_with(text_of(answer), "cap 80%")


def test_a_purchase_that_never_pays_is_called_so() -> None:
    never = design(break_even_months=None)
    answer = recommended().model_copy(update={"recommendation": never, "front": (never,)})
    (line,) = lines_with(text_of(answer, width=120), "rent or own")
    assert line.endswith("$1.50 M owned; buying does not pay off within the life of the nodes")
    assert (never.buying_pays, never.metrics["break_even_months"]) == (False, None)


def test_the_front_marks_the_recommended_and_the_tied_design() -> None:
    rows = lines_with(text_of(recommended()), "TP8 PP4 VPP2 DP32")
    assert [row.split()[:2] for row in rows] == [["*", "7"], ["~", "8"], ["9", "1,024"]]
    assert rows[0].endswith("31.4 days $1.85 M 850 MWh 412 t 41.2 %")


def test_designs_of_one_layout_are_told_apart_by_the_first_decisions_that_differ() -> None:
    decisions: tuple[dict[str, object], ...] = (
        {},
        {"num_spare_nodes": 1},
        {"num_spare_nodes": 1, "zero_stage": 2},
    )
    plans = [design().plan.model_copy(update=changed) for changed in decisions]
    same = [design(number).model_copy(update={"plan": plan}) for number, plan in enumerate(plans)]
    console = Console(file=io.StringIO(), width=120, markup=False, highlight=False)
    with console.capture() as capture:
        show_designs(console, [*same, design(3, power_cap=0.8)])
    layouts = [
        line.split("sxm5-80gb ")[1].split(" 31.4")[0].strip() for line in capture.get().splitlines()[1:]
    ]
    common = "TP8 PP4 VPP2 DP32"
    told = ("3 spares", "1 spare ZeRO-1", "1 spare ZeRO-2", "cap 80%")
    assert layouts == [f"{common} {decision}" for decision in told]


def test_designs_of_two_offers_of_one_accelerator_are_told_apart_by_the_offer_wherever_they_stand() -> None:
    plans = [
        design().plan.model_copy(update=changed)
        for changed in ({}, {"offer": 1}, {"offer": 1, "zero_stage": 2})
    ]
    same = tuple(design(number).model_copy(update={"plan": plan}) for number, plan in enumerate(plans))
    console = Console(file=io.StringIO(), width=120, markup=False, highlight=False)
    with console.capture() as capture:
        show_designs(console, [*same, design(3).model_copy(update={"accelerator": "h200-sxm-141gb"})])
    layouts = [line.split("gb ")[1].split(" 31.4")[0].strip() for line in capture.get().splitlines()[1:]]
    common = "TP8 PP4 VPP2 DP32"
    told = (" offer 0", " offer 1 ZeRO-1", " offer 1 ZeRO-2", "")
    assert layouts == [f"{common}{decision}" for decision in told]


def test_designs_that_their_sites_tell_apart_need_no_other_decision() -> None:
    plan = design().plan.model_copy(update={"offer": 1, "zero_stage": 2})
    elsewhere = design(1).model_copy(update={"plan": plan, "region": "sweden"})
    console = Console(file=io.StringIO(), width=120, markup=False, highlight=False)
    with console.capture() as capture:
        show_designs(console, [design(), elsewhere], has_site=True)
    shown = capture.get()
    assert "sweden" in shown
    assert "ZeRO" not in shown


def test_designs_have_a_column_of_their_mfu_only_where_it_is_asked_for() -> None:
    for shows, is_shown in ((show_designs, False), (partial(show_designs, has_efficiency=True), True)):
        console = Console(file=io.StringIO(), width=120, markup=False, highlight=False)
        with console.capture() as capture:
            shows(console, [design()])
        heading, row = capture.get().splitlines()
        assert ("MFU" in heading, "41.2 %" in row) == (is_shown, is_shown)


def test_a_front_of_one_design_is_one_design() -> None:
    only = design()
    answer = recommended().model_copy(update={"recommendation": only, "front": (only,)})
    assert lines_with(text_of(answer), "Pareto front (1 design;")


def test_a_long_front_keeps_both_ends_and_says_how_many_are_hidden() -> None:
    text = text_of(recommended(num_front=100))
    rows = lines_with(text, "TP8 PP4 VPP2 DP32")
    assert len(rows) <= MAX_FRONT_ROWS == 20
    assert (rows[0].split()[1], rows[-1].split()[0]) == ("7", "106")
    assert f"{100 - len(rows)} more on the front are not shown" in text


def test_a_recommended_design_in_the_middle_of_a_long_front_is_always_shown() -> None:
    answer = recommended(num_front=1000)
    answer = answer.model_copy(update={"recommendation": answer.front[601]})
    rows = lines_with(text_of(answer), "TP8 PP4 VPP2 DP32")
    assert len(rows) <= MAX_FRONT_ROWS
    assert [row.split()[1] for row in rows if row.startswith("*")] == ["608"]


@pytest.mark.parametrize(("num_tied", "hidden"), [(1, ""), (5, ""), (400, " and 383 more")])
def test_every_tied_design_that_is_named_has_a_row_and_the_others_are_counted(
    num_tied: int, hidden: str
) -> None:
    answer = recommended(num_front=1000)
    assert answer.uncertainty is not None
    tied = tuple(each.design_id for each in answer.front[301 : 301 + num_tied])
    answer = answer.model_copy(
        update={"uncertainty": answer.uncertainty.model_copy(update={"tied_designs": tied})}
    )
    text = text_of(answer)
    rows = lines_with(text, "TP8 PP4 VPP2 DP32")
    assert len(rows) <= MAX_FRONT_ROWS
    marked = [row.split()[1] for row in rows if row.startswith("~")]
    told = "the recommended design is indistinguishable from design" + (" " if num_tied == 1 else "s ")
    sentence = " ".join(text.split()).partition(told)[2].partition(".")[0]
    # Of twenty rows one is the recommended design, and one more an end of the front.
    assert sentence == f"{', '.join(marked)} (marked ~){hidden} on the front"
    assert len(marked) == min(num_tied, 17)


@pytest.mark.parametrize("has_tie", [True, False])
def test_the_legend_of_the_front_explains_the_signs_that_are_there(*, has_tie: bool) -> None:
    answer = recommended(num_front=4)
    assert answer.uncertainty is not None
    tied = tuple(each.design_id for each in answer.front[2:3]) if has_tie else ()
    sure = answer.uncertainty.model_copy(update={"tied_designs": tied})
    text = text_of(answer.model_copy(update={"uncertainty": sure}))
    assert lines_with(text, "* recommended") == ["* recommended" + "; ~ indistinguishable from it" * has_tie]


def test_a_search_without_a_design_says_so_instead_of_counting_none() -> None:
    assert "0 designs simulated" not in text_of(infeasible().model_copy(update={"num_evaluated": 0}))
    assert "designs simulated" in text_of(infeasible().model_copy(update={"num_evaluated": 3}))


@pytest.mark.parametrize("num_front", [1, 19, 20, 21, 22])
def test_fronts_around_the_limit_are_shown_with_the_recommended_design(num_front: int) -> None:
    text = text_of(recommended(num_front=num_front))
    rows = lines_with(text, "TP8 PP4 VPP2 DP32")
    assert len(rows) <= MAX_FRONT_ROWS
    assert rows[0].startswith("* 7")
    assert ("more on the front are not shown" in text) == (len(rows) < num_front)


def test_an_infeasible_job_gets_conflict_reasons_proof_and_a_command_to_try() -> None:
    text = text_of(infeasible())
    assert text.splitlines()[0] == "No design meets all limits"
    unlimited = infeasible().model_copy(update={"has_limits": False})
    assert text_of(unlimited).splitlines()[0] == "No design can be run"
    assert "Cause: budget_usd and deadline_days. Changing only one of them is not enough." in text
    assert "The cheapest design in time costs more than the budget." in text
    assert "Proof: CP-SAT over 240 layouts" in text
    command = "capplan recommend job.yaml --set limits.budget_usd=1.850e6 --set limits.num_gpus=1024"
    assert lines_with(text, "--set") == [command.replace("1.850e6", "1.85e6")]


def test_limits_of_a_conflict_that_do_not_help_alone_are_not_said_to() -> None:
    # Deadline and budget clash with carbon each: whatever the deadline, the other two cannot be kept.
    conflict = ("deadline_days", "carbon_kgco2e")
    answer = infeasible()
    assert answer.infeasibility is not None
    for helpful in (("carbon_kgco2e",), conflict):
        relaxations = tuple(Relaxation(limits={name: 9.0}, example=design()) for name in helpful)
        changed = {"conflict": conflict, "relaxations": relaxations}
        found = answer.infeasibility.model_copy(update=changed)
        told = " ".join(text_of(answer.model_copy(update={"infeasibility": found})).split())
        can_both = "If any one of them is relaxed, the others can be met." in told
        only = (
            "Relaxing only one of them helps only for carbon_kgco2e: without deadline_days, other limits "
            "still conflict."
        )
        assert (can_both, only in told) == ((True, False) if helpful == conflict else (False, True))


def test_an_interrupted_search_says_so_first() -> None:
    assert text_of(interrupted()).startswith("Interrupted; best design so far: 1,024 x")
    nothing = interrupted().model_copy(update={"recommendation": None, "front": (), "uncertainty": None})
    assert text_of(nothing).splitlines()[0] == "Interrupted before any design met all limits"
    unlimited = nothing.model_copy(update={"has_limits": False})
    assert text_of(unlimited).splitlines()[0] == "Interrupted before a design was found that can be run"


@pytest.mark.parametrize("answer", [recommended(100), infeasible(), interrupted()])
def test_text_fits_100_columns_but_commands_are_never_broken(answer: Recommendation) -> None:
    long_command = f"capplan ui --tracking-uri sqlite:///{'folder/' * 20}mlflow.db"
    assert answer.mlflow is not None
    record = answer.mlflow.model_copy(update={"open_with": long_command})
    text = text_of(answer.model_copy(update={"mlflow": record}))
    too_long = [
        line.strip()
        for line in text.splitlines()
        if len(line.rstrip()) > 100 and "capplan simulate" not in line
    ]
    assert too_long == [long_command]


def test_a_narrow_terminal_gets_every_word_too() -> None:
    text = text_of(recommended(), width=60)
    assert max(len(line.rstrip()) for line in text.splitlines() if "    capplan " not in line) <= 60


def test_plain_output_has_no_escape_codes_and_no_drawn_lines() -> None:
    text = text_of(recommended())
    assert not set(text) & set("\x1b─│┌┐└┘├┤━┃╭╮")


def test_brackets_in_names_are_shown_as_they_are() -> None:
    assert "Job [red]x[/red], seed 3" in text_of(recommended().model_copy(update={"job": "[red]x[/red]"}))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (human.change(0.031), "+3.1 %"),
        (human.change(-0.5), "-50.0 %"),
        (human.change(98.912), "x 99.9"),
        (human.change(-1e-6), "0.0 %"),
        (human.signed_percent(-0.314, num_decimals=0), "-31 %"),
        (human.counted(1, "sample"), "1 sample"),
        (human.counted(1024, "sample"), "1,024 samples"),
        (human.percent(0.9999), "> 99.9 %"),
        (human.percent(1.0 - 7e-16), "100.0 %"),
        (human.dollars(1.85e6), "$1.85 M"),
        (human.dollars(950_000), "$950 k"),
        (human.dollars(999_999), "$1.00 M"),
        (human.dollars(12.3), "$12.3"),
        (human.dollars(2.5e9), "$2.50 B"),
        (human.dollars(0), "$0"),
        (human.short(1.5), "1.5"),
        (human.short(2.0), "2"),
        (human.short(0.87654), "0.877"),
        (human.short(1500.0), "1,500"),
        (human.short(148_390.0), "148 k"),
        (human.short(2.5e12), "2,500 G"),
        (human.days(31.4159), "31.4 days"),
        (human.days(0.25), "6.00 h"),
        (human.days(365.25 * 3), "3.00 years"),
        (human.days(float("inf")), "never ends"),
        (human.duration(1860), "31.0 min"),
        (human.duration(88.3), "88.3 s"),
        (human.duration(0.0123), "12.3 ms"),
        (human.memory(80 * 1024 * MIB), "80.0 GiB"),
        (human.energy(1_230_000), "1.23 GWh"),
        (human.carbon(750), "750 kg CO2e"),
        (human.power(1.1e6), "1.10 MW"),
        (human.percent(0.4123), "41.2 %"),
        (human.percent(1.0), "100.0 %"),
        (human.count(1024), "1,024"),
        (human.digits(0.0), "0"),
        (human.digits(-5.5), "-5.50"),
        (human.digits(1e20), "1e+20"),
        (human.words("deadline_days"), "deadline"),
        (human.words("bf16_peak"), "bf16 peak"),
    ],
)
def test_quantities_have_three_digits_and_a_familiar_unit(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_849_001.0, "1.85e6"),
        (2_345_678.0, "2.346e6"),
        (31.4159, "31.42"),
        (1024.0, "1024"),
        (4e6, "4e6"),
        (0.5, "0.5"),
    ],
)
def test_a_proposed_limit_is_short_and_never_below_what_is_needed(value: float, text: str) -> None:
    assert human.no_less(value) == text
    assert float(text) >= value


@pytest.mark.parametrize("width", [40, 60, 75, 76, 79, 80, 100, 140])
def test_no_terminal_is_too_narrow_for_what_a_design_is(width: int) -> None:
    answer = recommended()
    deep = answer.front[0].plan.model_copy(
        update={"tensor_parallel": 8, "pipeline_parallel": 16, "virtual_pipeline": 4, "num_gpus": 16_384}
    )
    answer = answer.model_copy(
        update={"front": (answer.front[0].model_copy(update={"plan": deep}), *answer.front[1:])}
    )
    front = text_of(answer, width=width).partition("Pareto front")[2].partition("* recommended")[0]
    assert "…" not in front
    words = front.replace(",", " ").split()
    assert {each.accelerator for each in answer.front} <= set(words)
    assert {f"DP{each.plan.data_parallel}" for each in answer.front} <= set(words)
    assert {"TP8", "PP16", "VPP4"} <= set(words)
    assert max(map(len, front.splitlines())) <= width


@pytest.mark.parametrize(
    ("num_compared", "compared_with"),
    [
        (0, "published runs"),  # answers without a count
        (1, "1 configuration of published runs"),
        (LEAST_ROWS - 1, f"{LEAST_ROWS - 1} configurations of published runs"),
        (LEAST_ROWS, "published runs"),
    ],
)
def test_few_compared_runs_are_counted(num_compared: int, compared_with: str) -> None:
    sure = recommended().uncertainty
    assert sure is not None
    text = step_error_text(sure.model_copy(update={"step_time_num_compared": num_compared}))
    assert text == f"simulated step times have a mean error of 8.0 % on {compared_with}"
