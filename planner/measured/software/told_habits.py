"""What does a row say about attention kernels and fused operators, and which framework habits apply to the rest?"""

from __future__ import annotations

import re
from dataclasses import replace

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.told import Told
from planner.measured.frameworks.habits import Habits
from planner.measured.frameworks.releases import LAST_SEPARATE_YEAR, release_year
from planner.measured.layout.sharding import LAST_STAGE, sharded_copies, zero_stage
from planner.measured.recomputation.cell import recomputed
from planner.measured.software.attention import told_kernel
from planner.measured.software.first_years import possible_since
from planner.measured.software.framework_habits import habits_of, tells_habits

UNTOLD_HABITS = (
    "selective_recompute",
    "attention",
    "copies_shared_heads",
    "kernel_launch",
    "has_fused_operators",
    "overlaps_tensor_comm",
    "overlaps_input_gradients",
    "separate_first_products",
    "overlaps_gradient_sync",
    "overlaps_parameter_gather",
    "gradient_bytes",
    "sync_bytes",
    "sync_buffer_bytes",
    "checks_gradients",
    "divides_gradients",
    "fuses_update",
    "scatters_gradients_from",
    "bucket_weights",
    "bucket_copy_bytes",
    "added_gradient_bytes",
    "checkpoints_norms",
    "measures_accuracy",
    "step_bytes",
    "most_gathered_weights",
    "weight_prefetch",
    "regathers_weights",
    "offloads_gradients",
    "sharded_copies",
    "keeps_stage_outputs",
    "frees_stage_inputs",
    "joins_logits",
)
"""Workload fields taken from `told_habits`, since no other column of a measured run says anything about them."""
GATHERED_CASTS = ("gathers_cast_inputs", "gathers_cast_weights")
"""What is gathered behind its cast: a habit for all recipes, or for scales of whole tensors alone."""
_SHARDED_BY_PYTORCH = "FSDP"
_ONLY_NEAR = re.compile(r"[- ](style|like)\b", re.IGNORECASE)
"""Words after a framework's name that mean a similar framework, not this one."""
_NAMED_OPERATORS = re.compile(r"att|\bops?\b|\d")


def told_habits(told: Told, family: str, precision: str) -> Habits:
    """Returns the habits of a row's framework, changed as the row says.

    Args:
        told: the row.
        family: architecture of the accelerators.
        precision: number format of the products.
    """
    sharding = told.text("zero_stage_or_fsdp")
    framework = told.framework or (_SHARDED_BY_PYTORCH if "fsdp" in sharding.lower() else "")
    is_fully_sharded = zero_stage(sharding) == LAST_STAGE
    habits = habits_of(
        framework, family, precision, is_fully_sharded=is_fully_sharded, first_year=possible_since(told)
    )
    if not told.name("framework") or not tells_habits(framework) or _ONLY_NEAR.search(framework):
        told.assumed.append("framework")
    if year := told.published_year:
        told.remark(
            "framework", f"names no release; taken as of {year}, when its measurements were published"
        )
    is_fused = measured_notes.fuses_operators(f"{told.text('notes')}; {framework}")
    is_early = (release_year(framework) or LAST_SEPARATE_YEAR + 1) <= LAST_SEPARATE_YEAR
    _remark_share(told, habits)
    if measured_notes.replays_whole_steps(told.text("notes")):
        habits = replace(habits, kernel_launch="graph")
    return replace(
        habits,
        attention=told_kernel(told, habits.attention, family, precision),
        has_fused_operators=habits.has_fused_operators and not is_early if is_fused is None else is_fused,
        sharded_copies=sharded_copies(f"{framework}; {sharding}"),
    )


def _remark_share(told: Told, habits: Habits) -> None:
    """Remarks that `selective` with FSDP may mean a share of the layers, as in fms-fsdp, and not attention."""
    if habits.name != _SHARDED_BY_PYTORCH or habits.selective_recompute != "attention":
        return
    written = told.text("recompute")
    again = recomputed(written, told.text("notes"))
    if (
        again
        and again.kind == "selective"
        and not again.modules
        and not _NAMED_OPERATORS.search(written.lower())
    ):
        if again.is_exact:
            told.assumed.append("recompute")
        meaning = "of FSDP may be a share of the layers; taken as attention, write selective 1/2 for a share"
        told.remark("recompute", meaning)
