"""Which designs do the straggler tests use? One row of `StragglerDesigns`, given by its layout."""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import Schedule
from simulator.stragglers.slowdown import StragglerDesigns


def design_of(
    *,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    replicas: int = 1,
    ranks: int = 1,
    stages: int = 1,
    chunks: int = 1,
    micro_batches: int = 8,
    gpus_per_node: int = 8,
    slowest: float = 1.0,
    compute: float = 1.0,
    rest: float = 0.0,
) -> StragglerDesigns:
    """Returns a design with cycles of one second; its step is its 1F1B pipeline plus a share `rest` of that."""
    pipeline_s = stages / chunks + (micro_batches - 1 / chunks) * slowest
    counts = {
        "schedule": schedule.code,
        "num_replicas": replicas,
        "ranks_per_stage": ranks,
        "num_stages": stages,
        "num_chunks_per_stage": chunks,
        "num_micro_batches": micro_batches,
        "group_size": stages,
        "gpus_per_node": gpus_per_node,
    }
    numbers = {
        "cycle_s": 1.0,
        "slowest_cycle_factor": slowest,
        "compute_fraction": compute,
        "forward_fraction": 1.0 / 3.0,
        "step_time_s": pipeline_s * (1.0 + rest),
    }
    return StragglerDesigns(
        **{name: np.array([count]) for name, count in counts.items()},
        **{name: np.array([number]) for name, number in numbers.items()},
    )
