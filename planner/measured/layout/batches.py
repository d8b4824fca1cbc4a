"""How many sequences does a measured run have per micro-batch and per step? Micro-batch and global batch."""

from __future__ import annotations

import math
import re

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.frameworks.families import PYTORCH, software_family
from planner.measured.frameworks.names import is_torchtitan
from planner.measured.frameworks.releases import release_year

MOST_ADDED_FRACTION = 0.1
"""Share by which a batch may be enlarged so that it divides into whole micro-batches of all replicas."""
MICRO_BATCHES_A_STAGE = 4
"""From this number on, the idle time of a pipeline is negligible (GPipe, arXiv 1811.06965, section 2.3)."""
FIRST_MICRO_BATCH_SIZE_YEAR = 2025
"""Since April 2025 torchtitan passes single sequences through a pipeline (`pipeline_parallel_microbatch_size`, its pull request
1073). Before, a local batch was cut into as many micro-batches as there are stages (`pipeline_parallel_microbatches or
parallel_dims.pp` in `pipeline_llama.py`)."""
FIRST_EXPERT_YEAR = 2025
"""torchtitan has had mixtures of experts since April 2025 (Llama 4), and has spread them over ranks since that summer."""
DERIVED = "micro_batch_size"
"""Entry in `assumed` for a micro-batch that follows from other cells, so that it is not left to choose."""
_SINGLE_SEQUENCES = re.compile("automodel")
"""NeMo Automodel, whose recipes say `pp_microbatch_size: 1`."""


def batches(told: Told, *, data_parallel: int, num_stages: int, is_sharded: bool) -> tuple[int, int]:
    """Returns micro-batch and global batch, in sequences.

    Frameworks that shard everything seldom accumulate gradients, unless they have a pipeline to fill.

    Raises:
        CannotModelError: neither is given.
    """
    micro_batch, batch = told.cells.count("micro_batch"), told.cells.count("global_batch")
    steps = measured_notes.accumulation_steps(told.text("notes"))
    if batch is None:
        if micro_batch is None:
            raise CannotModelError("neither global_batch nor micro_batch is given")
        steps_or_usual = steps or _usual_steps(told, num_stages)
        batch = told.default("global_batch", micro_batch * steps_or_usual * data_parallel)
    local = _share(batch, data_parallel)
    if num_stages > 1 and software_family(told.framework) == PYTORCH:
        runs = steps or _accumulated_runs(told, micro_batch, local, num_stages)
        micro_batch = _of_pytorch(
            told, micro_batch, local // runs if local % runs == 0 else local, num_stages
        )
        _remark_runs(told, runs)
    elif steps is not None and micro_batch is None:
        micro_batch = _of_accumulation(told, local, steps)
    elif micro_batch is None:
        micro_batch = told.default("micro_batch", local if is_sharded and num_stages == 1 else 1)
    _remark_idle_stages(told, local // micro_batch, num_stages)
    return micro_batch, batch


def _usual_steps(told: Told, num_stages: int) -> int:
    """Returns the micro-batches of a step of which nothing is told: as many as fill a pipeline, one without.

    The local batch of PyTorch's pipelines is cut into micro-batches, and is the whole share of a rank.
    """
    if num_stages == 1 or software_family(told.framework) == PYTORCH:
        return 1
    steps = MICRO_BATCHES_A_STAGE * num_stages
    told.remark(
        "global_batch", f"not given: taken as {steps} micro-batches a step, which fill {num_stages} stages"
    )
    return steps


def _share(batch: int, replicas: int) -> int:
    """Returns the sequences of a replica: those of the fullest, where that adds little to the batch."""
    fullest = -(-batch // replicas)
    return fullest if fullest * replicas <= batch * (1.0 + MOST_ADDED_FRACTION) else max(1, batch // replicas)


def _of_accumulation(told: Told, local: int, steps: int) -> int:
    """Returns the micro-batch of a rank whose share of a batch is cut into that many; the nearest where it cannot be."""
    micro_batch = max(1, local // steps)
    if micro_batch * steps == local:
        return micro_batch
    size = next(size for size in range(micro_batch, 0, -1) if local % size == 0)
    meaning = f"{steps} micro-batches do not share out the {local} sequences of a rank; taken as {local // size} of {size}"
    told.remark("notes", meaning)
    return told.default(DERIVED, size)


def _accumulated_runs(told: Told, given: int | None, local: int, num_stages: int) -> int:
    """Returns how often a step of torchtitan runs its pipeline, where what is given can only be the batch of one run.

    It is too large to be what goes through the pipeline at a time: less of that than stages would be in a step, but as a batch
    it fills them.
    """
    if given is None or not is_torchtitan(told.framework) or local % given:
        return 1
    return local // given if local // given < num_stages <= given else 1


def _remark_runs(told: Told, runs: int) -> None:
    if runs > 1:
        meaning = f"gradients are accumulated over {runs} runs of the pipeline, which is simulated to fill and empty once"
        told.remark("micro_batch", meaning)


def _of_pytorch(told: Told, given: int | None, local: int, num_stages: int) -> int:
    """Returns the micro-batch: as given, unless that is the local batch, which pipelines of PyTorch cut as torchtitan does."""
    if given is None and not is_torchtitan(told.framework):
        return told.default("micro_batch", 1)
    if given is not None and (given != local or local == 1):
        return given
    is_late = _passes_single_sequences(told)
    num_micro_batches = local if is_late else math.gcd(local, num_stages)
    habit = "of single sequences, as since 2025" if is_late else "one for each stage, as until 2024"
    told.remark(
        "micro_batch",
        f"a local batch of {local}, which a pipeline cuts into {num_micro_batches} micro-batches ({habit} in torchtitan)",
    )
    return told.default(DERIVED, local // num_micro_batches)


def _passes_single_sequences(told: Told) -> bool:
    """Returns whether a pipeline of PyTorch is known to cut local batches into single sequences."""
    name = told.framework.lower()
    has_spread_experts = (told.cells.count("ep") or 1) > 1
    year = release_year(name) or (FIRST_EXPERT_YEAR if has_spread_experts else 0)
    return year >= FIRST_MICRO_BATCH_SIZE_YEAR or bool(_SINGLE_SEQUENCES.search(name))


def _remark_idle_stages(told: Told, num_micro_batches: int, num_stages: int) -> None:
    if num_micro_batches < num_stages:
        meaning = (
            f"fewer micro-batches in a step ({num_micro_batches}) than stages ({num_stages}), some of which always wait; "
            "give what goes through the pipeline at a time, not the batch of a rank"
        )
        told.remark("micro_batch", meaning)
