"""What does a design need that its cost does not include? The price of servers that replay mirrored gradients."""

from __future__ import annotations

from planner.text import human
from simulator.checkpoints.schemes import CheckpointTable


def server_notes(checkpoints: CheckpointTable, row: int) -> list[str]:
    """Returns a note if the saves of a design go to servers in addition to the nodes."""
    num_servers = int(checkpoints.num_servers[row])
    if num_servers == 0:
        return []
    power = human.power(float(checkpoints.extra_power_w[row]))
    note = (
        f"Saves go to {human.counted(num_servers, 'server')} in addition to the nodes. The results include the power of "
        f"{'this server' if num_servers == 1 else 'these servers'}, {power} before cooling, but not the price."
    )
    return [note]
