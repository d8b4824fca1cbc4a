"""Which nodes must a run be given, so that its groups stay inside link domains as they are simulated?"""

from __future__ import annotations

from math import ceil, floor, lcm

from planner.text import human
from simulator.domain.hardware import Node
from simulator.domain.job import Job
from simulator.domain.plan import Plan

_FEW = 0.75
"""Of the accelerators that each domain holds where they are spread evenly: with fewer in the last one, replicas wait for it."""


def placement_notes(job: Job, plan: Plan) -> list[str]:
    """Returns remarks where domains that are filled one after another are not what is simulated.

    Groups that fit into a link domain, but not an even number of times, lie inside one, and larger ones are spread evenly.
    Ranks of a group are neighbours; a run that fills domain after domain would have some of its groups astride two, and a last
    domain with few accelerators, for whose network cards all replicas wait.
    """
    node, num_gpus = job.offers[plan.offer].node, plan.num_gpus
    domain = node.link_domain_size
    if num_gpus <= domain or domain <= node.num_accelerators:
        return []
    block = _block(job, plan)
    if block == 0 or domain % block == 0:
        return _spread_notes(node, num_gpus) if plan.data_parallel > 1 else []
    spans = [span for span in _spans(job, plan) if span <= domain]
    group, used = max(spans), domain // block * block
    num_domains, nodes_per_domain = ceil(num_gpus / used), domain // node.num_accelerators
    counted, whole = ceil(num_gpus / node.num_accelerators), num_domains * nodes_per_domain
    taken = used // node.num_accelerators
    note = (
        f"Groups of {group} accelerators are simulated inside link domains of {domain}, of which each holds {used // group}: "
        f"take {taken} of the {nodes_per_domain} nodes of each of {num_domains:,} domains (Slurm: --segment={taken}). "
        f"If whole domains are filled one after another, groups cross the fabric. Whole domains would take {whole:,} nodes, "
        f"{human.percent(whole / counted - 1.0)} more than are counted."
    )
    return [note]


def _spread_notes(node: Node, num_gpus: int) -> list[str]:
    """A remark where the last of domains that are filled one after another would hold few accelerators."""
    domain, num_domains = node.link_domain_size, ceil(num_gpus / node.link_domain_size)
    last, evenly = num_gpus % domain or domain, num_gpus / num_domains
    if last >= _FEW * evenly:
        return []
    fewest, most = (whole(evenly / node.num_accelerators) for whole in (floor, ceil))
    taken = f"{fewest}" if fewest == most else f"{fewest} or {most}"
    note = (
        f"Replicas are assumed to be spread evenly over {num_domains:,} link domains of {domain}: take {taken} of the "
        f"{domain // node.num_accelerators} nodes of each. Otherwise all replicas wait for the network cards of the last "
        f"domain, which would hold only {last} accelerators."
    )
    return [note]


def _block(job: Job, plan: Plan) -> int:
    """Returns the fewest accelerators in whole nodes that whole groups fill within a domain; 0 where none does."""
    node = job.offers[plan.offer].node
    spans = [span for span in _spans(job, plan) if span <= node.link_domain_size]
    for groups in (spans, [max(spans, default=1)]):
        if (block := lcm(node.num_accelerators, *groups)) <= node.link_domain_size:
            return block
    return 0


def _spans(job: Job, plan: Plan) -> tuple[int, int, int]:
    """Ranks from the first to the last of a tensor-, context- and expert-parallel group."""
    workload = job.workload
    experts = workload.expert_tensor_parallel * plan.expert_parallel if workload.model.experts else 1
    return plan.tensor_parallel, plan.tensor_parallel * plan.context_parallel, experts
