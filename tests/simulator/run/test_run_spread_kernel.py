"""Is the sum over numbers of delays, which leaves out what matters little, the one that leaves out nothing?"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from simulator.run import spread_kernel
from simulator.run.spread_kernel import Memory, RunSpread, exceedances, quantiles
from simulator.run.strata import strata_of
from simulator.table import Floats

NUM_RUNS = 100


def random_runs() -> RunSpread:
    """Runs with 0.01 to 300 delays of minutes to days, some of which bring others about, and more or less of stragglers."""
    draw = np.random.default_rng(1)

    def between(least: float, most: float) -> Floats:
        return np.exp(draw.uniform(np.log(least), np.log(most), NUM_RUNS))

    strata, near = strata_of(-4.0, 1.0), draw.uniform(size=NUM_RUNS)
    mean_s = np.stack([between(60.0, 7_200.0), between(300.0, 86_400.0)], axis=1)
    variance_s2 = (draw.uniform(0.05, 1.2, (NUM_RUNS, 2)) * mean_s) ** 2
    slope = np.where(draw.uniform(size=NUM_RUNS) < 0.5, between(0.01, 1.0), 1e-4)
    mean = 1.0 + slope * float(strata.weights @ strata.means)
    return RunSpread(
        calm_s=between(18_000.0, 1e7),
        num_calm=between(0.01, 300.0),
        growth=between(1.0, 3.0),
        share=np.stack([near, 1.0 - near], axis=1),
        mean_s=mean_s,
        variance_s2=variance_s2,
        third_s3=draw.uniform(0.0, 3.0, (NUM_RUNS, 2)) * variance_s2**1.5,
        row=np.zeros(NUM_RUNS, dtype=np.int64),
        base=1.0 / mean,
        slope=slope / mean,
        weights=strata.weights,
        means=strata.means[None],
        deviations=strata.deviations[None],
    )


@pytest.mark.short(1)
@pytest.mark.parametrize("risk", [0.5, 0.05, 1e-3, 1e-5])
def test_what_is_left_out_matters_little(risk: float, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, late_s, told, whole = random_runs(), *(np.empty(NUM_RUNS) for _ in range(3))
    quantiles(runs, risk, ndtri(1.0 - risk), np.full(NUM_RUNS, 1.1), Memory.empty(), late_s)
    exceedances(runs, late_s, Memory.empty(), told)
    # As Python, the kernel reads what is set here: no delays are slight, and no tails too far to be worked out.
    monkeypatch.setattr(spread_kernel, "_SLIGHT", 0.0)
    monkeypatch.setattr(spread_kernel, "_FARTHEST", 1e3)
    exceedances.py_func(runs, late_s, Memory.empty(), whole)  # type: ignore[attr-defined]
    assert told == pytest.approx(whole, rel=2e-3)
    assert np.abs(told / whole - 1.0).max() > 1e-10, "some runs have something left out"
