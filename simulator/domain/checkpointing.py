"""How are checkpoints made? The job's settings for saves, for all schemes of its designs.

A scheme (`simulator.domain.plan.CheckpointScheme`) uses only the settings that concern it; the defaults are published figures
where there are any.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from simulator.domain.hardware import LEAST_BYTES_PER_S
from simulator.domain.reliability import MOST_S
from simulator.record import Choice, Record


class SavePolicy(Choice):
    """What happens when a save is due while all slots hold earlier ones; codes as `simulator.run.columns.BackPressure`."""

    SKIP = "skip"
    """The save is left out; the next is due one interval later."""
    WAIT = "wait"
    """Training stops until a slot is free (CheckFreq, GoCkpt)."""
    WIDEN = "widen"
    """Training continues, and the save starts as soon as a slot is free."""


class PeerPlacement(Choice):
    """Which nodes hold the copies of a node's state."""

    GROUP = "group"
    """The nodes of a group store each other's copies; groups are disjoint (Gemini, SOSP 2023)."""
    RING = "ring"
    """The next nodes along a ring."""
    CROSS_DOMAIN = "cross_domain"
    """Nodes of other failure domains."""


class GradientVariant(Choice):
    """How a gradient-assisted save ships its gradients (GoCkpt, arXiv 2511.07035)."""

    BASE = "base"
    """Training waits for the gradients."""
    OVERLAPPED = "overlapped"
    """They overlap with the optimizer step and the next forward pass (GoCkpt-O)."""


