"""Which checkpoint scheme should a job use? The run behind a goodput, and the schemes that its plan supports, as values."""

from __future__ import annotations

from simulator.domain.plan import CheckpointScheme, Plan
from simulator.record import Record


class SchemeGoodput(Record):
    """One checkpoint scheme for the same plan, at its best interval."""

    scheme: CheckpointScheme
    """Name of the scheme."""
    goodput: float | None = None
    """Closed form: work over expected wall time; 0 for a run that never ends, null for a scheme that cannot be used."""
    interval_s: float | None = None
    """Work between saves with the largest goodput; null without saves."""
    stall_s: float | None = None
    """Training stopped per save; null for a scheme that cannot be used, as are the figures below."""
    commit_s: float | None = None
    """From the stall's end until the save can be restored."""
    tax_fraction: float | None = None
    """Extra time per second of work while a save is on its way."""
    restart_s: float | None = None
    """From a failure to the next useful work."""
    slots: int | None = None
    """Saves that may be under way at once."""
    minimum_interval_s: float | None = None
    """Shortest interval that the scheme allows."""
    host_memory_bytes: float | None = None
    """Main memory of a node that saves under way need."""
    network_bytes_per_save: float | None = None
    """Bytes that one save sends to peers, servers and the file system, on average."""
    storage_bytes: float | None = None
    """Capacity of the file system that is taken."""
    save_energy_j: float | None = None
    """Energy of one save besides its stall and the slow-down of training, before cooling."""
    num_servers: int | None = None
    """Servers beside the training nodes; their power counts, their price does not."""
    extra_power_w: float | None = None
    """Power of these servers, all the time, before cooling."""
    problem: str = ""
    """Why the plan cannot use it; empty if it can."""


class JobRun(Record):
    """Where the numbers of a run come from: a job and a plan."""

    job: str
    """Name of the job."""
    plan: Plan
    """The decisions, defaults filled in."""
    iteration_time_s: float
    """One optimizer step as the run does it, with the stragglers of the fleet."""
    interval_steps: float | None
    """Work between saves in steps; null without saves."""
    minimum_interval_s: float | None
    """Shortest interval that the scheme allows; null without saves."""
    load_s: float
    """Share of `restart_s` for loading a save."""
    bytes_per_save: float
    """Unique bytes of one save."""
    host_memory_bytes: float
    """Main memory of a node that saves under way need."""
    host_memory_capacity_bytes: float
    """Main memory of a node."""
    design_goodput_fraction: float
    """What `capplan simulate` calls goodput: there the slow-down by stragglers and the first start are no work."""
    overridden: tuple[str, ...]
    """Numbers that were given instead of the job's."""
    schemes: tuple[SchemeGoodput, ...]
    """All checkpoint schemes with this plan, the best first; those that cannot be used last."""
    warnings: tuple[str, ...] = ()
    """What keeps the plan from being run as it is."""
