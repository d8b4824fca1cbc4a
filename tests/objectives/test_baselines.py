"""Are the equations of ACT, LLMCarbon and MLCO2 reproduced on their own published examples?"""

from __future__ import annotations

import numpy as np
import pytest

from objectives.baselines import (
    llmcarbon_cold_efficiency,
    llmcarbon_gpu_hours,
    mlco2_kgco2e,
    nameplate_energy_j,
)
from objectives.carbon import embodied_parts, operational_kgco2e
from objectives.usage import Usage
from simulator import catalog
from simulator.domain.embodied import Dies
from simulator.errors import InputError
from simulator.table import total
from tests.support import A100_RENTED, job_with, plans_with

MWH = 3.6e9

# LLMCarbon's own inputs (github.com/SotaroKaneda/MLCarbon, dbd96b7, data/database.csv): active parameters and tokens in
# billions, kg/kWh, PUE, W, peak TFLOP/s, efficiency, devices; and its prediction in tCO2e: the published tonnes of each run
# with the deviation that the paper prints (arXiv 2309.14393, the validation of the operational footprint).
FIVE_MODELS = {
    "T5": ((11, 600, 0.545, 1.12, 310, 123, 0.37, 512), 46.7, -0.0222),
    "GPT-3": ((175, 300, 0.429, 1.1, 330, 125, 0.197, 10_000), 552.1, 0.0032),
    "GShard": ((2.3, 1000, 0.177, 1.09, 288, 123, 0.39, 1000), 4.3, 0.038),
    "Switch": ((7.41, 2000, 0.33, 1.1, 245, 123, 0.28, 1000), 59.1, 0.082),
    "XLM": ((0.55, 7000, 0.413, 1.1, 342, 125, 0.212, 512), 39.0, -0.0354),
}


@pytest.mark.parametrize("name", FIVE_MODELS)
def test_llmcarbon_gives_its_own_predictions_when_given_its_inputs(name: str) -> None:
    (parameters, tokens, grid, pue, power_w, peak, efficiency, _), actual_t, deviation = FIVE_MODELS[name]
    hours = llmcarbon_gpu_hours(parameters * 1e9, tokens * 1e9, peak * 1e12, efficiency)
    predicted_t = mlco2_kgco2e(hours, power_w * pue, grid) / 1000
    assert predicted_t == pytest.approx(actual_t * (1 + deviation), rel=0.01)


@pytest.mark.parametrize(
    ("parameters", "tokens", "peak", "gpu_hours", "missed"),
    [
        (176.2e9, 366e9, 312e12, 1_082_990, -0.33),  # BLOOM
        (175e9, 300e9, 125e12, 3_552_000, -0.45),  # GPT-3 on V100
        (405.9e9, 15_600e9, 989e12, 30_840_000, -0.32),  # Llama 3.1 405B
    ],
)
def test_llmcarbon_without_measurements_of_the_run_misses_by_a_third(
    parameters: float, tokens: float, peak: float, gpu_hours: float, missed: float
) -> None:
    hours = 6 * parameters * tokens / (peak * llmcarbon_cold_efficiency(parameters, peak)) / 3600
    assert hours / gpu_hours - 1 == pytest.approx(missed, abs=0.01)


@pytest.mark.parametrize(
    ("parameters", "spans_nodes", "tflop_per_s"),
    [
        (1.7e9, False, 137),
        (7.5e9, False, 142),
        (18.4e9, False, 135),
        (39.1e9, True, 138),
        (145.6e9, True, 148),
        (1008.0e9, True, 163),
    ],
)
def test_llmcarbons_regression_is_near_the_runs_that_it_is_over(
    parameters: float, spans_nodes: bool, tflop_per_s: float
) -> None:
    # TFLOP/s of an A100, arXiv 2104.04473, Table 1.
    found = llmcarbon_cold_efficiency(parameters, 312e12, spans_nodes=spans_nodes) * 312
    assert found == pytest.approx(tflop_per_s, rel=0.03)


