"""Can a fleet have accelerators of the user's own catalogue?"""

from __future__ import annotations

import csv
from pathlib import Path

from planner.purchase.fleet import Fleet
from planner.purchase.notes import notes_of
from planner.purchase.ways import jobs_of
from simulator.catalog import Kind, figures

H100, OWN = "h100-sxm5-80gb", "our-chip"
RENT = {"usd_per_gpu_hour": 2.0, "max_nodes": 4}
WORKLOAD = {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192, "global_batch_size": 64}


def fleet_of(*offers: dict[str, object], job: dict[str, object] | None = None, **more: object) -> Fleet:
    jobs = [{"name": "first", "deadline_day": 90, "job": {"workload": WORKLOAD, **(job or {})}}]
    return Fleet.model_validate({"site": "us-iowa", "offers": offers, "jobs": jobs} | more)


def own_catalog(folder: Path) -> Path:
    """An accelerator with the figures of an H100, in a node with those of a DGX H100."""
    file = folder / "chip.csv"
    renamed = {"default_node": "our-node", "accelerator": OWN}
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["kind", "id", "quantity", "value", "unit", "source", "date", "confidence"])
        for kind, known, name in ((Kind.ACCELERATORS, H100, OWN), (Kind.NODES, "dgx-h100", "our-node")):
            for one in figures(kind, known):
                value = renamed.get(one.quantity, one.value)
                writer.writerow(
                    [kind.value, name, one.quantity, value, one.unit, "ours", "2026", one.confidence.value]
                )
    return file


def test_a_fleet_offers_an_accelerator_that_the_catalogue_of_its_jobs_adds(tmp_path: Path) -> None:
    buy = {"usd_per_node": 2e3, "max_nodes": 4}
    fleet = fleet_of(
        {"accelerator": OWN, "buy": buy, "rent": RENT}, job={"catalog": str(own_catalog(tmp_path))}
    )
    jobs = jobs_of(fleet, tmp_path)
    assert jobs[0][0].offers[0].node.id == "our-node"
    assert notes_of(fleet, tmp_path, jobs) == ()  # of the node's price, the shipped catalogue knows nothing


def test_prices_in_another_unit_are_still_told_of_the_usual_node() -> None:
    fleet = fleet_of({"accelerator": H100, "buy": {"usd_per_node": 2e3, "max_nodes": 4}})
    (note,) = notes_of(fleet, Path(), jobs_of(fleet, Path()))
    assert note.startswith("The price of a node dgx-h100, 2,000 USD, is far from")
