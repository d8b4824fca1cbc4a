"""What does a design take beside what its cost counts? Servers that replay mirrored gradients have power, but no price."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan, PlanTable


def server_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a remark where saves go to servers beside the nodes."""
    if plan.checkpoint_scheme is not CheckpointScheme.GRADIENT_REPLICA:
        return []
    checkpoints = evaluate(job, PlanTable.from_plans([plan])).outcomes.checkpoints
    num_servers = int(checkpoints.num_servers[0])
    power = human.power(num_servers * job.checkpointing.server_power_w)
    note = (
        f"Its saves go to {human.counted(num_servers, 'server')} beside the nodes: the power of these, {power} before "
        "cooling, is counted, the price is not."
    )
    return [note]
