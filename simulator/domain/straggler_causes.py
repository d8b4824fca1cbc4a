"""What makes some ranks, micro-batches or hours slower than others, and by how much?

A fleet's stragglers are described in one of two ways. `StragglerPrior` is the distribution of slow-downs over published jobs,
for unknown causes. `Stragglers` names the causes; their cost then depends on the layout (`simulator.stragglers.slowdown`):

    duration of a forward or backward = its ideal duration
        x factor of the last stage x persistent factor of the rank (or of its slow host)
        x factor of the step x factor of the micro-batch

Only compute is slowed; traffic is not. The factor of a micro-batch is common to all stages and to both directions: in the
traces of ByteDance (arXiv 2505.05713), the residual of ln(duration) after stage, step and rank correlates between first and
last stage, and between forward and backward, by 0.9 in a job of 64 GPUs, 0.99 in one with long contexts, and 0.4 to 0.8 in one
of 8 GPUs (`simulator/data/straggler_noise.csv`). The data differs more than the rank.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from simulator.record import Record
from simulator.units import DAY

StragglerPreset = Literal["dedicated", "shared", "long_context", "untuned_pp"]


class StragglerPrior(Record):
    """Slow-down S of a job with unknown causes: S - 1 is lognormal over jobs.

    The defaults reproduce five statistics of 3,079 jobs of at least 128 GPUs within 8 % (arXiv 2505.05713).
    """

    log_mean: float = -2.5
    """Mean of ln(S - 1); a job's own field bounds its value, and uncertain inputs can move it beyond."""
    log_deviation: float = Field(default=1.0, ge=0)
    """Standard deviation of ln(S - 1)."""


class Stragglers(Record):
    """Causes of stragglers; by default there are none. A simulated step waits for the slowest of its accelerators anyhow."""

    stage_imbalance: float = Field(default=1.0, ge=1, le=10)
    """Factor on the compute of the last pipeline stage, relative to its simulated compute; no effect without stages."""
    rank_log_deviation: float = Field(default=0.0, ge=0, le=0.5)
    """Standard deviation of ln(speed) between ranks, the same in every step, that of their accelerators (1 %) included."""
    slow_host_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of nodes whose ranks are all slower."""
    slow_host_factor: float = Field(default=1.0, ge=1, le=10)
    """Factor on the compute of a slow node."""
    step_log_deviation: float = Field(default=0.0, ge=0, le=0.5)
    """Standard deviation of ln(duration) between steps, common to all ranks: nobody waits, and the mean loss is zero."""
    micro_batch_log_deviation: float = Field(default=0.0, ge=0, le=0.5)
    """Standard deviation of ln(duration) between micro-batches, each drawn anew."""
    has_uneven_sequences: bool = False
    """Micro-batches vary as in a traced job with 32K-token contexts (`straggler_sequence.csv`)."""
    gc_pause_s: float = Field(default=0.0, ge=0, le=600)
    """One pause of a rank for garbage collection."""
    gc_every_steps: float = Field(default=100.0, ge=1)
    """Steps of a rank between two of its pauses."""
    is_gc_synchronized: bool = False
    """All ranks pause in the same step."""
    episodes_per_node_day: float = Field(default=0.0, ge=0, le=1000)
    """Fail-slow episodes, such as congestion or throttling, that begin on a node in a day."""
    episode_s: float = Field(default=4320.0, gt=0, le=30 * DAY)
    """Mean duration of an episode (default 72 min: jobs of at least 512 GPUs in arXiv 2410.12588)."""
    episode_factor: float = Field(default=1.0, ge=1, le=100)
    """Factor on the step of the whole job while an episode lasts."""


StragglerModel = StragglerPrior | Stragglers
"""How the stragglers of a fleet are described."""

GREYHOUND_AFFECTED_FRACTION = 16.0 / 27.0
"""Jobs of at least 512 GPUs on a shared cluster that met an episode (arXiv 2410.12588)."""
GREYHOUND_NUM_NODES = 64.0
"""Nodes of such a job."""
GREYHOUND_JOB_DAYS = 1.0
"""How long such a job ran; estimate, the paper does not give it."""
_GREYHOUND_EPISODES = -math.log(1.0 - GREYHOUND_AFFECTED_FRACTION)
"""Mean number of episodes of such a job, if they are a Poisson process: a share e^-mean of jobs meets none."""

_DEDICATED = Stragglers(
    micro_batch_log_deviation=0.02,
    rank_log_deviation=0.004,
    step_log_deviation=0.01,
    slow_host_fraction=0.005,
    slow_host_factor=1.1,
)

STRAGGLER_PRESETS: dict[StragglerPreset, Stragglers] = {
    "dedicated": _DEDICATED,
    "shared": _DEDICATED.model_copy(
        update={
            "episodes_per_node_day": _GREYHOUND_EPISODES / (GREYHOUND_NUM_NODES * GREYHOUND_JOB_DAYS),
            "episode_factor": 1.3459,
        }
    ),
    "long_context": _DEDICATED.model_copy(update={"has_uneven_sequences": True}),
    "untuned_pp": _DEDICATED.model_copy(update={"stage_imbalance": 1.5}),
}
"""A dedicated fleet, where compute varies (deviations: traces of arXiv 2505.05713; 0.5 % of hosts about 10 % slower: MegaScale,
arXiv 2402.15627); a shared one with additional episodes (Greyhound, arXiv 2410.12588); a dedicated one with long contexts in
micro-batches of uneven sequences; and one whose last stage keeps its full share of layers."""