@pytest.mark.parametrize(("parameters", "spans_nodes"), [(20e9, False), (70e9, False), (1.1e12, True)])
def test_beyond_those_runs_it_says_nothing(parameters: float, spans_nodes: bool) -> None:
    with pytest.raises(
        InputError, match=r"num_parameters = .*: must be at most .*, the largest run that LLMCarbon"
    ):
        llmcarbon_cold_efficiency(parameters, 312e12, spans_nodes=spans_nodes)


# Energies that are GPU-hours times rated power, and so arithmetic: BLOOM (arXiv 2211.02001); Llama 2, 3 and 3.1, of which
# hours and watts are published (model cards; arXiv 2307.09288, table 2); OPT (arXiv 2205.01068), whose hours are 992 GPUs x
# 34 days. None of them is a measurement.
CIRCULAR = {
    "BLOOM": (1_082_990, 400, 433.196),
    "Llama 2 7B": (184_320, 400, 73.7),
    "Llama 2 13B": (368_640, 400, 147.5),
    "Llama 2 34B": (1_038_336, 350, 363.4),
    "Llama 2 70B": (1_720_320, 400, 688.1),
    "Llama 3 8B": (1.3e6, 700, 910),
    "Llama 3 70B": (6.4e6, 700, 4480),
    "Llama 3.1 8B": (1.46e6, 700, 1022),
    "Llama 3.1 70B": (7.0e6, 700, 4900),
    "Llama 3.1 405B": (30.84e6, 700, 21_588),
    "OPT 175B": (992 * 34 * 24, 400, 324),
}


@pytest.mark.parametrize("name", CIRCULAR)
def test_circular_energies_are_nameplate_arithmetic(name: str) -> None:
    gpu_hours, rated_w, told_mwh = CIRCULAR[name]
    assert nameplate_energy_j(gpu_hours, rated_w) / MWH == pytest.approx(told_mwh, rel=1e-3)


def test_llama_65b_has_its_pue_in_the_arithmetic() -> None:
    # arXiv 2302.13971: 1,022,362 hours of an A100 at 400 W and a PUE of 1.1 are 449 MWh.
    assert nameplate_energy_j(1_022_362, 400, 1.1) / MWH == pytest.approx(449, rel=2e-3)


def test_gpt_3_multiplies_hours_that_were_computed_back_with_a_mean_power() -> None:
    # arXiv 2104.10350, table 4: 10,000 V100 for 14.8 days at 330 W a GPU with its system, and a PUE of 1.1: 1,287 MWh.
    assert nameplate_energy_j(10_000 * 14.8 * 24, 330, 1.1) / MWH == pytest.approx(1287, rel=2.5e-3)


def test_mlco2_counts_tdp_and_no_cooling() -> None:
    # BLOOM at 0.057 kg/kWh: 24.69 t (arXiv 2211.02001, dynamic part).
    assert mlco2_kgco2e(1_082_990, 400, 0.057) == pytest.approx(24_690, rel=1e-3)


def test_our_embodied_share_of_bloom_is_that_of_its_study() -> None:
    # arXiv 2211.02001: servers of 2,500 kg and GPUs of 150 kg, six years of which 85 % are used, 1,082,990 hours: 11.2 t.
    job = job_with(A100_RENTED, ownership={"lifetime_years": 6, "utilization_fraction": 0.85})
    (offer,) = job.offers
    made = {
        "accelerator": offer.accelerator.model_copy(update={"embodied_kgco2e": 150.0}),
        "node": offer.node.model_copy(update={"embodied_host_kgco2e": 2500.0}),
    }
    job = job.model_copy(update={"offers": (offer.model_copy(update=made),)})
    plans = plans_with({"num_gpus": 384})
    wall_s = np.array([1_082_990 * 3600 / 384])
    usage = Usage(wall_s=wall_s, energy_j=np.zeros(1), peak_power_w=np.zeros(1))
    assert total(embodied_parts(job, plans, usage).values())[0] == pytest.approx(11_200, rel=5e-3)


