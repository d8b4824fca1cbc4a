"""Why does a job have no layout at all? The rules that conflict, and the single changes that would give a layout."""

from __future__ import annotations

from collections.abc import Iterator

from constraints.lattice import layout_blocks
from constraints.layout_model import conflicting_rules, nearest_layout
from constraints.registry import CONSTRAINTS
from constraints.removal import conflicting_choices, rules_of_schemes
from planner.recommended.recommendation import Infeasibility
from simulator.domain.job import Job
from simulator.domain.offer import GpuRange

RULES_OF_SIZE = frozenset({"gpu_range", "whole_nodes", "batch"})
"""Rules that another number of accelerators, or another batch size, may meet."""


def no_layout(job: Job) -> Infeasibility:
    """Returns which rules conflict: those of degrees, of choices made with them, or of checkpoint schemes."""
    of_degrees = conflicting_rules(job)
    rules = of_degrees or conflicting_choices(job)
    of_schemes = () if rules else rules_of_schemes(job)
    first = _first_reason(job, rules) if rules else _no_scheme_reason(job)
    sentences = (f"{name}: {CONSTRAINTS[name].sentence}" for name in (*rules, *of_schemes))
    return Infeasibility(
        conflict=(*rules, *of_schemes),
        reasons=(first, *sentences, *(_nearest_layout(job) if of_degrees else ())),
        proof="enumeration of all layouts; conflicting rules by CP-SAT",
        relaxations=(),
    )


def _first_reason(job: Job, rules: tuple[str, ...]) -> str:
    """The conflict in one sentence, and what to change."""
    if RULES_OF_SIZE.isdisjoint(rules):
        ways_out = "; ".join(CONSTRAINTS[name].way_out for name in rules)
        return f"no layout that the job allows meets {' and '.join(rules)}; change {ways_out}"
    ranges = ", ".join(f"{o.accelerator.id} {o.num_gpus.min:,}..{o.num_gpus.max:,}" for o in job.offers)
    return (
        f"no layout splits {job.workload.model.name} and a batch of {job.workload.global_batch_size:,} sequences over "
        f"the accelerators on offer ({ranges}); widen offers[].num_gpus or the lists under search, "
        "or choose a batch with more divisors"
    )


def _no_scheme_reason(job: Job) -> str:
    schemes = ", ".join(scheme.value for scheme in job.search.checkpoint_schemes)
    return f"no layout supports {schemes}; allow other search.checkpoint_schemes or search.zero_stages"


def _nearest_layout(job: Job) -> Iterator[str]:
    """What one change would give a layout. Degrees may still be at odds with choices made with them or with every scheme."""
    near = nearest_layout(job)
    taken, batch = near.num_gpus, near.global_batch_size
    if taken is not None and not any(o.num_gpus.min <= taken <= o.num_gpus.max for o in job.offers):
        exactly = GpuRange(min=taken, max=taken)
        offers = tuple(offer.model_copy(update={"num_gpus": exactly}) for offer in job.offers)
        if _has_layout(job.model_copy(update={"offers": offers})):
            yield f"the nearest number of accelerators that has a layout is {taken:,}"
    if batch not in (None, job.workload.global_batch_size):
        workload = job.workload.model_copy(update={"global_batch_size": batch})
        if _has_layout(job.model_copy(update={"workload": workload})):
            yield f"the nearest batch that has a layout is {batch:,} sequences"


def _has_layout(job: Job) -> bool:
    return any(len(layouts) for layouts in layout_blocks(job))
