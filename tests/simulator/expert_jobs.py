"""How long does the all-to-all of experts take in the tests, with no computation to hide it?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.traffic.expert_exchange import expert_exchange_s
from tests.simulator.builders import H100, rank_of

NOTHING = np.zeros(1)


def exchange_s(workload: Workload, plan: Plan, accelerator: str = H100) -> float:
    """Seconds of dispatch and combine in one direction, fully exposed."""
    return float(
        expert_exchange_s(
            rank_of(workload, plan, accelerator=accelerator), NOTHING, NOTHING, (NOTHING, NOTHING)
        )[0][0]
    )
