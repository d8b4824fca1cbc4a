from __future__ import annotations

import numpy as np

from simulator.run.interruptions import destroyed_nodes_within
from tests.support import job_with, plans_with


def test_hardware_that_never_fails_is_not_destroyed_by_a_run_without_end() -> None:
    job = job_with(reliability={"preset": "harsh", "process_fault_fraction": 1.0})
    plans = plans_with({"num_gpus": 16})
    assert destroyed_nodes_within(job, plans, np.array([np.inf])).tolist() == [0.0]
    failing = job_with(reliability={"preset": "harsh", "process_fault_fraction": 0.5})
    assert destroyed_nodes_within(failing, plans, np.array([np.inf])).tolist() == [np.inf]
