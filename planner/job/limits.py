"""Can the job be answered at all? Contradictions that no change of layout could resolve.

Limits on money, time and power are not checked here. The study proves whether any design meets them, and says what limits
would work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.job.contradictions import contradictory_options
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.offer import Offer
from simulator.errors import Problem
from simulator.layout.casts import computes_in


def contradictions(job: Job) -> list[Problem]:
    """Returns the rules that exclude all designs, and options that exclude each other; empty for a valid job."""
    return [
        *_partial_nodes(job),
        *_missing_formats(job),
        *_too_few_gpus(job),
        *_idle_calibration(job),
        *contradictory_options(job),
    ]


def _partial_nodes(job: Job) -> Iterator[Problem]:
    for index, offer in enumerate(job.offers):
        node, wanted = offer.node.num_accelerators, offer.num_gpus
        if _fewest(offer) > wanted.max:
            below, above = wanted.max // node * node, _fewest(offer)
            near = f"{below}, {above}" if below else f"{above}"
            value = str(wanted.min) if wanted.min == wanted.max else f"{wanted.min}..{wanted.max}"
            part = "" if below else "; for a part of a node, write out the offer's node with that many"
            rule = f"must contain a multiple of the node's {node} accelerators; nearest: {near}{part}"
            yield Problem(path=f"offers[{index}].num_gpus", value=value, rule=rule)


def _missing_formats(job: Job) -> Iterator[Problem]:
    workload, chips = job.workload, [offer.accelerator for offer in job.offers]
    if not any(computes_in(workload, chip, precision) for chip in chips for precision in workload.precisions):
        formats = ", ".join(workload.precisions)
        missing = "fp16" if Precision.BF16 in workload.precisions else "bf16"
        has_peak = any(chip.peak_flop_per_s(precision) for chip in chips for precision in workload.precisions)
        by, recipe = (" with fp8_recipe mxfp8", "choose another recipe, ") if has_peak else ("", "")
        rule = f"is not computed by any offered accelerator{by}; {recipe}add {missing} or another accelerator"
        yield Problem(
            path="workload.precisions",
            value=formats,
            rule=rule if formats else "must name at least one number format; leave it out for bf16",
        )


def _too_few_gpus(job: Job) -> Iterator[Problem]:
    limit = job.limits.num_gpus
    fewest = min(_fewest(offer) for offer in job.offers)
    if limit is not None and limit < fewest:
        rule = f"must be at least {fewest}, the fewest that any offer allows"
        yield Problem(path="limits.num_gpus", value=str(limit), rule=rule)


def _idle_calibration(job: Job) -> Iterator[Problem]:
    """A calibration that covers nothing on offer was meant for another job."""
    offered = {offer.accelerator.id for offer in job.offers}
    if job.calibration is not None and not offered & set(job.calibration.accelerators):
        known = ", ".join(job.calibration.accelerators) or "no accelerator"
        rule = f"is of {known}, and the job offers {', '.join(sorted(offered))}; leave it out, or calibrate what is offered"
        yield Problem(path="calibration", value=job.calibration.source, rule=rule)


def _fewest(offer: Offer) -> int:
    """Returns the smallest number of accelerators in whole nodes that reaches the minimum."""
    node = offer.node.num_accelerators
    return math.ceil(offer.num_gpus.min / node) * node
