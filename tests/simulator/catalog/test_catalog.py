"""Do the catalogue's figures agree with data sheets, meters and papers, and has each of them a source?"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator import catalog
from simulator.catalog import Confidence, Figure, Kind, files, rents
from simulator.errors import CatalogError

SOURCES_PAGE = Path(__file__).parents[3] / "docs" / "catalog-sources.md"
ACCELERATORS = catalog.names(Kind.ACCELERATORS)
ENTRIES = [(kind, name) for kind in Kind for name in catalog.names(kind)]

# Dense peaks that publishers of measured training runs divide by for their utilisation, TFLOP/s.
PUBLISHED_PEAKS = {
    "v100-sxm2-32gb": (125, None),
    "a100-sxm4-40gb": (312, None),
    "a100-sxm4-80gb": (312, None),
    "h100-sxm5-80gb": (989.4, 1978.9),
    "h200-sxm-141gb": (989.4, 1978.9),
    "h800-sxm5-80gb": (989.4, 1978.9),
    "b200-sxm-180gb": (2250, 4500),
    "b300": (2250, 4500),
    "gb200": (2450, 4900),
    "gb300": (2450, 4900),
    "vr200": (4000, 17500),
    "mi300x": (1307, 2615),
    "mi325x": (1307, 2615),
    "mi350x": (2307, 4614),
    "mi355x": (2517, 5033),
    "mi455x": (5000, 10000),
    "gaudi2": (432, 865),
    "tpu-v4": (275, 275),
    "tpu-v5e": (197, 393),
    "tpu-v5p": (459, 918),
    "tpu-v6e": (918, 1836),
    "tpu-v7": (2307, 4614),
    "trainium1": (190, 190),
    "trainium2": (667, 1299),
    "trainium3": (671, 2517),
    "ascend-910c": (752, None),
}


@pytest.mark.parametrize("name", PUBLISHED_PEAKS)
def test_peaks_are_the_dense_ones_of_the_data_sheets(name: str) -> None:
    chip = catalog.accelerator(name)
    bf16, fp8 = PUBLISHED_PEAKS[name]
    # 2.1 %: GB200 is quoted as 2450 and 2500, MI355X as 2500 and 2517; a sparse peak would be 100 % off
    assert chip.bf16_flop_per_s == pytest.approx(bf16 * 1e12, rel=0.021)
    assert chip.fp8_flop_per_s == (None if fp8 is None else pytest.approx(fp8 * 1e12, rel=0.021))


def test_h100_has_the_figures_of_its_data_sheet_in_si_units() -> None:
    chip = catalog.accelerator("h100-sxm5-80gb")
    assert chip.memory_bytes == 80 * 2**30
    assert chip.memory_bytes_per_s == 3.35e12
    assert chip.scale_up_bytes_per_s == 450e9  # data sheet: 900 GB/s both ways
    assert chip.thermal_design_power_w == 700
    assert chip.embodied_kgco2e == pytest.approx(1312 / 8)  # NVIDIA's product carbon footprint of eight


@pytest.mark.parametrize(("name", "mib"), [("b300", 275_040), ("gb200", 189_471), ("gb300", 284_208)])
def test_blackwells_have_the_memory_that_their_drivers_report(name: str, mib: int) -> None:
    assert catalog.accelerator(name).memory_bytes == pytest.approx(mib * 2**20, rel=3e-4)  # a tenth of a GiB


def test_a_b300_has_the_gigabytes_of_its_name() -> None:
    assert catalog.accelerator("b300").memory_bytes == pytest.approx(288e9, rel=0.002)


def test_links_of_both_trainiums_are_halves_of_what_one_row_of_aws_lists() -> None:
    # AWS Neuron documentation, GB/s per chip, both ways: Trainium 384, Trainium2 1280
    assert catalog.accelerator("trainium1").scale_up_bytes_per_s == 384e9 / 2
    assert catalog.accelerator("trainium2").scale_up_bytes_per_s == 1280e9 / 2
    assert catalog.accelerator("trainium1-core").scale_up_bytes_per_s == 384e9 / 4


@pytest.mark.parametrize(
    ("name", "both_ways_gb", "network_gbit"),
    [("tpu-v5p", 1200, 50), ("tpu-v6e", 800, 100), ("tpu-v7", 1200, 100)],
)
def test_tpus_have_the_links_and_network_per_chip_of_googles_table(
    name: str, both_ways_gb: float, network_gbit: float
) -> None:
    assert catalog.accelerator(name).scale_up_bytes_per_s == both_ways_gb * 1e9 / 2
    assert catalog.default_node(name).network_bytes_per_s_per_accelerator == network_gbit * 1e9 / 8


def test_network_bandwidth_is_in_bytes_although_its_source_counts_bits() -> None:
    assert catalog.node("dgx-a100-640").network_bytes_per_s == 200e9  # 8 x 200 Gbit/s
    assert catalog.node("bloom-node").network_bytes_per_s == 50e9  # 4 x 100 Gbit/s


@pytest.mark.parametrize("name", ACCELERATORS)
def test_measured_products_stay_below_the_peak(name: str) -> None:
    chip = catalog.accelerator(name)
    if chip.measured_bf16_flop_per_s is not None:
        # the lowest published share is MI300X with 668 of 1307
        assert 0.5 < chip.measured_bf16_flop_per_s / chip.bf16_flop_per_s < 1.0
    assert chip.idle_power_w < 0.5 * chip.thermal_design_power_w


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_accelerator_has_a_node_and_a_fabric(name: str) -> None:
    assert catalog.default_node(name).accelerator == name
    assert catalog.default_fabric(name).kind in catalog.names(Kind.FABRICS)


def test_accelerators_of_at_least_twenty_kinds_are_there() -> None:
    expected = {"a100-pcie-80gb", "h100-pcie-80gb", "mi250x", "gaudi3", *PUBLISHED_PEAKS}
    assert expected <= set(ACCELERATORS)


def test_cards_are_those_that_their_makers_sell_for_a_slot_of_pcie() -> None:
    cards = {name for name in ACCELERATORS if catalog.is_pcie_card(name)}
    volta = {"v100-pcie-16gb", "v100-pcie-32gb", "v100s-pcie-32gb"}
    ampere_and_ada = {"a100-pcie-40gb", "a100-pcie-80gb", "l40s-pcie-48gb"}
    hopper = {"h100-pcie-80gb", "h100-nvl-94gb", "h800-pcie-80gb", "h200-nvl-141gb"}
    assert cards == volta | ampere_and_ada | hopper


def test_rack_scale_systems_have_link_domains_larger_than_a_node() -> None:
    rack = catalog.default_node("gb200")
    assert (rack.num_accelerators, rack.link_domain_size) == (4, 72)
    assert catalog.default_node("tpu-v5e").link_domain_size == 256  # chips of a v5e pod
    assert catalog.default_node("trainium3").link_domain_size == 144
    assert catalog.default_node("ascend-910c").link_domain_size == 384
    assert catalog.default_node("h100-sxm5-80gb").link_domain_size == 8


@pytest.mark.parametrize(
    ("node_name", "metered_w"),
    [
        # mean AC power of a node in training blocks, MLPerf Training v4.0 (512 H100) and v5.0 (8 B200)
        ("hgx-h100-immersion", 6910.0),
        ("hgx-b200-liquid", 9580.0),
    ],
)
def test_node_power_at_full_load_matches_the_power_meters(node_name: str, metered_w: float) -> None:
    node = catalog.node(node_name)
    chip = catalog.accelerator(node.accelerator)
    gpus_w = node.num_accelerators * 0.96 * chip.thermal_design_power_w
    drawn_w = (gpus_w + node.host_power_w) / node.power_supply_efficiency_fraction + node.fan_power_w
    assert drawn_w == pytest.approx(metered_w, rel=0.02)  # the spread between nodes of one run is 3 %


@pytest.mark.parametrize(
    ("node_name", "chip_w", "mean_w"),
    [
        ("tpu-v3-host", 220, 4 * 283),  # Patterson et al. 2021: per chip with its share of the system
        ("tpu-v4-host", 170, 4 * 1.78 * 170),  # Google's life-cycle study: machine over chip power
        ("tpu-v6e-host", 153, 2173),  # the same: a machine of eight chips
    ],
)
def test_tpu_machines_draw_their_mean_power_at_the_chips_mean(
    node_name: str, chip_w: float, mean_w: float
) -> None:
    node = catalog.node(node_name)
    parts_w = node.num_accelerators * chip_w + node.host_power_w
    drawn_w = parts_w / node.power_supply_efficiency_fraction + node.fan_power_w
    assert drawn_w == pytest.approx(mean_w, rel=0.001)


@pytest.mark.parametrize(
    ("node_name", "all_w"),
    # what press and analysts report of a rack of VR200 set for speed, and of all 16 racks of CloudMatrix384
    [("vr200-nvl72", 230e3), ("cloudmatrix-384", 559e3)],
)
def test_rack_scale_systems_draw_what_is_reported_of_them(node_name: str, all_w: float) -> None:
    node = catalog.node(node_name)
    chip = catalog.accelerator(node.accelerator)
    num_nodes = node.link_domain_size // node.num_accelerators
    parts_w = node.num_accelerators * chip.thermal_design_power_w + node.host_power_w
    drawn_w = num_nodes * (parts_w / node.power_supply_efficiency_fraction + node.fan_power_w)
    assert drawn_w == pytest.approx(all_w, rel=0.005)


def test_derived_embodied_carbon_comes_near_a_published_footprint_of_the_same_silicon() -> None:
    derived = catalog.accelerator("gb200").embodied_kgco2e
    published = 2274 / 8  # NVIDIA's product carbon footprint of HGX B200
    assert derived == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(
    ("name", "compute_kg", "hbm_gb"),
    [("mi300x", 25.7, 192), ("mi325x", 25.7, 256), ("mi350x", 29.3, 288), ("mi355x", 29.3, 288)],
)
def test_derived_embodied_carbon_counts_the_dies_beneath_the_compute_dies(
    name: str, compute_kg: float, hbm_gb: float
) -> None:
    # 1,480 mm2 of IO dies, in the process of MI250X, whose 1,448 mm2 ACT counts at 33.7 kg; 0.86 kg/GB and 73 kg as everywhere
    parts_kg = compute_kg + 33.7 * 1480 / 1448 + 0.86 * hbm_gb + 73
    assert catalog.accelerator(name).embodied_kgco2e == pytest.approx(parts_kg, abs=0.6)


def test_jean_zay_reproduces_the_carbon_that_was_reported_for_bloom() -> None:
    reported_kwh, reported_kgco2e = 433_196, 24_690  # Luccioni et al. 2022: dynamic power
    site = catalog.site("jean-zay")
    assert site.grid_kgco2e_per_kwh * reported_kwh == pytest.approx(reported_kgco2e, rel=0.001)
    assert site.power_usage_effectiveness == 1.2


def test_grids_are_ordered_as_everybody_knows() -> None:
    grids = [catalog.site(name).grid_kgco2e_per_kwh for name in ("norway", "france", "germany", "poland")]
    assert grids == sorted(grids)
    assert catalog.site("world").grid_kgco2e_per_kwh == pytest.approx(0.458, abs=0.001)  # Ember, 2025


@pytest.mark.parametrize(
    "name", ["us-iowa", "us-virginia", "european-union", "gcp-us-central1", "aws-eu-west-1", "azure-eastus"]
)
def test_sites_of_every_kind_have_a_price_and_a_power_usage_effectiveness(name: str) -> None:
    site = catalog.site(name)
    assert 0.02 < site.electricity_usd_per_kwh < 0.4
    assert 1.05 < site.power_usage_effectiveness < 1.6


def test_a_fabric_is_what_its_switch_is() -> None:
    fabric = catalog.fabric("infiniband-ndr")  # NVIDIA QM9700: 64 ports, 747 W typical
    assert (fabric.kind, fabric.switch_ports, fabric.switch_power_w) == ("infiniband-ndr", 64, 747)
    assert fabric.oversubscription == 1.0


def _published(name: str, quantity: str) -> float | None:
    values = {figure.quantity: figure.value for figure in catalog.figures(Kind.MODELS, name)}
    return float(values[quantity]) if quantity in values else None


def _tolerance(quantity: str, published: float) -> float:
    """1 %, or 3 % for counts that are published with two digits; half a digit for active ones that have only one (A3B)."""
    if "active" in quantity and float(f"{published:.0e}") == published:
        return 0.5 * 10.0 ** math.floor(math.log10(published)) / published
    return 0.03 if float(f"{published:.1e}") == published else 0.01


@pytest.mark.parametrize("name", catalog.names(Kind.MODELS))
def test_shapes_have_the_published_number_of_parameters(name: str) -> None:
    shape = catalog.model(name)
    counts = {
        "published_parameters": shape.num_parameters,
        "published_parameters_with_vision": catalog.model(name, has_vision=True).num_parameters,
        "published_active_parameters": shape.num_active_parameters,
        "published_active_parameters_without_embedding": shape.num_active_parameters
        - shape.embedding_parameters,
        "published_active_parameters_without_embedding_and_output": shape.num_active_parameters
        - shape.embedding_parameters
        - shape.output_parameters,
    }
    published = {quantity: _published(name, quantity) for quantity in counts}
    assert published["published_parameters"] or published["published_parameters_with_vision"]
    for quantity, value in published.items():
        if value is not None:
            assert counts[quantity] == pytest.approx(value, rel=_tolerance(quantity, value)), quantity


@pytest.mark.parametrize("name", catalog.names(Kind.MODELS))
def test_counts_of_a_model_are_numbers_and_what_was_counted_here_says_so(name: str) -> None:
    figures = {figure.quantity: figure for figure in catalog.figures(Kind.MODELS, name)}
    counts = [quantity for quantity in figures if quantity.endswith("parameters")]
    assert {(type(figures[quantity].value), figures[quantity].unit) for quantity in counts} == {
        (float, "count")
    }
    for quantity in ("num_parameters", "num_active_parameters"):
        assert figures[quantity].source == "DERIVED: counted from the shape"


def test_a_choice_of_a_model_is_text() -> None:
    (norms,) = (f for f in catalog.figures(Kind.MODELS, "qwen3-8b") if f.quantity == "qk_norm")
    assert (norms.value, norms.unit) == ("per_head", "text")


def test_heads_of_linear_attention_are_told_from_those_that_attend() -> None:
    found = {figure.quantity: figure.value for figure in catalog.figures(Kind.MODELS, "qwen3-next-80b-a3b")}
    assert (found["num_heads"], found["linear_num_heads"]) == (16, 32)
    assert (found["linear_kind"], found["linear_num_blocks"]) == ("gated-delta-net", 36)


def test_heads_of_an_indexer_are_told_from_those_that_attend() -> None:
    found = {figure.quantity: figure.value for figure in catalog.figures(Kind.MODELS, "glm-5.2")}
    assert (found["num_heads"], found["indexer_num_heads"]) == (64, 32)
    assert (found["indexer_chosen_tokens"], found["indexer_layer_step"]) == (2048, 4)


@pytest.mark.parametrize(
    (
        "name",
        "num_indexers",
        "hidden",
        "heads",
        "query_rank",
        "head_dims",
        "ffn",
        "vocabulary",
        "indexer_heads",
    ),
    [
        # Configuration classes of transformers, whose defaults are DeepSeek-V3.2 and GLM-5; dimensions of heads: without
        # positions, and of values.
        ("deepseek-v3.2", 61, 7168, 128, 1536, (128, 128), 18_432, 129_280, 64),
        ("glm-5", 78, 6144, 64, 2048, (192, 256), 12_288, 154_880, 32),
        ("glm-5.2", 21, 6144, 64, 2048, (192, 256), 12_288, 154_880, 32),  # layers 0, 1, 2, 6, 10, ..., 74
    ],
)
def test_models_that_attend_to_chosen_tokens_have_the_weights_of_their_tensors(
    name: str,
    num_indexers: int,
    hidden: int,
    heads: int,
    query_rank: int,
    head_dims: tuple[int, int],
    ffn: int,
    vocabulary: int,
    indexer_heads: int,
) -> None:
    """A shape leaves out norms of latents, corrections of routers, and modules of multi-token prediction."""
    shape, (nope, values) = catalog.model(name), head_dims
    queries = hidden * query_rank + query_rank * heads * (nope + 64)
    keys_and_values = hidden * (512 + 64) + 512 * heads * (nope + values)
    attention = (
        queries + keys_and_values + heads * values * hidden + 2 * hidden
    )  # and the norms of both blocks
    indexer = query_rank * indexer_heads * 128 + hidden * (128 + indexer_heads) + 2 * 128
    routed = hidden * 256 + 257 * 3 * hidden * 2048  # the router, 256 experts and a shared one
    blocks = shape.num_layers * attention + num_indexers * indexer + 3 * 3 * hidden * ffn
    ends = 2 * vocabulary * hidden + hidden
    assert shape.num_parameters == blocks + (shape.num_layers - 3) * routed + ends


def test_every_mixture_of_experts_has_a_published_active_count() -> None:
    for name in catalog.names(Kind.MODELS):
        if catalog.model(name).experts:
            active = [
                _published(name, f"published_active_parameters{end}")
                for end in ("", "_without_embedding", "_without_embedding_and_output")
            ]
            assert any(active), name


@pytest.mark.parametrize("kind", Kind)
def test_every_figure_has_a_known_unit_a_date_and_documented_sources(kind: Kind) -> None:
    known = _documented_keys()
    for name in catalog.names(kind):
        for figure in catalog.figures(kind, name):
            assert figure.unit == files.TEXT_UNIT or figure.unit in files.SI_PER_UNIT, name
            assert {part.partition(":")[0] for part in figure.source.split("; ")} <= known, name
            assert re.fullmatch(r"(\d{4}(-\d\d(-\d\d)?|-H[12])?)?", figure.date), name


def _documented_keys() -> set[str]:
    rows = re.findall(r"^\| ([A-Z0-9-]+(?:, [A-Z0-9-]+)*) \|", SOURCES_PAGE.read_text("utf-8"), re.MULTILINE)
    return {key for row in rows for key in row.split(", ")}


def test_every_documented_source_is_cited_somewhere() -> None:
    cited = " ".join(figure.source for kind, name in ENTRIES for figure in catalog.figures(kind, name))
    unused = {key for key in _documented_keys() if not re.search(rf"\b{key}\b", cited)}
    assert unused == {"DISCOUNTS"}  # cited by simulator.catalog.rents


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.RENTS])
def test_no_quantity_stands_twice_in_an_entry(kind: Kind) -> None:
    for name in catalog.names(kind):
        counts = Counter(figure.quantity for figure in catalog.figures(kind, name))
        assert set(counts.values()) == {1}, name


def test_derived_and_remembered_figures_are_marked_as_estimates() -> None:
    for kind, name in ENTRIES:
        for figure in catalog.figures(kind, name):
            if kind is not Kind.MODELS and figure.source.startswith(("DERIVED", "MEMORY")):
                assert figure.confidence in (Confidence.ESTIMATE, Confidence.PARTIAL), figure


@pytest.mark.parametrize(
    ("look_up", "wrong", "message"),
    [
        (catalog.accelerator, "h100", "accelerator = h100: .* nearest: h100-sxm5-80gb"),
        (catalog.accelerator, "H100_SXM5_80GB", "nearest: h100-sxm5-80gb"),
        (catalog.node, "dgx-h101", "node = dgx-h101: .* nearest: dgx-h100"),
        (catalog.default_node, "tpu", "accelerator = tpu: .* nearest: tpu-v3, tpu-v4"),
        (catalog.fabric, "infiniband", "fabric = infiniband: .* nearest: infiniband-edr"),
        (catalog.default_fabric, "a100", "nearest: a100-sxm4-40gb"),
        (catalog.model, "llama-3.1-70", "model = llama-3.1-70: .* nearest: llama-3.1-70b"),
        # Names are in lower case and have hyphens; what an entry is part of counts, too.
        (catalog.accelerator, "H100", "nearest: h100-sxm5-80gb"),
        (catalog.accelerator, "A100 SXM4", "nearest: a100-sxm4-40gb, a100-sxm4-64gb, a100-sxm4-80gb, h100"),
        (catalog.accelerator, "tpu-v4-of-our-own-hall", "nearest: tpu-v4;"),
        (catalog.site, "iowa", "region = iowa: .* nearest: us-iowa"),
        (catalog.rent, "b200", "nearest: b200-sxm-180gb"),
        (catalog.site, "", "`capplan catalog sites` lists all"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_ones(
    look_up: Callable[[str], object], wrong: str, message: str
) -> None:
    with pytest.raises(CatalogError, match=message):
        look_up(wrong)


def test_an_unknown_name_is_reported_where_the_user_wrote_it() -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.accelerator("h100", path="offers[2].accelerator")
    assert [problem.path for problem in caught.value.problems] == ["offers[2].accelerator"]


def test_rent_is_the_spread_over_each_vendors_cheapest_price() -> None:
    # newest prices by vendor on rents.csv: 2.45 Cudo, 2.94 Oblivus, 2.95 Nebius, 2.99 RunPod, 3.29 Lambda,
    # 3.95 CR8DL, 4.86 Google (three years), 6.88 AWS, 10.00 Oracle; percentiles of nine values by hand
    estimate, source = catalog.rent("h100-sxm5-80gb")
    assert estimate.mid == pytest.approx(3.29)
    assert estimate.low == pytest.approx(2.45 + 0.4 * (2.94 - 2.45), abs=0.006)
    assert estimate.high == pytest.approx(6.88 + 0.6 * (10.00 - 6.88), abs=0.006)
    assert source.startswith("11 prices of Amazon Web Services, CR8DL")
    assert "EPOCH-PRICE" in source


def test_rent_with_one_quote_is_lowered_by_the_discount_of_a_commitment() -> None:
    estimate, source = catalog.rent("gb200")  # Oracle's list price of 16.00, July 2026
    assert (estimate.mid, estimate.high) == (16.0, 16.0)
    assert estimate.low == pytest.approx(16.0 * 0.44)
    assert source == "1 price of Oracle; 2026-07; OCI-PRICE"


def test_rent_of_one_vendor_with_commitments_spans_them() -> None:
    estimate, _ = catalog.rent("tpu-v4")  # Google, March 2025: 3.22 on demand, 2.03 and 1.45 committed
    assert (estimate.low, estimate.mid, estimate.high) == (1.45, 3.22, 3.22)


def test_rents_stand_with_the_card_of_their_memory() -> None:
    # Lambda's PCIe A100 has 40 GB, and the V100 of Lambda and Oracle 16 GB
    assert "Lambda" in catalog.rent("a100-pcie-40gb")[1]
    assert "Lambda" not in catalog.rent("a100-pcie-80gb")[1]
    assert catalog.vendor_rents("v100-sxm2-16gb") == {"Lambda": 0.79, "Oracle": 2.95}
    with pytest.raises(CatalogError, match="v100-sxm2-32gb has no known rent"):
        catalog.rent("v100-sxm2-32gb")


def test_rent_leaves_out_spot_prices_and_models_of_analysts() -> None:
    quantities = {figure.quantity for figure in catalog.figures(Kind.RENTS, "h100-sxm5-80gb")}
    assert {"spot", "reference_rental"} <= quantities
    assert catalog.rent("h100-sxm5-80gb")[0].low > 1.25  # the spot price


def test_the_price_of_a_year_of_tpu_v6e_is_no_spot_price() -> None:
    # Google, March 2025: 1.89 USD with one year's commitment in the eastern US, which a later list names spot
    figures = catalog.figures(Kind.RENTS, "tpu-v6e")
    assert {figure.quantity for figure in figures if figure.value == 1.89} == {"reserved_1y"}


def test_an_accelerator_without_a_price_says_what_to_give() -> None:
    with pytest.raises(CatalogError, match="gaudi2 has no known rent; give rent_usd_per_gpu_hour"):
        catalog.rent("gaudi2")


def test_dates_of_years_months_and_days_can_be_compared() -> None:
    assert [rents.year_of(date) for date in ("2025-01", "2025", "2026-07-31")] == [2025.0, 2025.5, 2026.5]


def test_the_hash_is_stable_and_changes_with_any_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = Path(str(files.data_folder()))
    copy = shutil.copytree(original, tmp_path / "data")
    monkeypatch.setattr(files, "data_folder", lambda: copy)
    assert files.catalog_hash.__wrapped__() == catalog.catalog_hash()
    assert re.fullmatch(r"[0-9a-f]{16}", catalog.catalog_hash())
    for path in sorted(copy.iterdir()):
        before = files.catalog_hash.__wrapped__()
        path.write_bytes(path.read_bytes() + b"\n")
        assert files.catalog_hash.__wrapped__() != before, path.name


def test_importing_the_catalogue_reads_nothing_and_loads_no_heavy_library() -> None:
    program = (
        "import sys, simulator.catalog as c; "
        "assert not {'yaml', 'pandas', 'pyarrow', 'mlflow', 'scipy'} & set(sys.modules); "
        "assert c.files.entries.cache_info().currsize == 0"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)


def test_figures_show_the_unit_of_the_source_and_convert_once() -> None:
    figures = {figure.quantity: figure for figure in catalog.figures(Kind.NODES, "dgx-h100")}
    network = figures["network_bandwidth"]
    assert isinstance(network, Figure)
    assert (network.value, network.unit, network.si_value) == (3200, "Gbit/s", 400e9)
    assert figures["name"].si_value == "DGX H100"
