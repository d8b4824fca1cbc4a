"""Does a comparison find every difference, and do the causes sum to the whole?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from planner import recommend, simulate_plan
from planner.cli import commands as cli
from planner.cli.terminal.output import WIDTH, rendered
from planner.compare.comparison import Comparison, Explanation, MetricRow
from planner.compare.figures import Cause, design_of, metrics_of, plus
from planner.compare.inputs import differences, with_input
from planner.compare.page import comparison_page
from planner.compare.side_by_side import compare
from planner.compare.sides import Side, read_side
from planner.compare.view import (
    EXPLAINED,
    explanation_notes,
    explanation_rows,
    figure_rows,
    letters,
    show_comparison,
    step_rows,
)
from planner.input.plan_input import plan_of
from planner.job.in_short import in_short
from planner.recommended.output import SINGLE_FIGURES
from planner.recommended.recommendation import Recommendation
from planner.study.durable import run_study_of
from planner.text import human
from simulator.domain.job import Job
from simulator.errors import InputError, StudyError
from studies.files.store import StudyStore
from tests.planner.calibrations import calibration_with
from tests.planner.hand_made import design
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with

ROOT = Path(__file__).parents[3]
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
PLAN = {"tp": 2, "dp": 16, "recompute": "full"}


def side(job: Job, plan: dict[str, object] | None = None, name: str = "side") -> Side:
    return Side(name=name, job=job, plan=plan_of(job, {**PLAN, **(plan or {})})[0])


def values_of(found: Comparison, metric: str) -> tuple[float, float]:
    (row,) = [row for row in found.metrics if row.metric == metric]
    first, second = row.values
    assert first is not None
    assert second is not None
    return first, second


SEEING = {"model": "qwen3-vl-8b", "images": {"tokens_per_image": 256, "per_sequence": 2}}
CASES: dict[str, tuple[Job, Job, dict[str, object]]] = {
    "several inputs": (
        job_with(limits={"budget_usd": 1e6}),
        job_with(
            {**H100_RENTED, "rent_usd_per_gpu_hour": 3.0},
            workload={"tokens": 8e10},
            site="sweden",
            limits={"budget_usd": 2e6},
        ),
        {},
    ),
    "bought instead of rented": (job_with(), job_with(H100_BOUGHT), {}),
    "another design": (job_with(), job_with(workload={"tokens": 8e10}), {"tp": 4, "dp": 4}),
    "another accelerator": (job_with(H100_RENTED), job_with(A100_RENTED, site="sweden"), {}),
    "another model": (job_with(), job_with(workload={"model": "llama-2-13b"}), {}),
    "images": (job_with(workload={"model": "qwen3-vl-8b"}), job_with(workload=SEEING), {}),
    "text instead of images": (job_with(workload=SEEING), job_with(), {}),
    "other failures": (
        job_with(),
        job_with(reliability={"preset": "typical", "failures_per_1000_node_days": 30}),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_causes_interaction_and_design_sum_to_the_difference_of_every_figure(name: str) -> None:
    first, second, plan = CASES[name]
    found = compare([side(first), side(second, plan)])
    (explained,) = found.explanations
    for metric in SINGLE_FIGURES:
        before, after = values_of(found, metric)
        parts = [*(cause.effects for cause in explained.causes), explained.interaction, explained.design]
        total = sum(part.get(metric, 0.0) for part in parts)
        # Parts that only rounding makes are left out.
        assert total == pytest.approx(after - before, abs=1e-9 * abs(before))
        assert explained.total[metric] == after - before


def test_a_price_alone_changes_the_rent_by_its_share_and_nothing_else() -> None:
    dear = job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 3.0})
    found = compare([side(job_with()), side(dear)])
    (explained,) = found.explanations
    (cause,) = explained.causes
    assert cause.input == "offers[h100-sxm5-80gb].price"
    rent_usd = values_of(found, "cost_parts_usd.rent_usd")[0]
    # 2.5 dollars became 3.0.
    assert cause.effects["cost_parts_usd.rent_usd"] == pytest.approx(0.2 * rent_usd, rel=1e-9)
    assert "time_to_train_days" not in cause.effects
    assert explained.interaction == {}  # one input has nothing to interact with
    assert explained.design == {}


def test_a_model_with_an_encoder_and_its_images_are_one_input() -> None:
    found = compare([side(job_with(workload={"model": "qwen3-vl-8b"})), side(job_with(workload=SEEING))])
    (cause,) = found.explanations[0].causes
    assert cause.input == "workload.model and images"
    (row,) = [row for row in found.inputs if row.input == cause.input]
    assert row.values == ("Qwen3-VL 8B (text)", "Qwen3-VL 8B, 2 images of 256 tokens")
    assert cause.effects["time_to_train_days"] > 0.0


def test_of_jobs_that_both_have_images_these_are_an_input_of_their_own() -> None:
    more = {**SEEING, "images": {"tokens_per_image": 256, "per_sequence": 8}}
    found = compare([side(job_with(workload=SEEING)), side(job_with(workload=more))])
    (cause,) = found.explanations[0].causes
    assert cause.input == "workload.images.per_sequence"


def test_figures_are_those_of_the_simulation_of_each_plan() -> None:
    first, second = job_with(), job_with(site="sweden")
    found = compare([side(first), side(second)])
    for position, job in enumerate((first, second)):
        design = simulate_plan(job, PLAN, with_sensitivities=False).design
        assert design is not None
        for metric in SINGLE_FIGURES:
            assert values_of(found, metric)[position] == getattr(design, metric)


def test_two_inputs_that_multiply_have_an_interaction() -> None:
    found = compare([side(job_with()), side(job_with(workload={"tokens": 1e11}, site="sweden"))])
    (explained,) = found.explanations
    effects = {cause.input: cause.effects for cause in explained.causes}
    operation = "carbon_parts_kgco2e.operational_kgco2e"
    before, after = values_of(found, operation)
    # Twice the tokens, and the grid of Sweden: carbon is energy times the factor of the grid.
    grid = 1.0 + effects["site"][operation] / before
    energy = 1.0 + effects["workload.tokens"][operation] / before
    assert after == pytest.approx(before * grid * energy, rel=1e-6)
    assert explained.interaction[operation] == pytest.approx(before * (grid - 1.0) * (energy - 1.0), rel=1e-6)


def test_inputs_that_only_choose_are_marked_and_cause_nothing() -> None:
    tight = job_with(
        {**H100_RENTED, "num_gpus": {"min": 16, "max": 32}},
        limits={"budget_usd": 1e6},
        objectives=["cost", "carbon"],
    )
    found = compare([side(job_with()), side(tight)])
    marked = {row.input: row.decides_choice_only for row in found.inputs}
    assert marked == {
        "limits.budget_usd": True,
        "objectives": True,
        "offers[h100-sxm5-80gb].num_gpus": True,
    }
    assert found.explanations[0].causes == ()
    assert "Those marked as choice only" in comparison_page(found)
    other = compare([side(job_with()), side(job_with(workload={"tokens": 1e11}))])
    assert "marked" not in comparison_page(other)
    assert "marked" not in rendered(lambda console: show_comparison(other, console))


def test_equal_answers_have_a_sentence_in_place_of_causes_that_are_all_zero() -> None:
    same = compare([side(job_with()), side(job_with())])
    sentence = "B has the same time to train, cost, energy and carbon as A."
    dearer = job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 9.0})
    found = compare([side(job_with()), side(dearer)])
    for shown_of in (comparison_page, lambda each: rendered(lambda console: show_comparison(each, console))):
        assert sentence in shown_of(same)
        assert "total" not in shown_of(same).partition("Why B differs from A")[2]
        assert sentence not in shown_of(found)
        assert "total" in shown_of(found).partition("Why B differs from A")[2]


def test_changes_of_figures_have_a_sign_where_there_is_one() -> None:
    found = compare([side(job_with()), side(job_with(workload={"tokens": 1e11}))])
    before, after = values_of(found, "cost_usd")
    rows = {name: text for name, _, text in figure_rows(found, ["cost_usd", "peak_power_w"])}
    assert rows["cost"].endswith(f"  +{100.0 * (after / before - 1.0):.1f} %")
    assert rows["peak power"].endswith("  0.0 %")


def test_layouts_are_compared_by_the_parts_of_their_steps() -> None:
    """Who compares two layouts asks which part of the step makes the difference."""
    one, two = {"tp": 2, "dp": 16, "recompute": "full"}, {"tp": 4, "dp": 8, "recompute": "full"}
    found = compare([side(job_with(), one), side(job_with(), two)])
    (label,) = [row for row in step_rows(found) if row[0] == "compute"]
    before, after = values_of(found, "step_seconds.compute_s")
    assert label[2].endswith(human.change(after / before - 1.0))
    for shown in (rendered(lambda console: show_comparison(found, console)), comparison_page(found)):
        assert "One step" in shown
        assert "tensor parallelism" in shown
    assert "expert parallelism" not in {name for name, *_ in step_rows(found)}  # a dense model has none
    alike = compare([side(job_with(), one), side(job_with(), {**one, "checkpoint_scheme": "sync"})])
    assert step_rows(alike) == []


def test_a_part_is_told_from_half_a_per_cent_of_the_step_on() -> None:
    steps = (2.0, 4.0)  # seconds
    found = compare([side(job_with()), side(job_with(), {"tp": 4, "dp": 8})])

    def rows_with(*parts: float) -> list[tuple[str, ...]]:
        told = {"step_time_s": steps, "step_seconds.optimizer_s": parts}
        metrics = [MetricRow(metric=name, values=values) for name, values in told.items()]
        return step_rows(found.model_copy(update={"metrics": tuple(metrics)}))

    assert rows_with(0.009, 0.019) == []
    assert [name for name, *_ in rows_with(0.011, 0.019)] == ["optimizer"]
    assert [name for name, *_ in rows_with(0.009, 0.021)] == ["optimizer"]


def test_sides_have_letters_and_beyond_the_last_one_numbers() -> None:
    names = letters(28)
    assert (names[0], names[25], names[26], names[27]) == ("A", "Z", "#27", "#28")


@pytest.mark.parametrize(
    ("plans", "name"),
    [
        (({"cp": 2, "dp": 16}, {"cp": 4, "dp": 8}), "context parallelism"),
        (({"tp": 2, "dp": 16}, {"cp": 2, "dp": 16}), "tensor and context parallelism"),
        (({"tp": 2, "dp": 16}, {"dp": 32}), "tensor parallelism"),
    ],
)
def test_traffic_within_layers_is_named_after_the_degrees_of_all_sides(
    plans: tuple[dict[str, object], dict[str, object]], name: str
) -> None:
    sides = [side(job_with(), {"tp": 1, "recompute": "full", "zero": 3, **plan}) for plan in plans]
    found = [
        row[0]
        for row in step_rows(compare(sides))
        if row[0].endswith(("tensor parallelism", "context parallelism"))
    ]
    assert found == [name]


def test_an_offer_that_only_one_side_has_is_an_input_and_part_of_the_design() -> None:
    found = compare([side(job_with(H100_RENTED)), side(job_with(A100_RENTED))])
    rows = {row.input: row.values for row in found.inputs}
    assert rows["offers[h100-sxm5-80gb]"] == ("on offer", "not on offer")
    assert rows["offers[a100-sxm4-80gb]"] == ("not on offer", "on offer")
    (explained,) = found.explanations
    assert any("that side does not offer h100-sxm5-80gb" in note for note in explained.notes)
    assert explained.design["time_to_train_days"] == explained.total["time_to_train_days"]


@pytest.mark.parametrize("is_first_set", [True, False])
def test_a_calibration_is_one_input_named_by_its_source(*, is_first_set: bool) -> None:
    made_up = calibration_with([])
    newer = made_up.model_copy(update={"source": "june.csv", "source_sha256": "1" * 64, "date": "2026-06-01"})
    first = job_with().model_copy(update={"calibration": made_up if is_first_set else None})
    (found,) = differences(first, first.model_copy(update={"calibration": newer}))
    before = "made up (2026-05-01, 000000000000)" if is_first_set else "not set"
    assert (found.name, found.before, found.after) == (
        "calibration",
        before,
        "june.csv (2026-06-01, 111111111111)",
    )


def test_offers_are_matched_by_name_not_by_place() -> None:
    first, second = job_with(H100_RENTED, A100_RENTED), job_with(A100_RENTED, H100_RENTED)
    assert differences(first, second) == []
    found = compare([side(first, {"offer": 0}), side(second, {"offer": 1})])
    assert all(row.is_same for row in found.decisions)
    assert set(found.explanations[0].total.values()) == {0.0}


RESERVED = {**H100_RENTED, "rent_usd_per_gpu_hour": 1.5, "commitment_days": 365}


def test_of_several_offers_with_one_accelerator_each_is_matched_with_its_own() -> None:
    cheaper = {**H100_RENTED, "rent_usd_per_gpu_hour": 2.0}
    first, second = job_with(RESERVED, H100_RENTED), job_with(RESERVED, cheaper)
    assert [each.name for each in differences(first, second)] == ["offers[h100-sxm5-80gb #2].price"]
    found = compare([side(first, {"offer": 1}), side(second, {"offer": 1})])
    (explained,) = found.explanations
    (cause,) = explained.causes
    assert cause.input == "offers[h100-sxm5-80gb #2].price"
    # 2.5 dollars became 2.0; nothing is committed.
    assert cause.effects["cost_usd"] == pytest.approx(-0.2 * values_of(found, "cost_usd")[0], rel=1e-9)
    assert explained.interaction.get("cost_usd", 0.0) == pytest.approx(0.0, abs=1e-6)
    assert explained.design == {}


def test_which_of_several_offers_a_design_takes_is_a_decision() -> None:
    job = job_with(RESERVED, H100_RENTED)
    found = compare([side(job, {"offer": 0}), side(job, {"offer": 1})])
    row = found.decisions[0]
    assert (row.decision, row.is_same) == ("offer", False)
    assert row.values == (
        "h100-sxm5-80gb #1, rent 1.5 USD/GPU-hour",
        "h100-sxm5-80gb #2, rent 2.5 (2 to 4) USD/GPU-hour",
    )
    assert found.explanations[0].causes == ()
    alone = compare([side(job_with(H100_RENTED, A100_RENTED), {"offer": 0}), side(job_with())])
    assert "offer" not in [row.decision for row in alone.decisions]


def test_a_second_offer_that_only_one_side_has_is_counted_and_said() -> None:
    both, one = job_with(RESERVED, H100_RENTED), job_with(RESERVED)
    (found,) = differences(both, one)
    assert (found.name, found.before, found.after) == ("offers[h100-sxm5-80gb]", "2 offers", "1 offer")
    assert with_input(both, found, one).offers == one.offers
    (back,) = differences(one, both)
    assert with_input(one, back, both).offers == both.offers
    (explained,) = compare([side(both, {"offer": 1}), side(one, {"offer": 0})]).explanations
    assert any("that side has fewer offers of h100-sxm5-80gb" in note for note in explained.notes)
    # Whatever else that side offers, the first offer of the accelerator replaces that of the design.
    elsewhere = job_with(RESERVED, A100_RENTED)
    (explained,) = compare([side(both, {"offer": 1}), side(elsewhere, {"offer": 0})]).explanations
    named = [f"offers[h100-sxm5-80gb #2].{field}" for field in ("price", "commitment_days")]
    assert [cause.input for cause in explained.causes] == named
    # What both have stays as it is.
    dear = {**H100_RENTED, "rent_usd_per_gpu_hour": 9.0}
    alone, several = job_with(dear), job_with(H100_RENTED, RESERVED)
    (price, count) = differences(alone, several)
    assert with_input(alone, count, several).offers == (alone.offers[0], several.offers[1])
    (explained,) = compare([side(alone), side(several, {"offer": 0})]).explanations
    assert [cause.input for cause in explained.causes] == [price.name] == ["offers[h100-sxm5-80gb #1].price"]


def test_a_design_that_cannot_be_run_with_the_other_inputs_is_explained_as_a_whole() -> None:
    # 40 heads do not split into sixteen.
    found = compare(
        [
            side(job_with(), {"tp": 16, "dp": 2}),
            side(job_with(workload={"model": "llama-2-13b"}), {"tp": 4, "dp": 8}),
        ]
    )
    (explained,) = found.explanations
    assert explained.interaction == {}
    assert any("cannot run with the inputs of" in note for note in explained.notes)
    assert explained.design["cost_usd"] == pytest.approx(explained.total["cost_usd"])


def test_a_design_over_a_limit_is_named() -> None:
    found = compare([side(job_with()), side(job_with(limits={"budget_usd": 10.0}), name="tight")])
    assert any(warning.startswith("tight violates a limit: ") for warning in found.warnings)


def test_names_of_sides_are_text_on_a_page() -> None:
    # 40 heads do not split into sixteen, and the design costs more than 10 USD.
    first = side(job_with(limits={"budget_usd": 10.0}), {"tp": 16, "dp": 2}, name="<b>first</b>")
    page = comparison_page(compare([first, side(job_with(workload={"model": "llama-2-13b"}), name="<i>")]))
    assert "&lt;b&gt;first&lt;/b&gt; violates a limit" in page
    assert "the design of &lt;b&gt;first&lt;/b&gt; cannot run with the inputs of &lt;i&gt;" in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_a_page_explains_the_figures_that_the_terminal_leaves_out() -> None:
    page = comparison_page(compare([side(job_with()), side(job_with(), {"tp": 4, "dp": 8})]))
    _, _, other = page.partition("<summary>Other figures</summary>")
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", other.partition("</table>")[0])
    assert heads == ["cause", *(human.words(name) for name in SINGLE_FIGURES if name not in EXPLAINED)]


def test_a_side_without_a_design_says_why_there_is_none(tmp_path: Path) -> None:
    answer = recommend(
        job_with(limits={"budget_usd": 10.0}), tracking=False, with_report=False, output=tmp_path / "none"
    )
    assert answer.infeasibility is not None
    none = read_side(str(tmp_path / "none"), StudyStore(tmp_path))
    note = compare([side(job_with()), none]).warnings[0]
    assert note.startswith(
        f"{tmp_path / 'none'} has no design, because its limits cannot be met. budget_usd = 10 "
    )
    assert note.endswith(answer.infeasibility.reasons[-1])


def test_a_side_without_a_design_is_not_explained_by_the_next_one() -> None:
    dear = job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 3.0})
    usual, none, other = side(job_with()), replace(side(job_with()), plan=None), side(dear)
    found = compare([usual, none, other])
    for shown in (comparison_page(found), rendered(lambda console: show_comparison(found, console))):
        assert re.findall(r"Why (\w) differs from A", shown) == ["C"]
    without = compare([none, usual, other])
    assert without.explanations == ()
    assert "differs from A" not in comparison_page(without)


@pytest.mark.parametrize(("offer", "is_told"), [(H100_RENTED, True), (H100_BOUGHT, False)])
def test_a_price_of_electricity_that_a_rent_includes_is_told(offer: dict[str, object], is_told: bool) -> None:
    dear = {"region": "us-iowa", "electricity_usd_per_kwh": 0.2}
    found = compare([side(job_with(offer)), side(job_with(offer, site=dear))])
    before_usd, after_usd = values_of(found, "cost_usd")
    assert (before_usd == after_usd) is is_told
    assert any(note.startswith("Electricity is part of every rent") for note in found.warnings) is is_told
    mixed = compare([side(job_with(H100_RENTED)), side(job_with(H100_BOUGHT, site=dear))])
    assert not any("Electricity" in note for note in mixed.warnings)  # the other side pays for it


def test_each_of_several_sides_has_its_own_inputs() -> None:
    usual, green, dear = (
        job_with(),
        job_with(site="sweden"),
        job_with({**H100_RENTED, "rent_usd_per_gpu_hour": 3.0}),
    )
    found = compare([side(usual), side(green), side(dear)])
    rows = {row.input: row.values for row in found.inputs}
    assert set(rows) == {"site", "offers[h100-sxm5-80gb].price"}
    for name, position in (("site", 1), ("offers[h100-sxm5-80gb].price", 2)):
        assert [value == rows[name][0] for value in rows[name]] == [place != position for place in range(3)]


def test_a_side_without_an_offer_or_on_another_site_has_values_of_its_own() -> None:
    dear = {**H100_RENTED, "rent_usd_per_gpu_hour": 3.0}
    found = compare([side(job_with()), side(job_with(dear)), side(job_with(A100_RENTED))])
    rows = {row.input: row.values for row in found.inputs}
    assert rows["offers[h100-sxm5-80gb].price"] == (
        "rent 2.5 (2 to 4) USD/GPU-hour",
        "rent 3 USD/GPU-hour",
        "not on offer",
    )
    assert rows["offers[a100-sxm4-80gb]"] == ("not on offer", "not on offer", "on offer")
    paid = {"region": "us-iowa", "electricity_usd_per_kwh": 0.3}
    sides = [side(job_with()), side(job_with(site=paid)), side(job_with(site="sweden"))]
    rows = {row.input: row.values for row in compare(sides).inputs}
    prices = [in_short(each.job.site.electricity_usd_per_kwh) for each in sides]
    assert len(set(prices)) == 3
    assert rows["site.electricity_usd_per_kwh"] == tuple(prices)
    assert rows["site"] == ("us-iowa", "us-iowa", "sweden")
    at = [job_with({**H100_RENTED, "site": place}) for place in (paid, "us-iowa")]
    rows = {row.input: row.values for row in compare([side(job) for job in (*at, job_with())]).inputs}
    assert rows["offers[h100-sxm5-80gb].site.electricity_usd_per_kwh"][2] == "not set"


def test_records_with_one_name_differ_by_their_fields() -> None:
    def job(oversubscription: float, hours: Sequence[float] = (0.4,)) -> Job:
        fabric = {"kind": "infiniband-ndr", "oversubscription": oversubscription}
        site = {"region": "us-iowa", "grid_profile": [*hours, *[0.4] * (24 - len(hours))]}
        return job_with({**H100_RENTED, "fabric": fabric}, site=site)

    (row,) = compare([side(job(size)) for size in (1, 2, 1, 3)]).inputs
    assert row.input == "offers[h100-sxm5-80gb].fabric"
    assert row.values == tuple(f"infiniband-ndr (oversubscription {size})" for size in (1, 2, 1, 3))
    (row,) = compare([side(job(1, (0.2, 0.6))), side(job(1, (0.1, 0.7)))]).inputs
    assert row.input == "site.grid_profile"
    assert row.values == ("0.4 (0.2 to 0.6) by the hour", "0.4 (0.1 to 0.7) by the hour")


def test_hardware_is_one_input_and_the_source_of_a_price_is_none() -> None:
    job = job_with()
    (offer,) = job.offers
    node = offer.node.model_copy(update={"id": "mine", "host_memory_bytes": 1e12})
    fabric = offer.fabric.model_copy(update={"kind": "roce", "oversubscription": 2.0})
    for field, value in (("node", node), ("fabric", fabric)):
        other = job.model_copy(update={"offers": (offer.model_copy(update={field: value}),)})
        assert [each.name for each in differences(job, other)] == [f"offers[h100-sxm5-80gb].{field}"]
    asked = offer.model_copy(update={"price_source": "catalogue"})
    assert differences(job, job.model_copy(update={"offers": (asked,)})) == []
    (found,) = differences(job_with({**H100_RENTED, "site": "sweden"}), job)
    assert (found.name, found.before, found.after) == ("offers[h100-sxm5-80gb].site", "sweden", "not set")


@pytest.mark.parametrize(
    "sections",
    [
        {"preference": {"cost": 2.0}},
        {"what_if": {"power_caps": [0.8]}},
        {"input_factors": {"step_time": {"low": 0.5, "high": 2.0}}},
        {"search": {"num_restarts": 7}},
    ],
)
def test_what_only_chooses_among_designs_is_known_as_that(sections: dict[str, object]) -> None:
    assert {found.is_choosing for found in differences(job_with(), job_with(**sections))} == {True}
    few = {**H100_RENTED, "num_gpus": {"min": 16, "max": 32}}
    assert {found.is_choosing for found in differences(job_with(), job_with(few))} == {True}


def test_how_many_nodes_there_are_is_a_cause_of_longer_runs() -> None:
    """Four nodes train; where no other one is there, a run waits for repairs."""
    few, many = ({**H100_RENTED, "num_gpus": 32, "max_nodes": number} for number in (4, 16))
    plan: dict[str, object] = {"tp": 1, "dp": 32, "zero": 2}
    found = compare([side(job_with(many), plan), side(job_with(few), plan)])
    assert {row.input: row.decides_choice_only for row in found.inputs} == {
        "offers[h100-sxm5-80gb].max_nodes": False
    }
    (explained,) = found.explanations
    (cause,) = explained.causes
    assert cause.effects["time_to_train_days"] == pytest.approx(explained.total["time_to_train_days"])
    assert cause.effects["run_seconds.replacement_wait_s"] > 0.0
    assert explained.interaction == {}


def test_a_recorded_answer_of_other_figures_is_told() -> None:
    given = side(job_with(), name="mine")
    assert given.plan is not None
    known = design_of(given.job, given.plan)
    for share, is_told in ((1.0005, False), (0.995, True)):
        recorded = known.model_copy(update={"cost_usd": share * known.cost_usd})
        found = compare([replace(given, recorded=recorded), given])
        assert [note.startswith("mine was answered by another version") for note in found.warnings] == [
            True
        ] * is_told


def test_a_side_has_the_grids_where_its_design_stands_or_could_stand() -> None:
    job = job_with(H100_RENTED, {**A100_RENTED, "site": "sweden"}, {**H100_BOUGHT, "site": "sweden"})
    taken = side(job, {"offer": 1})
    found = compare([taken, replace(taken, plan=None)])
    assert [[grid.region for grid in grids] for grids in found.grids] == [["sweden"], ["us-iowa", "sweden"]]


@pytest.mark.parametrize(
    ("metric", "first", "second"),
    [
        ("break_even_months", {"rent_usd_per_gpu_hour": 9.0}, {"rent_usd_per_gpu_hour": 0.2}),
        ("water_l", {"site": "us-iowa"}, {"site": "aruba"}),
    ],
)
def test_a_figure_that_one_side_lacks_is_not_split(
    metric: str, first: dict[str, object], second: dict[str, object]
) -> None:
    jobs = [job_with({**H100_RENTED, **terms}) for terms in (first, second)]
    found = compare([side(job) for job in jobs])
    (row,) = [row for row in found.metrics if row.metric == f"metrics.{metric}"]
    assert [value is None for value in row.values] == [False, True]
    (explained,) = found.explanations
    parts = [*(cause.effects for cause in explained.causes), explained.interaction, explained.design]
    assert not any(f"metrics.{metric}" in part for part in (*parts, explained.total))


def test_changes_are_summed_figure_by_figure() -> None:
    assert plus([{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}]) == {"a": 1.0, "b": 5.0, "c": 4.0}


def test_a_part_that_costs_nothing_is_a_figure_and_one_that_is_not_known_is_none() -> None:
    parts = {"rent_usd": 0.0, "capital_usd": None}
    metrics = metrics_of(design().model_copy(update={"cost_parts_usd": parts}))
    assert metrics["cost_parts_usd.rent_usd"] == 0.0
    assert "cost_parts_usd.capital_usd" not in metrics


def test_fewer_than_two_are_refused() -> None:
    with pytest.raises(InputError, match="needs two or more"):
        compare([side(job_with())])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and the folder of an answer."""
    place = tmp_path_factory.mktemp("compared")
    recommend(job_with(name="cheap"), tracking=False, with_report=False, output=place / "answer")
    run_study_of(job_with(name="green", site="sweden"), store=StudyStore(place / "studies"))
    return place


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two answers to jobs that differ in the price and in how many GPUs may be taken."""
    place, store = tmp_path_factory.mktemp("grown"), StudyStore()
    few = {**H100_RENTED, "num_gpus": {"min": 16, "max": 32}, "rent_usd_per_gpu_hour": 2.5}
    more = {**H100_RENTED, "num_gpus": {"min": 16, "max": 64}, "rent_usd_per_gpu_hour": 3.0}
    for name, offer in (("few", few), ("more", more)):
        job = job_with(offer, objectives=["time_to_train", "cost"], preference={"time_to_train": 2.0})
        recommend(job, tracking=False, with_report=False, output=place / name)
    return compare([read_side(str(place / name), store) for name in ("few", "more")])


class TestChoices:
    @pytest.mark.long
    def test_an_input_that_only_chooses_is_told_by_the_design_that_it_chooses(
        self, grown: Comparison
    ) -> None:
        (explained,) = grown.explanations
        assert explained.design["time_to_train_days"] < 0.0
        chosen = {cause.input: cause for cause in explained.choices}
        # Time counts for more than cost, so that more GPUs are taken once they can be had. A price multiplies the cost of
        # every design alike, so that it chooses none.
        gpus = chosen["offers[h100-sxm5-80gb].num_gpus"]
        assert gpus.effects["time_to_train_days"] == explained.total["time_to_train_days"]
        assert gpus.note.startswith("alone, it leads to 64 x h100-sxm5-80gb")
        assert chosen["offers[h100-sxm5-80gb].price"].effects == {}

    def test_choices_and_what_inputs_choose_together_sum_to_the_other_design(self, grown: Comparison) -> None:
        (explained,) = grown.explanations
        for metric in SINGLE_FIGURES:
            parts = [*(cause.effects for cause in explained.choices), explained.choice_interaction]
            before, _ = values_of(grown, metric)
            # Parts that only rounding makes are left out.
            assert sum(part.get(metric, 0.0) for part in parts) == pytest.approx(
                explained.design.get(metric, 0.0), abs=1e-9 * abs(before)
            )
        # The other design costs more the dearer a GPU is: 0.5 of 2.5 USD, for what the number alone makes.
        (gpus,) = [cause for cause in explained.choices if cause.effects]
        alone_usd, together_usd = (part["cost_usd"] for part in (gpus.effects, explained.choice_interaction))
        assert together_usd == pytest.approx(0.2 * alone_usd, rel=1e-6)

    def test_the_terminal_names_the_input_that_chooses(self, grown: Comparison) -> None:
        text = rendered(lambda console: show_comparison(grown, console))
        assert re.search(r"different design due to GPUs of h100-sxm5-80gb +-", text)
        assert "  different design  " not in text

    @pytest.mark.long
    def test_choices_that_cancel_out_in_the_same_design_have_no_rows(self) -> None:
        saved, dearer = {"cost_usd": -5e5}, {"cost_usd": 1e5}
        choices = (
            Cause(input="offers[h100].price", effects=dearer, note="alone, it leads to 8 x h100, TP8"),
            Cause(input="offers[h200].price", effects={}),
        )
        explained = Explanation(
            side="other",
            causes=(Cause(input="offers[h200].price", effects=saved),),
            interaction={"cost_usd": 0.0},
            design={"cost_usd": 0.0},
            total=saved,
            choices=choices,
            choice_interaction={"cost_usd": -1e5},
        )
        figures = [MetricRow(metric="cost_usd", values=(1.9e6, 1.4e6))]
        rows = explanation_rows(explained, figures, ["cost_usd"])
        assert rows == [("price of h200", "-$500 k"), ("total", "-$500 k")]
        assert explanation_notes(explained) == ["price of h100: alone, it leads to 8 x h100, TP8"]

    @pytest.mark.parametrize(
        ("small", "rows"),
        [
            ((-277.0,), [("reliability", "-$277")]),
            ((-277.0, -100.0), [("smaller causes", "-$377")]),
            ((-277.0, 277.0), []),
            ((-40.0,), []),  # less than 1 % of the total
        ],
    )
    def test_what_small_causes_leave_of_the_total_is_a_row(
        self, small: tuple[float, ...], rows: list[tuple[str, str]]
    ) -> None:
        # A cause below $1,900, 0.05 % of the cost, has no row of its own.
        inputs = ("reliability.failures_per_1000_node_days", "storage.read_bytes_per_s")
        causes = [
            Cause(input=name, effects={"cost_usd": usd}) for name, usd in zip(inputs, small, strict=False)
        ]
        explained = Explanation(
            side="other",
            causes=(Cause(input="storage.write_bytes_per_s", effects={"cost_usd": -4500.0}), *causes),
            interaction={"cost_usd": 0.0},
            design={"cost_usd": 0.0},
            total={"cost_usd": -4500.0 + sum(small)},
        )
        figures = [MetricRow(metric="cost_usd", values=(3.8e6, 3.7955e6))]
        found = explanation_rows(explained, figures, ["cost_usd"])
        assert [(name.split(":")[0], usd) for name, usd in found[1:-1]] == rows

    def test_inputs_that_choose_only_together_are_named(self, tmp_path: Path) -> None:
        # A budget a little above the cost of the first answer, or a price a little higher: its design is still affordable
        # with either, and not with both.
        asked = {"objectives": ["time_to_train", "cost"], "preference": {"time_to_train": 2.0}}
        first = recommend(job_with(**asked), tracking=False, with_report=False, output=tmp_path / "first")
        assert first.best is not None
        dear = {**H100_RENTED, "rent_usd_per_gpu_hour": {"low": 2.0, "mid": 2.51, "high": 4.0}}
        tight = {"budget_usd": first.best.cost_usd * 1.002}
        recommend(
            job_with(dear, limits=tight, **asked),
            tracking=False,
            with_report=False,
            output=tmp_path / "other",
        )
        sides = [read_side(str(tmp_path / name), StudyStore()) for name in ("first", "other")]
        (explained,) = compare(sides).explanations
        assert all(cause.effects == {} for cause in explained.choices)
        assert explained.choice_interaction["time_to_train_days"] == explained.total["time_to_train_days"]
        assert explained.total["time_to_train_days"] > 0.0
        together = "chosen only with limits: budget and price of h100-sxm5-80gb"
        assert any(note.endswith(together) for note in explained.notes)
        assert any(note.startswith("what an input leads to is chosen among the") for note in explained.notes)

    def test_a_design_that_one_search_missed_is_not_the_effect_of_an_input(self) -> None:
        # The second answer knows only the slower of two designs; its higher price favours neither.
        dear = {**H100_RENTED, "rent_usd_per_gpu_hour": 3.0}
        first, other = (
            job_with(offer, objectives=["time_to_train", "cost"]) for offer in (H100_RENTED, dear)
        )
        fast, slow = side(first).plan, side(first, {"tp": 4, "dp": 8}).plan
        assert fast is not None
        assert slow is not None
        sides = [
            Side(name="first", job=first, plan=fast, front=(fast, slow)),
            Side(name="other", job=other, plan=slow, front=(slow,)),
        ]
        found = compare(sides)
        (explained,) = found.explanations
        assert explained.total["time_to_train_days"] > 0.0
        assert [cause.effects for cause in explained.choices] == [{}]
        text = rendered(lambda console: show_comparison(found, console))
        assert "different design due to the search" in text
        assert "several inputs" not in text
        assert "the other answer has a better design for other: 32 x h100-sxm5-80gb, TP2 DP16" in text

    def test_a_given_design_is_nobodys_choice(self) -> None:
        found = compare([side(job_with()), side(job_with(H100_BOUGHT))])
        assert found.explanations[0].choices == ()
        assert found.explanations[0].choice_interaction == {}

    @pytest.mark.long
    def test_an_accelerator_that_is_on_offer_on_one_side_only_chooses(self, tmp_path: Path) -> None:
        cheap = {**A100_RENTED, "rent_usd_per_gpu_hour": 0.5}
        for name, offers in (("one", [H100_RENTED]), ("both", [H100_RENTED, cheap])):
            recommend(
                job_with(*offers, objectives=["cost"]),
                tracking=False,
                with_report=False,
                output=tmp_path / name,
            )
        sides = [read_side(str(tmp_path / name), StudyStore()) for name in ("one", "both", "one")]
        there, back = compare(sides[:2]), compare(sides[1:])
        for found in (there, back):
            ((cause,), total) = found.explanations[0].choices, found.explanations[0].total
            assert cause.input == "offers[a100-sxm4-80gb]"
            assert cause.effects["cost_usd"] == pytest.approx(total["cost_usd"], rel=1e-12)
        assert there.explanations[0].total["cost_usd"] == -back.explanations[0].total["cost_usd"]
        assert there.explanations[0].total["cost_usd"] < 0.0


def test_the_interval_between_saves_is_the_one_that_is_used() -> None:
    found = compare([side(job_with()), side(job_with(), {"checkpoint_scheme": "none"})])
    (row,) = [row for row in found.decisions if row.decision == "checkpoint_interval_s"]
    design = simulate_plan(job_with(), PLAN, with_sensitivities=False).design
    assert design is not None
    assert row.values[0] is not None
    assert float(row.values[0]) == pytest.approx(design.checkpoint_interval_s, rel=1e-3)
    assert row.values[1] == "never"


class TestSides:
    def test_a_study_and_an_answer_are_compared_by_their_recommendations(self, folder: Path) -> None:
        store = StudyStore(folder / "studies")
        (study,) = store.paths()
        sides = [read_side(str(folder / "answer"), store), read_side(study.stem, store)]
        found = compare(sides)
        for position, one in enumerate(sides):
            assert one.recorded is not None
            assert values_of(found, "cost_usd")[position] == pytest.approx(one.recorded.cost_usd, rel=1e-9)
        assert [row.input for row in found.inputs] == ["site"]
        assert [[grid.words for grid in grids] for grids in found.grids] == [
            ["combustion, 2020"],
            ["life cycle, 2025"],
        ]
        (warning,) = found.warnings
        assert warning.startswith("The grid intensities follow different conventions")
        assert "A2: OWID and Ember" in rendered(lambda console: show_comparison(found, console))

    @pytest.mark.parametrize("name", ["answer/recommendation.json", "answer/job.json"])
    def test_files_of_an_answer_are_read_as_what_they_are(self, name: str, folder: Path) -> None:
        one = read_side(str(folder / name), StudyStore(folder))
        assert one.job.name == "cheap"
        assert one.plan is not None

    def test_an_answer_without_its_job_is_refused(self, folder: Path, tmp_path: Path) -> None:
        copy = tmp_path / "recommendation.json"
        copy.write_bytes((folder / "answer" / "recommendation.json").read_bytes())
        with pytest.raises(InputError, match="is missing: an answer needs the job"):
            read_side(str(copy), StudyStore(folder))

    def test_an_answer_beside_the_job_of_another_is_refused(self, folder: Path, tmp_path: Path) -> None:
        answer, job = (folder / "answer" / name for name in ("recommendation.json", "job.json"))
        (tmp_path / answer.name).write_bytes(answer.read_bytes())
        (tmp_path / job.name).write_text(
            job.read_text(encoding="utf-8").replace('"cheap"', '"dear"'), encoding="utf-8"
        )
        with pytest.raises(InputError, match=r"answers job cheap, not job dear, .*: take both files of one"):
            read_side(str(tmp_path), StudyStore(tmp_path))

    def test_an_answer_chose_among_its_whole_front(self, folder: Path) -> None:
        path = folder / "answer" / "recommendation.json"
        front = Recommendation.model_validate_json(path.read_bytes()).front
        assert len(front) > 1
        assert read_side(str(path), StudyStore(folder)).front == tuple(design.plan for design in front)

    @pytest.mark.parametrize(("ending", "plan"), [("YAML", "tp=2,dp=16"), ("yaml", "tp=2,\ndp=16")])
    def test_a_job_and_its_plan_are_read_whatever_case_and_lines_they_have(
        self, ending: str, plan: str, tmp_path: Path
    ) -> None:
        job = tmp_path / f"job.{ending}"
        job.write_bytes(Path(BLOOM).read_bytes())
        read = read_side(f"{job}@{plan},pp=12,recompute=full", StudyStore(tmp_path))
        assert read.plan is not None
        assert (read.plan.tensor_parallel, read.plan.data_parallel) == (2, 16)

    def test_what_is_no_answer_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "recommendation.json").write_text('{"recommendation": 1}', encoding="utf-8")
        with pytest.raises(InputError, match="is not an answer of this version"):
            read_side(str(tmp_path), StudyStore(tmp_path))

    @pytest.mark.parametrize("plan", ["", " "])
    def test_a_job_with_an_empty_plan_is_refused(self, plan: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="the plan behind @ is missing: write one, such as tp=8"):
            read_side(f"{BLOOM}@{plan}", StudyStore(tmp_path))

    def test_an_unknown_study_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StudyError, match="there is no such study"):
            read_side("nobody", StudyStore(tmp_path))

    @pytest.mark.parametrize(
        ("plan", "message"),
        [
            ("tp=3,pp=12", "must divide num_heads"),
            ("tp=4,dp=8,num_gpus=33", "must equal num_gpus"),
            ("tp=x", "must be a whole number"),
            ("tp", "tp"),
        ],
    )
    def test_a_plan_that_cannot_be_run_is_refused_with_its_reason(self, plan: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            read_side(f"{BLOOM}@{plan}", StudyStore())
        # One of several sides: the message says which.
        assert str(caught.value).startswith(f"{BLOOM}@{plan}: ")


class TestCommand:
    SIDES = (f"{BLOOM}@tp=4,pp=12,dp=8,mbs=2,recompute=full", f"{BLOOM}@tp=8,pp=6,dp=8,mbs=2,recompute=full")

    def test_the_json_reads_back_and_has_every_figure(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["compare", *self.SIDES, "--json"]) == 0
        found = Comparison.model_validate(json.loads(capsys.readouterr().out))
        assert found.sides == self.SIDES
        assert {row.metric for row in found.metrics} >= set(SINGLE_FIGURES)
        assert found.schema_version == 1

    def test_the_terminal_shows_sides_designs_figures_and_causes(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["compare", *self.SIDES]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "Compared: A, B"
        assert "  All inputs are the same." in lines
        assert any(re.match(r"  tensor parallel +4 +8", line) for line in lines)
        assert any(line.startswith("  different design") for line in lines)
        assert max(len(line) for line in lines) <= WIDTH

    def test_equal_designs_are_said_to_be_equal(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["compare", self.SIDES[0], self.SIDES[0]]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "  All decisions are the same." in lines
        assert not any(line.startswith("  decision ") for line in lines)

    def test_the_page_opens_offline_and_holds_the_figures(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "page.html"
        for _ in range(2):  # an older page is replaced
            assert cli.main(["compare", *self.SIDES, "--html", str(file)]) == 0
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link|img|iframe)|(?:src|href)=|url\(", text) == []
        assert "http" not in text
        (shown,) = re.findall(r"time to train +(\S+ days)", capsys.readouterr().out)[:1]
        assert f">{shown}<" in text

    def test_another_page_is_never_overwritten(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "page.html"
        file.write_text("<p>precious</p>", encoding="utf-8")
        assert cli.main(["compare", *self.SIDES, "--html", str(file)]) == 2
        assert file.read_text(encoding="utf-8") == "<p>precious</p>"
        assert "is no comparison of capplan" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("place", "rule"),
        [("/proc/page.html", "the folder /proc cannot be written to"), ("/dev/zero", "is no comparison")],
    )
    def test_a_page_that_cannot_be_written_is_refused_before_anything_is_shown(
        self, place: str, rule: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["compare", *self.SIDES, "--html", place]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"--html = {place}: " in shown.err
        assert rule in shown.err

    def test_one_side_is_not_enough(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["compare", BLOOM]) == 2
        assert "give two or more of" in capsys.readouterr().err
