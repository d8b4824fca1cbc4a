"""Do words for parts of a design name what the design has?"""

from __future__ import annotations

import pytest

from planner.recommended.design_words import (
    breakdowns,
    configuration,
    figures,
    merits,
    offer_words,
    part_words,
    ranks_within_layers,
    site_words,
    steps_between_saves,
)
from planner.recommended.recommendation import Design, Spread
from simulator.domain.plan import Plan, Recompute
from tests.planner.hand_made import design, recommended
from tests.simulator.builders import plan_of


@pytest.mark.parametrize(
    ("plans", "ranks"),
    [
        ([plan_of()], ("tensor",)),
        ([plan_of(context=2)], ("context",)),
        ([plan_of(tensor=2), plan_of(context=2)], ("tensor", "context")),
        ([plan_of(tensor=2, context=2), plan_of()], ("tensor", "context")),
    ],
)
def test_collectives_within_layers_are_of_all_ranks_that_any_plan_has(
    plans: list[Plan], ranks: tuple[str, ...]
) -> None:
    assert ranks_within_layers(plans) == ranks


def with_plan(**decisions: object) -> Design:
    best = design()
    return best.model_copy(update={"plan": best.plan.model_copy(update=decisions)})


def words_of(best: Design, name: str) -> str:
    return dict(configuration(best))[name]


def test_groups_of_an_interleaved_pipeline_and_recomputed_layers_are_told_where_a_plan_has_them() -> None:
    assert words_of(with_plan(interleaved_group_size=6), "parallelism").endswith(
        "VPP 2, EP 1, 6 micro-batches per group"
    )
    some = with_plan(recompute=Recompute.FULL, recompute_num_layers=3)
    assert words_of(some, "recomputation").startswith("full of 3 layers; ZeRO")


def test_a_configuration_says_whose_habits_hold_where_the_job_says_nothing() -> None:
    named = design().model_copy(update={"framework": "fsdp2"})
    assert words_of(named, "software") == "as fsdp2 where the job says nothing"
    assert words_of(design(), "software") == "as Megatron-LM where the job says nothing (workload.framework)"


def test_a_cost_without_a_range_of_prices_has_none() -> None:
    said = "over the price range of the hardware"
    for low_usd, is_told in ((1.25e6, True), (2.51e6, False)):
        best = design().model_copy(update={"cost_low_usd": low_usd})
        assert any(note.endswith(said) for _, _, note in figures(best, None, "")) is is_told


def test_late_runs_that_never_end_have_no_end() -> None:
    sure = recommended().uncertainty
    assert sure is not None
    late = sure.model_copy(update={"time_to_train_days": Spread(mean=None, p5=30.6, p50=40.0, p95=None)})
    notes = {name: note for name, _, note in figures(design(), late, "")}
    assert notes["time to train"].startswith("30.6 days to no end in 9 of 10 replays")


def test_water_is_told_in_cubic_metres() -> None:
    best = design()
    wet = best.model_copy(update={"metrics": {**best.metrics, "water_l": 2.5e6}, "water_scope": "on site"})
    assert ("water", "2,500 m3", "on site") in merits(wet)


def test_market_based_carbon_stands_below_the_carbon_of_the_location() -> None:
    best = design()
    bought = best.model_copy(update={"metrics": {**best.metrics, "operational_market_kgco2e": 2200.0}})
    told = [(name, figure) for name, figure, _ in figures(bought, None, "")]
    below = told[[name for name, _ in told].index("carbon") + 1]
    assert below == ("market-based", "2.20 t CO2e")


def test_the_site_is_told_where_offers_are_at_several() -> None:
    best = design().model_copy(update={"region": "sweden"})
    answer = recommended().model_copy(update={"front": (best,), "recommendation": best})
    assert site_words(answer, best) == ""
    assert site_words(answer.model_copy(update={"regions": ("sweden", "norway")}), best) == " in sweden"


def test_an_offer_is_numbered_where_another_has_its_accelerator_at_its_site() -> None:
    best = design().model_copy(update={"region": "sweden"})
    twin = with_plan(offer=1).model_copy(update={"region": "sweden"})
    assert (offer_words(best, [best, twin]), offer_words(twin, [best])) == (" offer 0", " offer 1")
    for update in ({"region": "norway"}, {"accelerator": "a100-sxm4-80gb"}):
        assert offer_words(best, [best, twin.model_copy(update=update)]) == ""


def test_what_is_bought_is_told_where_others_are_rented() -> None:
    rented = design()
    sold = rented.model_copy(update={"cost_parts_usd": {"rent_usd": 0.0, "capital_usd": 1e6}})
    assert (offer_words(sold, [rented]), offer_words(rented, [sold])) == (" bought", "")
    assert offer_words(sold, [sold]) == ""
    twin = sold.model_copy(update={"plan": with_plan(offer=1).plan})
    assert offer_words(twin, [rented]) == " offer 1 bought"
    assert dict(configuration(sold))["GPUs"] == f"{dict(configuration(rented))['GPUs']}, bought"


def test_parts_are_told_by_size() -> None:
    parts = {"compute_s": 1.0, "tensor_comm_s": 3.0, "optimizer_s": 2.0}
    best = design().model_copy(update={"step_seconds": parts})
    step = next(found for found in breakdowns(best) if found.title.startswith("one step"))
    assert [share for *_, share in step.parts] == pytest.approx([1 / 2, 1 / 3, 1 / 6])


def test_a_wait_without_any_pipeline_is_for_other_accelerators() -> None:
    alone, pipeline = plan_of(), plan_of(pipeline=2)
    assert part_words("pipeline_bubble_s", [alone, alone]) == "waiting for other accelerators"
    assert part_words("pipeline_bubble_s", [alone, pipeline]) == "pipeline bubble"


@pytest.mark.parametrize(("interval_s", "steps"), [(3.0, 1), (14.0, 1), (16.0, 2), (600.0, 60)])
def test_saves_are_whole_steps_apart(interval_s: float, steps: int) -> None:
    assert steps_between_saves(interval_s, iteration_s=10.0) == steps