class Checkpointing(Record):
    """How saves are made; each scheme uses the settings that concern it."""

    interval_s: PositiveFloat | None = None
    """Training time between two saves; left out, like `interval_steps`: the optimal interval."""
    interval_steps: PositiveInt | None = None
    """Optimizer steps between two saves, instead of `interval_s`."""
    longest_interval_s: PositiveFloat | None = None
    """Longest interval that is chosen if none is requested; left out: a day, even if failures hardly ever need a save (choice),
    or more where daily saves would stop the run for over 1 % of the time."""
    backpressure: SavePolicy = SavePolicy.SKIP
    """What happens when a save is due while all slots hold earlier ones."""
    slots: int = Field(default=1, ge=1, le=1000)
    """Saves that may be under way at once in schemes that write in the background (PCcheck, ASPLOS 2025: 2-4)."""
    bytes_per_parameter: float | None = Field(default=None, gt=0, le=100)
    """Saved bytes per weight; left out: the 16-bit weight and the optimizer's states, 2 + `optimizer_bytes` of the workload: 14
    with an fp32 master weight and two fp32 moments (BLOOM: 2.3 TB on disk for 176 billion); with Muon the mean of its
    `state_bytes` and those."""
    is_deduplicated: bool = True
    """Whether replicas write their common state only once; false: every replica writes everything that it holds."""
    kept_saves: int = Field(default=2, ge=1, le=1000)
    """Saves that the file system keeps: the newest complete one and the one under way."""
    fixed_stall_s: float = Field(default=0.6, ge=0, le=MOST_S)
    """Planning, metadata and barrier of one save: stalls of 0.78 s (PyTorch DCP, 70B on 1,856 H200) and 0.59 s (ByteCheckpoint,
    arXiv 2407.20143, 405B on 8,960 GPUs), of which the copy itself is 0.02 s."""
    write_tax_fraction: float = Field(default=0.03, ge=0, le=10)
    """Slow-down of training while a save is written in the background; estimate, published dips are short and deep
    (PyTorch DCP: throughput halves during part of the window)."""
    transfer_j_per_byte: float = Field(default=1.3e-9, ge=0, le=1e-3)
    """Energy of moving a byte between nodes: four ends of 800G optics at 15 W and three switch ports of 400G at 12 W,
    which is two tiers of the default fabric."""

    peer_stall_s: float = Field(default=0.04, ge=0, le=MOST_S)
    """Blocking time of a save to the memory of peers (ByteRobust, arXiv 2509.16293, 70B on 2,048 GPUs)."""
    peer_copies: int = Field(default=2, ge=2, le=64)
    """Nodes that hold every shard, its own one included (Gemini, SOSP 2023)."""
    peer_placement: PeerPlacement = PeerPlacement.GROUP
    """Which nodes hold the copies."""
    idle_network_fraction: float = Field(default=0.5, gt=0, le=1)
    """Share of the network that a background copy may use; estimate."""
    persist_every: PositiveInt = Field(default=100, le=1_000_000)
    """One in this many saves on a fast level (peers, local drives, servers) continues to the file system; Orbax's examples save
    locally every 10 steps and persistently every 1,000."""
    nvme_write_bytes_per_s: float = Field(default=8e9, ge=LEAST_BYTES_PER_S)
    """Rate at which a node writes to its own drives; estimate on the safe side, eight drives reach 20-50 GB/s."""
    nvme_read_bytes_per_s: float = Field(default=8e9, ge=LEAST_BYTES_PER_S)
    """Rate at which a node reads from its own drives; estimate."""

    window_steps: int = Field(default=7, ge=1, le=1000)
    """Steps over which a gradient-assisted save is spread; 7 and 8 save most (GoCkpt, arXiv 2511.07035)."""
    gradient_bytes: PositiveFloat = Field(default=2.0, le=8)
    """Bytes of one gradient as sent by a gradient-assisted save or a gradient replica."""
    gradient_variant: GradientVariant = GradientVariant.OVERLAPPED
    """Whether training waits for these gradients."""
    replay_bytes_per_s: float = Field(default=150e9, ge=LEAST_BYTES_PER_S)
    """Rate at which the processors of one host replay the optimizer on state in its memory; memory-bound, estimate."""

    delta_fraction: float = Field(default=0.25, gt=0, le=1)
    """Size of a differential save as a share of a full one; estimate: models with sparse updates reach 1/6-1/17
    (Check-N-Run, arXiv 2010.08679), dense ones change every weight in every step."""
    base_every: PositiveInt = Field(default=10, le=1_000_000)
    """Differential saves from one full one to the next, the full one included; estimate."""

    num_servers: PositiveInt | None = Field(default=None, le=1_000_000)
    """Servers that replay mirrored gradients; left out: the fewest that keep up with the steps."""
    server_power_w: float = Field(default=800.0, ge=0)
    """Constant power of one of these servers; estimate for two processors without accelerators."""
    server_network_bytes_per_s: float = Field(default=12.5e9, ge=LEAST_BYTES_PER_S)
    """Network bandwidth of one of these servers (100 Gbit/s, as FlowCheck's, EuroSys 2025)."""
    server_memory_bytes: PositiveFloat = 300e9
    """Host memory of one of these servers (FlowCheck: at least 300 GB)."""
    server_lag_steps: float = Field(default=0.0, ge=0, le=999)
    """Steps by which the servers may trail training."""

    just_in_time_s: float | None = Field(default=None, gt=0, le=MOST_S)
    """Time for healthy replicas to save the state after a failure and load it (Just-in-time checkpointing, EuroSys 2024); left
    out: a synchronous save by one replica and its load."""
    quorum_stall_s: float = Field(default=10.0, ge=0, le=MOST_S)
    """Downtime of all replicas until they continue without a failed one; estimate (torchft loses 11 s a failure on 300 GPUs,
    FT-HSDP, arXiv 2602.00277, 3 min on 100,000)."""
    replica_recovery_s: float | None = Field(default=None, gt=0, le=MOST_S)
    """Time until a failed replica is back; left out: the restart of its node and a copy from a live replica."""

    @property
    def is_interval_given(self) -> bool:
        """Whether the job sets the interval, so that none is chosen."""
        return self.interval_s is not None or self.interval_steps is not None

    @model_validator(mode="after")
    def _interval_is_given_once(self) -> Self:
        if self.interval_s is not None and self.interval_steps is not None:
            raise ValueError(
                f"give interval_s ({self.interval_s:g}) or interval_steps ({self.interval_steps}), not both"
            )
        return self
