"""Do notes flag user-defined hardware whose figures seem to be in a wrong unit, and no other hardware?"""

from __future__ import annotations

import re

import pytest

from planner import parse_job, recommend, simulate_plan
from planner.notes.hardware_notes import hardware_notes
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.job import Job
from simulator.domain.offer import Offer


def job_with(accelerator: dict[str, float] | None = None, node: dict[str, float] | None = None) -> Job:
    """A job on one accelerator of its own in a node of its own: an H100 and its node but for these figures."""
    known = (
        catalog.accelerator("h100-sxm5-80gb").model_dump(mode="json") | (accelerator or {}) | {"id": "own"}
    )
    server = catalog.node("dgx-h100").model_dump(mode="json") | (node or {}) | {"accelerator": "own"}
    offer = {
        "accelerator": known,
        "node": server,
        "fabric": "infiniband-ndr",
        "num_gpus": 8,
        "rent_usd_per_gpu_hour": 2.0,
    }
    workload = {"model": "llama-3.1-8b", "tokens": 1e9, "sequence_length": 8192, "global_batch_size": 64}
    return parse_job({"workload": workload, "offers": [offer], "site": "us-iowa"})


def offer_of(name: str) -> Offer:
    """An offer of an accelerator of the catalogue in its usual node."""
    (offer,) = job_with().offers
    return offer.model_copy(
        update={"accelerator": catalog.accelerator(name), "node": catalog.default_node(name)}
    )


def test_no_figure_of_the_catalogue_is_taken_for_one_in_another_unit() -> None:
    job = job_with()
    for name in catalog.names(Kind.NODES):
        node = catalog.node(name)
        offer = job.offers[0].model_copy(
            update={"node": node, "accelerator": catalog.accelerator(node.accelerator)}
        )
        assert not [note for note in hardware_notes([offer]) if "far outside" in note]


class TestEstimates:
    """The catalogue's estimates of what decides times, memory and energy."""

    def test_announced_figures_are_told_with_where_their_origin_is_shown(self) -> None:
        (note,) = hardware_notes([offer_of("vr200")])
        assert note == (
            "The catalogue estimates of vr200: memory, memory bandwidth, bf16 peak, fp8 peak, fp4 peak, thermal design power. "
            "`capplan catalog accelerators vr200` says from what; give your own figures where you have better ones."
        )

    def test_accelerators_with_the_same_estimates_are_told_together_and_once(self) -> None:
        notes = hardware_notes(
            [offer_of(name) for name in ("trainium3", "vr200", "ascend-910c", "trainium3")]
        )
        assert [note.partition(". ")[0] for note in notes] == [
            "The catalogue estimates of trainium3, ascend-910c: thermal design power",
            "The catalogue estimates of vr200: memory, memory bandwidth, bf16 peak, fp8 peak, fp4 peak, thermal design power",
        ]

    @pytest.mark.parametrize("name", ["h100-sxm5-80gb", "b200-sxm-180gb", "gb300", "mi355x", "mi300x"])
    def test_published_figures_are_not_told(self, name: str) -> None:
        assert hardware_notes([offer_of(name)]) == ()

    def test_a_figure_of_ones_own_is_no_estimate(self) -> None:
        offer = offer_of("trainium2")
        (note,) = hardware_notes([offer])
        assert "of trainium2: thermal design power. " in note
        measured = offer.accelerator.model_copy(update={"thermal_design_power_w": 480.0})
        assert hardware_notes([offer.model_copy(update={"accelerator": measured})]) == ()


@pytest.mark.parametrize(
    ("figures", "note"),
    [
        (
            {"memory_bytes": 80.0},
            r"^memory_bytes of own, 80, is far outside the catalogue's .* to .*: is it in bytes\?$",
        ),
        ({"memory_bytes_per_s": 3.35}, "memory_bytes_per_s of own, 3.35, .* is it in bytes per second"),
        ({"bf16_flop_per_s": 989.0}, "bf16_flop_per_s of own, 989, .* is it in FLOP per second"),
        (
            {"thermal_design_power_w": 7e5, "idle_power_w": 7e4},
            "thermal_design_power_w of own, 7e.05, .* in watts",
        ),
    ],
)
def test_figures_in_another_unit_are_told(figures: dict[str, float], note: str) -> None:
    found = hardware_notes(job_with(figures).offers)
    assert len(found) == len(figures)
    assert re.search(note, found[0])


def test_a_plan_and_a_recommendation_tell_it_even_where_nothing_fits() -> None:
    job = job_with({"memory_bytes": 80.0}, {"network_bytes_per_s": 400.0})
    told = ["memory_bytes of own, 80,", "network_bytes_per_s of dgx-h100, 400,"]
    for answer in (
        simulate_plan(job, {"dp": 8}, with_sensitivities=False),
        recommend(job, tracking=False, with_report=False),
    ):
        assert [note[: len(start)] for note, start in zip(answer.warnings, told, strict=False)] == told


def test_figures_up_to_ten_times_the_largest_and_a_tenth_of_the_least_are_not_told() -> None:
    known = [catalog.accelerator(name).memory_bytes for name in catalog.names(Kind.ACCELERATORS)]
    for figure, is_told in (
        (9.9 * max(known), False),
        (10.1 * max(known), True),
        (min(known) / 9.9, False),
        (min(known) / 10.1, True),
    ):
        assert bool(hardware_notes(job_with({"memory_bytes": figure}).offers)) is is_told


def test_hardware_of_several_offers_is_told_once() -> None:
    (offer,) = job_with({"memory_bytes": 80.0}).offers
    assert hardware_notes([offer, offer]) == hardware_notes([offer])


def test_the_next_generation_is_not_told() -> None:
    assert hardware_notes(job_with({"memory_bytes": 1e12, "bf16_flop_per_s": 1e16}).offers) == ()
