"""Which nodes must a run be given, so that its groups stay inside link domains as they are simulated?"""

from __future__ import annotations

from math import ceil, lcm

from planner import human
from simulator.job import Job
from simulator.plan import Plan


def placement_notes(job: Job, plan: Plan) -> list[str]:
    """Returns a remark where groups of ranks fit into a link domain, but not an even number of times.

    Ranks of a group are neighbours; a run that fills domain after domain would have some of its groups astride two.
    """
    node, num_gpus = job.offers[plan.offer].node, plan.num_gpus
    domain = node.link_domain_size
    spans = [span for span in _spans(job, plan) if span <= domain]
    if num_gpus <= domain or domain <= node.num_accelerators or all(domain % span == 0 for span in spans):
        return []
    group, block = max(spans), lcm(node.num_accelerators, *spans)
    if block > domain:
        block = lcm(node.num_accelerators, group)
    if block > domain:
        return []
    used = domain // block * block
    num_domains, nodes_per_domain = ceil(num_gpus / used), domain // node.num_accelerators
    counted, whole = ceil(num_gpus / node.num_accelerators), num_domains * nodes_per_domain
    taken = used // node.num_accelerators
    note = (
        f"Groups of {group} accelerators are simulated inside link domains of {domain}, where {used // group} of them fit: "
        f"take {taken} of the {nodes_per_domain} nodes of each of {num_domains:,} domains (Slurm: --segment={taken}), "
        f"or groups of a run that fills domain after domain would cross the fabric. Whole domains would be {whole:,} nodes, "
        f"{human.percent(whole / counted - 1.0)} more than are counted."
    )
    return [note]


def _spans(job: Job, plan: Plan) -> tuple[int, int, int]:
    """Ranks from the first to the last of a tensor-, context- and expert-parallel group."""
    workload = job.workload
    experts = workload.expert_tensor_parallel * plan.expert_parallel if workload.model.experts else 1
    return plan.tensor_parallel, plan.tensor_parallel * plan.context_parallel, experts
