"""How likely are several nodes in repair at once?"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from simulator.run.losses import probability_in_repair


@pytest.mark.parametrize("num_nodes", [0, 1, 3, 4, 5, 9])
def test_nodes_that_failed_alone_and_whole_domains_add_up(num_nodes: int) -> None:
    alone, domains, size = 1.5, 0.7, 4
    singles, counts = np.meshgrid(np.arange(60), np.arange(60))
    both = poisson.pmf(singles, alone) * poisson.pmf(counts, domains)
    found = probability_in_repair(*(np.array([float(one)]) for one in (num_nodes, alone, domains, size)))
    assert found == pytest.approx(both[singles + size * counts >= num_nodes].sum(), rel=1e-12)


def test_no_nodes_are_always_in_repair_beside_a_design_of_many() -> None:
    found = probability_in_repair(np.array([0.0, 6.0]), np.full(2, 1.5), np.full(2, 0.7), np.full(2, 4.0))
    assert found[0] == 1.0
    assert found[1] < 1.0
