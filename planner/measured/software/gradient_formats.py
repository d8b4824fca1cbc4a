"""In which formats are gradients summed and sent, by what notes say: `fp32 gradient reduce`, `grad_reduce_in_bf16=True`?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.measured.cells.words import affirmed, is_denied
from planner.measured.frameworks.families import PYTORCH, software_family
from planner.measured.frameworks.habits import Habits

_WIDE = r"(?:fp32|float32|32[- ]?bits?|full precision)"
_NARROW = r"(?:bf16|bfloat16|fp16|float16|16[- ]?bits?)"
_GRADIENTS = r"grad(?:ient)?s?"
_SENT = (
    rf"(?:{_GRADIENTS}[-_ ](?:all[-_ ]?)?reduc\w*(?:[-_ ]scatter)?|{_GRADIENTS}[-_ ](?:sync\w*|comm\w*)"
    rf"|(?:all-?)?reduc\w*(?:[-_ ]scatter)? of {_GRADIENTS}|mixed_precision_reduce|reduce[-_ ]?d?type"
    rf"|accumulate[-_ ]allreduce[-_ ]{_GRADIENTS})"
)
_SUMMED = (
    rf"(?:{_GRADIENTS}[-_ ](?:accum\w*|sum(?:s|mation)?|buffers?)(?:[-_ ]?d?type)?|main[-_ ]{_GRADIENTS}"
    rf"|accumulat\w+ (?:of )?{_GRADIENTS})"
)
_ALL = r"grad(?:ient)?s(?![-_ ](?:all|reduc|accum|sync|comm|sum|buffer|checkpoint|clip|norm))"
_BEHIND = (
    r"(?:[-_ ]?dtype)?(?:[-_ =:(]+(?:is |are |in[-_ ]|at |with |torch\.)?| (?:is|are|kept|held|done) in )"
)


def _words(what: str, number_format: str) -> re.Pattern[str]:
    """Returns what says that something about gradients has a format, in either order."""
    return re.compile(
        rf"\b{number_format}[- ](?:main )?{what}(?!\w)|\b{what}{_BEHIND}{number_format}", re.IGNORECASE
    )


FULL_BYTES = 4
"""Of 32 bits."""
_BYTES = ((_WIDE, FULL_BYTES, 2), (_NARROW, 2, FULL_BYTES))
"""Formats with their bytes, and those of the other format, which holds where one is denied (`grad_reduce_in_fp32=False`)."""
_KINDS = {"sent": _SENT, "summed": _SUMMED, "all": _ALL}
_SPEECH = {
    kind: tuple((_words(what, name), yes, no) for name, yes, no in _BYTES) for kind, what in _KINDS.items()
}


def gradient_cells(text: str, habits: Habits) -> Mapping[str, int]:
    """Returns the bytes of a gradient that is summed, and of one that is sent, as far as a text says so.

    Megatron sends the buffer in which it sums (`grad_reduce_in_fp32` of its `DistributedDataParallelConfig`). DeepSpeed and
    PyTorch choose both apart (`grad_accum_dtype` and `communication_data_type`; `reduce_dtype`), and PyTorch's FSDP keeps
    gradients in the 32 bits of its weights, in whatever it sends them.

    Args:
        text: notes, and other cells that may say so.
        habits: those of the framework.
    """
    told = {kind: size for kind in _KINDS if (size := _told_bytes(kind, text)) is not None}
    family = software_family(habits.name)
    if family not in (PYTORCH, "DeepSpeed"):
        size = next(iter(told.values()), None)
        return {} if size is None else {"gradient_bytes": size, "sync_bytes": size}
    sent, summed = told.get("sent", told.get("all")), told.get("summed")
    if summed is None and (family != PYTORCH or told.get("all") == FULL_BYTES):
        summed = told.get("all")
    if summed == FULL_BYTES:
        summed = max(summed, habits.gradient_bytes)
    return {
        **({} if summed is None else {"gradient_bytes": summed}),
        **({} if sent is None else {"sync_bytes": sent}),
    }


def _told_bytes(kind: str, text: str) -> int | None:
    """Returns the bytes that a text says of one kind of gradients; `None` if it says none."""
    for words, yes, no in _SPEECH[kind]:
        if affirmed(words, text):
            return yes
        if is_denied(words, text):
            return no
    return None