class TestAct:
    """Examples of github.com/facebookresearch/ACT, abc9fbb, act/tests/model_unit_tests.py."""

    def test_logic_of_its_unit_test(self) -> None:
        # 145 mm2 in 10 nm, yield 0.943543, 95 % abatement, Taiwan's grid, and 150 g for the package.
        dies = Dies(
            logic_m2=145e-6,
            process="10nm",
            yield_fraction=0.943543,
            abatement_fraction=0.95,
            board_kgco2e=0.15,
        )
        assert dies.embodied_kgco2e == pytest.approx((1.475 * 0.583 + 0.24 + 0.5) * 1.45 / 0.943543 + 0.15)

    @pytest.mark.parametrize(
        ("process", "kgco2e_per_cm2"),
        # ACT run with its defaults: yield 0.875, 97 % abatement, Taiwan.
        [("28nm", 1.328), ("14nm", 1.557), ("10nm", 1.777), ("7nm", 2.318), ("5nm", 2.778), ("3nm", 3.163)],
    )
    def test_carbon_per_area_by_process(self, process: str, kgco2e_per_cm2: float) -> None:
        dies = Dies.model_validate({"logic_m2": 1e-4, "process": process})
        assert dies.kgco2e_per_m2 * 1e-4 == pytest.approx(kgco2e_per_cm2, abs=5e-4)

    def test_operation_of_its_unit_test(self) -> None:
        # 273 mW at 597 g/kWh and a duty of 0.723 for 3.5 years: 3.615 kg. By our own equation, which has no notion of a
        # duty, that is the energy of a run at the site's grid.
        used_s = 0.723 * 3.5 * 8766 * 3600
        site = {
            "region": "taiwan, as ACT has it",
            "grid_kgco2e_per_kwh": 0.597,
            "electricity_usd_per_kwh": 0.1,
            "power_usage_effectiveness": 1.0,
        }
        one = np.ones(1)
        usage = Usage(wall_s=used_s * one, energy_j=0.273 * used_s * one, peak_power_w=0.273 * one)
        operational = operational_kgco2e(job_with(site=site), plans_with({"num_gpus": 8}), usage)[0]
        assert operational == pytest.approx(3.615, abs=5e-4)


class TestChipsWithoutAFootprint:
    def test_the_rule_comes_near_the_footprint_that_nvidia_publishes(self) -> None:
        # HGX B200, ISO 14067: 2,274 kg for eight. Two dies of 800 mm2 in 4 nm, 180 GB of stacked memory.
        dies = Dies(logic_m2=1600e-6, process="5nm", memory_bytes=180e9)
        assert dies.embodied_kgco2e == pytest.approx(2274 / 8, rel=0.06)

    def test_an_accelerator_counts_its_dies_where_nobody_published_more(self) -> None:
        chip = catalog.accelerator("h100-sxm5-80gb")
        fields = chip.model_dump(exclude={"embodied_kgco2e"}, exclude_none=True)
        dies = {"logic_m2": 814e-6, "process": "5nm", "memory_bytes": 80e9}
        own = type(chip).model_validate({**fields, "dies": dies})
        assert own.embodied_kgco2e == Dies.model_validate(dies).embodied_kgco2e
        published = type(chip).model_validate({**fields, "dies": dies, "embodied_kgco2e": 164.0})
        assert published.embodied_kgco2e == 164.0

    def test_doubled_yield_halves_the_silicon(self) -> None:
        half, whole = (
            Dies(logic_m2=8e-4, process="7nm", yield_fraction=share, board_kgco2e=0) for share in (0.5, 1.0)
        )
        assert half.embodied_kgco2e == pytest.approx(2 * whole.embodied_kgco2e)
