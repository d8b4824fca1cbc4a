"""How many multi-token prediction modules did a measured run train, and how were its layers cut around them?

A cell or the notes say so, or it is the framework's habit for the model. Layers that do not split evenly are cut as
Megatron-Bridge cuts them for DeepSeek-V3 (`_get_deepseek_v3_pipeline_layout` and `perf_recipes/deepseek`): every module counts
as two layers, its own and its logits, and the loss counts as one. Modules that count as more than a chunk are alone with the
loss on the last chunk, and only then does the embedding count.
"""

from __future__ import annotations

import re

import numpy as np

from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed, is_denied
from planner.measured.frameworks.habits import Habits
from planner.measured.run_layout import RunLayout
from simulator.layout.chunks import can_split_evenly

_NONE = ("none", "null", "no", "off", "false")
MOST_MODULES = 8
"""More tokens than anybody has predicted at once: such a number is of something else."""
_NAMED = re.compile(
    r"\bmtp(?:[-_ ](?:num[-_ ])?(?:layers?|modules?|depth|heads?))?(?: ?[=:x] ?| )(?P<behind>\d{1,2}|none)\b(?![.\d])"
    r"|\b(?P<before>\d{1,2})[- ]?(?:x )?mtp\b"
    r"|\b(?:mtp_num_layers|num_nextn_predict_layers|num_mtp_layers)[ =:]+(?P<field>\d{1,2}|none)\b"
    r"|\bmtp\b|multi[- ]token[- ]prediction",
    re.IGNORECASE,
)


def num_mtp_layers(told: Told, habits: Habits) -> int:
    """Returns the modules that a row trains; notes that only name multi-token prediction mean one."""
    if "mtp_num_layers" in told.cells.numbers:
        return int(told.cells.numbers["mtp_num_layers"])
    if told.text("mtp_num_layers").lower() in _NONE:
        return 0
    said = "; ".join(told.text(column) for column in ("notes", "model"))
    if found := affirmed(_NAMED, said):
        number = found["behind"] or found["before"] or found["field"]
        if number is None:
            told.remark("notes", f"{found[0]}: taken as one module, write mtp_num_layers for another number")
            return 1
        count = 0 if number.lower() == "none" else int(number)
        if count <= MOST_MODULES:
            return count
        told.remark("notes", f"{found[0]}: not understood; write mtp_num_layers")
        return 0
    name = told.name("model")
    usual = next((n for names, n in habits.predicting_models if re.search(names, name, re.IGNORECASE)), 0)
    return told.default("mtp_num_layers", usual) if usual and not is_denied(_NAMED, said) else 0


def cut_around_modules(num_layers: int, num_modules: int, layout: RunLayout) -> tuple[int, ...] | None:
    """Returns the layers of every chunk where modules stand on the last one; `None` where layers split evenly."""
    num_chunks = layout.num_chunks
    if not num_modules or can_split_evenly(num_layers, np.array(num_chunks)) or num_chunks < 3:
        return None
    at_end = 1 + 2 * num_modules
    each, rest = divmod(num_layers + at_end, num_chunks)
    if each >= at_end:
        inner = [each] * (num_chunks - 1 - rest) + [each + 1] * rest
        return *inner, each - at_end
    each, rest = divmod(num_layers + 1, num_chunks - 1)
    first, *others = [each] * (num_chunks - 1 - rest) + [each + 1] * rest
    return first - 1, *others, 0
