"""Are the figures that pages and examples written by hand quote of capplan those that it computes today?"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.whole_runs import PAGE, page
from objectives.input_uncertainty import NUM_DRAWS
from planner import load_job
from planner.measured.rows import read_measured
from planner.notes.accuracy_notes import KNOWN_STEPS
from planner.purchase.fleet import load_fleet
from planner.purchase.rules import WIDER
from planner.purchase.sizes import MOST_SIZES
from planner.validation.comparison import entries_of, timed
from planner.what_if.cases import WORTH_WAITING_FRACTION
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.hardware import Precision
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PhasePower, phase_power
from simulator.step.step_reach import Reach, beyond_measured
from tests.support import H100_RENTED, job_with, plans_with

ROOT = Path(__file__).parents[1]
MONEY = ROOT / "docs" / "cost-energy-carbon.md"
AT_THE_NODES = {
    "site": {"region": "us-iowa", "power_usage_effectiveness": 1.0},
    "fabric": {"kind": "infiniband-ndr", "switch_power_w": 0, "optic_power_w": 0},
}


def words_of(path: Path) -> str:
    """The text of a page or of an example without line breaks and marks of comments."""
    return " ".join(re.sub(r"^#", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).split())


def assert_as_told(written: str, fresh: str) -> None:
    """The same words, and figures that differ by less than they would after a change of the model that is worth telling."""
    number = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", fresh)
    for old, new in zip(number.findall(written), number.findall(fresh), strict=True):
        # Errors in per cent are small differences of large figures; everything else has four digits at most.
        assert float(old.replace(",", "")) == pytest.approx(float(new.replace(",", "")), rel=1e-3, abs=0.11)


def power_of_a_node(node: str) -> PhasePower:
    job = job_with({**H100_RENTED, "num_gpus": 8, "node": node}, **AT_THE_NODES)
    plans = plans_with({"num_gpus": 8})
    return phase_power(job, plans, OfferTable.from_job(job).take(plans.offer))


def test_the_page_of_whole_runs_holds_the_figures_of_today() -> None:
    assert_as_told(PAGE.read_text(encoding="utf-8"), page())


def test_steps_of_tpus_are_as_far_off_as_limits_notes_and_the_validation_say() -> None:
    file = ROOT / "benchmarks" / "data" / "tpu_steps.csv"
    rows = read_measured(file)
    found = timed(entries_of(rows))
    errors = [one.comparison.error_fraction for one in found]
    assert len(found) == len(rows)
    high, mean, low = (-100 * figure for figure in (min(errors), sum(errors) / len(errors), max(errors)))
    told = f"{low:.0f} to {high:.0f} % too fast"
    assert (
        f"{len(rows)} published steps on TPU v6e, on which no constant was fitted, are simulated {told}"
        in KNOWN_STEPS["tpu"]
    )
    for name in ("limits.md", "validation.md"):
        assert f"simulated {told}, {mean:.0f} % in the mean" in words_of(ROOT / "docs" / name)
    num_inside = sum(one.is_inside for one in found)
    assert f"in the mean; {num_inside} lie inside their 80 % interval" in words_of(
        ROOT / "docs" / "validation.md"
    )


def test_what_no_compared_step_has_is_named_where_its_error_counts_twice() -> None:
    beyond = Reach(
        sequence_tokens=65_537,
        context_ranks=3,
        tensor_domains=2,
        is_latent=True,
        is_linear=True,
        has_indexer=True,
        is_compressed=True,
        has_streams=True,
        has_images=True,
        has_adapters=True,
        is_in_4_bits=True,
    )
    said = words_of(ROOT / "docs" / "validation.md").partition("For an architecture that was not compared")[2]
    named = [words for words in beyond_measured(beyond) if not re.search(r"\(measured", words)]
    assert len(named) == len(Reach.__dataclass_fields__) - 2  # the others are told with their numbers
    assert all(words in said.partition("error counts twice")[0] for words in named)


class TestMoneyEnergyAndCarbon:
    def test_power_of_nodes_beside_the_measurements(self) -> None:
        immersed, in_air = power_of_a_node("hgx-h100-immersion"), power_of_a_node("dgx-h100")
        busy, evaluating = float(immersed.compute_w[0]), float(immersed.evaluation_w[0])
        starts = [float(power.stalled_w[0]) for power in (immersed, in_air)]
        written = MONEY.read_text(encoding="utf-8")
        kilowatts = [f"{watts / 1e3:.1f}" for watts in starts]
        for line in (
            f"| one H100 node, immersed, LoRA | 7.16 kW | {busy / 1e3:.2f} kW |",
            f"| evaluation blocks of the GPT-3 run | 6.31 kW | {evaluating / 1e3:.2f} kW |",
            f"| an H100 node while a job starts, immersed and in air | 2.1, 2.7 kW | {', '.join(kilowatts)} kW |",
        ):
            assert line in written

    def test_idle_accelerators_draw_a_quarter_of_a_busy_node(self) -> None:
        assert "idle accelerators draw a quarter of a busy node" in words_of(MONEY)
        power = power_of_a_node("dgx-h100")
        assert float(power.idle_w[0] / power.compute_w[0]) == pytest.approx(0.25, abs=0.05)

    def test_half_of_the_error_of_steps_is_shared(self) -> None:
        assert "about half of the variance lies between jobs of a publisher" in words_of(MONEY)
        text = (ROOT / "simulator" / "data" / "step_error.csv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            shared, own = (float(row[f"{part}_log_deviation"]) ** 2 for part in ("shared", "own"))
            assert shared / (shared + own) == pytest.approx(0.5, abs=0.05)

    def test_number_of_draws_and_the_least_gain_of_a_wait(self) -> None:
        words = words_of(MONEY)
        assert f"{NUM_DRAWS:,} draws of all uncertain inputs" in words
        assert "where it lowers the mean by a thousandth or more" in words
        assert WORTH_WAITING_FRACTION == 1 / 1000

    def test_what_the_catalogue_knows_of_water_and_of_spot_prices(self) -> None:
        words = words_of(MONEY)
        found = Counter(
            (site.water_onsite_l_per_kwh is not None, site.water_offsite_l_per_kwh is not None)
            for site in map(catalog.site, catalog.names(Kind.SITES))
        )
        assert (
            f"Of the catalogue's {found.total()} sites, {found[False, True]} know the power stations alone, "
            f"{found[True, False]} the cooling alone, {found[True, True]} both and {found[False, False]} neither"
        ) in words
        assert "The catalogue has at most one spot price per accelerator" in words
        for name in catalog.names(Kind.RENTS):
            figures = catalog.figures(Kind.RENTS, name)
            assert sum(figure.quantity == "spot" for figure in figures) <= 1


def test_how_far_a_purchase_looks() -> None:
    words = words_of(ROOT / "docs" / "purchase.md")
    assert f"for each number of nodes is a candidate, {MOST_SIZES} sizes at most" in words
    assert WIDER == 10
    assert "`node_supply` is tried ten times as wide" in words


class TestExamples:
    def test_the_70b_run_takes_as_much_as_its_file_says(self) -> None:
        path = ROOT / "examples" / "llama-3.1-70b.yaml"
        words = words_of(path)
        assert "about 9e23 FLOP: some 0.6 million hours of an H100 at 40 % of its peak" in words
        assert "a third of the arithmetic" in words
        job = load_job(path)
        flop = job.workload.tokens * job.workload.model.model_flop_per_token(job.workload.sequence_length)
        assert flop == pytest.approx(9e23, rel=0.06)
        h100, _, a100 = (offer.accelerator.peak_flop_per_s(Precision.BF16) or 0.0 for offer in job.offers)
        assert flop / (0.4 * h100) / 3600 == pytest.approx(0.6e6, rel=0.1)
        assert a100 / h100 == pytest.approx(1 / 3, rel=0.06)

    def test_the_405b_run_takes_as_much_as_its_file_says(self) -> None:
        path = ROOT / "examples" / "llama-3.1-405b.yaml"
        words = words_of(path)
        assert "about 3.9e25 FLOP: 27 million GPU-hours at 400 TFLOP/s, or 70 days of 16,384 GPUs" in words
        assert "leaves about 20 days for everything that goes wrong" in words
        job = load_job(path)
        flop = job.workload.tokens * job.workload.model.model_flop_per_token(job.workload.sequence_length)
        assert flop == pytest.approx(3.9e25, rel=0.02)
        hours = flop / 400e12 / 3600
        assert hours == pytest.approx(27e6, rel=0.02)
        days = hours / 16_384 / 24
        assert days == pytest.approx(70, abs=1.5)
        assert job.limits.deadline_days == pytest.approx(days + 20, abs=1.5)

    def test_a_quarter_of_the_price_of_bought_nodes_belongs_to_the_year_of_the_fleet(self) -> None:
        path = ROOT / "examples" / "fleet.yaml"
        words = words_of(path)
        assert "only a quarter of their price belongs to it" in words
        fleet = load_fleet(path)
        assert fleet.horizon_days / 365 / float(str(fleet.ownership["lifetime_years"])) == 0.25
        assert f"one room with {fleet.limits.power_w / 1e3:g} kW" in words if fleet.limits.power_w else False
        assert (len(fleet.jobs), len(fleet.offers)) == (4, 2)
        assert "Four runs, two kinds of GPUs" in words
