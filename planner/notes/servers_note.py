"""What does a design need that its cost does not include? The price of servers that replay mirrored gradients."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable


def server_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a note if saves go to servers in addition to the nodes."""
    if plan.checkpoint_scheme is not CheckpointScheme.GRADIENT_REPLICA:
        return []
    checkpoints = evaluate(job, PlanTable.from_plans([plan])).outcomes.checkpoints
    num_servers = int(checkpoints.num_servers[0])
    power = human.power(num_servers * job.checkpointing.server_power_w)
    note = (
        f"Its saves go to {human.counted(num_servers, 'server')} in addition to the nodes. Their power, {power} before "
        "cooling, is included, but their price is not."
    )
    return [note]
