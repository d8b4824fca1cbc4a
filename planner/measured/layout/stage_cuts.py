"""How many layers does each pipeline chunk of a measured run hold, where its notes say so?

Notes may count the layers of the first and of the last stage, in words or by Megatron Core's options: the other stages share
the rest evenly, and the chunks of a stage hold the same number (`get_num_layers_to_build`). They may count embedding or loss as
a layer of their stage (`account_for_embedding_in_pipeline_split`), or list all chunks (`pipeline_model_parallel_layout`, parsed
as in `pipeline_parallel_layer_layout.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed, affirmed_number
from planner.measured.run_layout import RunLayout
from simulator.domain.plan import TO_AND_FRO, Schedule

_STAGE = r"(?:pp |pipeline )?(?:stage|rank)s?\b"
_BETWEEN = r"(?: ?[:=(] ?| (?:has|have|with|holds?|of|only|each|get|gets|contains?))*"
_BOTH = rf"first and (?:the )?last {_STAGE}"
_OPTION = (
    r"\b(?:decoder[-_]{0}[-_]pipeline[-_]num[-_]layers|num[-_]layers[-_]in[-_]{0}[-_]pipeline[-_]stage)"
    r"[ =:]+(\d{{1,3}})\b"
)
_WORDS = r"\b{0}{1} ?(\d{{1,3}}) layers\b|\b(\d{{1,3}}) layers (?:each )?(?:in|on|at|for) (?:the )?{0}"


def _counted(which: str, words: str) -> re.Pattern[str]:
    option = f"{_OPTION.format(which)}|" if which else ""
    return re.compile(option + _WORDS.format(words, _BETWEEN), re.IGNORECASE)


_ON_BOTH = _counted("", _BOTH)
_ON_FIRST = _counted("first", rf"first {_STAGE}")
_ON_LAST = _counted("last", rf"last {_STAGE}")
_COUNTS_EMBEDDING = re.compile(
    r"\baccount[-_]for[-_]embedding(?:[-_]in[-_]pipeline[-_]split)?\b", re.IGNORECASE
)
_COUNTS_LOSS = re.compile(r"\baccount[-_]for[-_]loss(?:[-_]in[-_]pipeline[-_]split)?\b", re.IGNORECASE)
_LISTED = re.compile(
    r"\b(?:(?:pipeline|pp)[-_ ](?:model[-_]parallel[-_])?)?layout[ =:]+[\"'`]*(E[EtmL|*()\d,]{1,500})",
    re.IGNORECASE,
)
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,3})|([EtmL])\*(\d{1,3})")
_MOST_SYMBOLS = 10_000
"""No list is longer once its repetitions are written out."""


def noted_cut(
    told: Told, num_layers: int, layout: RunLayout, schedule: Schedule | None
) -> tuple[int, ...] | None:
    """Returns the layers of every chunk in model order, as `Workload.stage_layers` lists them; `None` where notes do not say.

    What does not add up to the layers of the network, or to whole chunks, is left out with a remark.

    Args:
        told: the row.
        num_layers: layers of the network.
        layout: degrees, with the chunks of a stage.
        schedule: the order of the stages if it is not 1F1B.
    """
    notes = told.text("notes")
    if layout.num_chunks == 1:
        return None
    for said, cut in (
        _listed(notes),
        _by_ends(notes, num_layers, layout),
        _by_counted_ends(notes, num_layers, layout),
    ):
        if not said:
            continue
        if schedule in TO_AND_FRO:
            meaning = "left out; the first stage of this schedule is also the last"
        elif cut is None or sum(cut) != num_layers or len(cut) != layout.num_chunks:
            meaning = f"left out; it does not cut {num_layers} layers into {layout.num_chunks} chunks"
        else:
            return tuple(cut)
        told.remark("notes", f"{said}: {meaning}")
        return None
    return None


def listed_chunks(notes: str, num_stages: int) -> int | None:
    """Returns the chunks of each stage by a list of all chunks; `None` where notes have none, or it is not for these stages."""
    _, cut = _listed(notes)
    chunks, rest = divmod(len(cut or ()), num_stages)
    return chunks if chunks and not rest else None


def _listed(notes: str) -> tuple[str, Sequence[int] | None]:
    """Returns the words that list all chunks, and their layers: `Et*3|(tt|)*29m|L`."""
    found = affirmed(_LISTED, notes)
    if found is None:
        return "", None
    symbols = found[1].replace(",", "")
    while (repeated := _REPEATED.search(symbols)) and len(symbols) < _MOST_SYMBOLS:
        symbol, times = repeated[1] or repeated[3] or "", int(repeated[2] or repeated[4])
        symbols = symbols[: repeated.start()] + symbol * times + symbols[repeated.end() :]
    is_whole = re.fullmatch(r"E[t|]*m*\|?m*L", symbols) is not None
    return found[0], [chunk.count("t") for chunk in symbols.split("|")] if is_whole else None


def _by_ends(notes: str, num_layers: int, layout: RunLayout) -> tuple[str, Sequence[int] | None]:
    """Returns the words that count the layers of the first or the last stage, and those of all chunks."""
    both = affirmed_number(_ON_BOTH, notes)
    first = both if both is not None else affirmed_number(_ON_FIRST, notes)
    last = both if both is not None else affirmed_number(_ON_LAST, notes)
    named = [found[0] for words in (_ON_BOTH, _ON_FIRST, _ON_LAST) if (found := affirmed(words, notes))]
    if first is None and last is None:
        return "", None
    said = " and ".join(dict.fromkeys(named))
    p, v = layout.pipeline_parallel, layout.virtual_pipeline
    inner = p - (first is not None) - (last is not None)
    each, rest = divmod(num_layers - (first or 0) - (last or 0), max(1, inner))
    stages = [*([] if first is None else [first]), *[each] * inner, *([] if last is None else [last])]
    if rest or any(num < 0 or num % v for num in stages):
        return said, None
    return said, [num // v for num in stages] * v


def _by_counted_ends(notes: str, num_layers: int, layout: RunLayout) -> tuple[str, Sequence[int] | None]:
    """Returns the words that count embedding or loss as a layer, and the layers of all chunks."""
    embedding, loss = affirmed(_COUNTS_EMBEDDING, notes), affirmed(_COUNTS_LOSS, notes)
    said = " and ".join(found[0] for found in (embedding, loss) if found)
    each, rest = divmod(num_layers + bool(embedding) + bool(loss), layout.num_chunks)
    if not said or rest:
        return said, None
    cut = [each] * layout.num_chunks
    cut[0] -= bool(embedding)
    cut[-1] -= bool(loss)
    return said, cut
