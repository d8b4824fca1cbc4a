"""What shortens or splits the attention of a measured run? Windows, packed documents, context parallelism.

This comes from columns, the notes, the catalogue model of the same name, or else the framework's habit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.input.problems import shown
from planner.measured.cells.told import Told
from planner.measured.cells.words import (
    NO,
    NOTHING_SAID,
    YES,
    affirmed,
    affirmed_number,
    first_affirmed,
    is_denied,
    is_yes,
)
from planner.measured.frameworks.habits import Habits
from planner.measured.run_layout import RunLayout
from simulator.domain.choices import ContextExchange
from simulator.domain.model import ModelShape
from simulator.errors import InputError, Problem

EXCHANGE = "cp_comm_type"
"""Column that says how context-parallel ranks exchange, by the name of Megatron Core's option."""
_DEGREE = r"(?:[- ]attention)?(?:[- ]degree)?[ =:]*\d*"
_TIMES = r" *(?:x|\N{MULTIPLICATION SIGN}|\*|\+|&|/|and|with|over) *"
_CONTEXT = r"(?:cp|context[- ]parallel(?:ism)?)"
_OF_CONTEXT = (
    rf"\b{_CONTEXT}(?:[ =]?\d+)?[ _=:(]*(?:comm(?:unication)?s?(?:[-_ ]type)?)?[ _=:(\['\"]*"
    r"(?:(?:with|by|via|as|is|uses) )?(?:an? )?"
)
_ALL_TO_ALL = r"(?:a2a|all[-_ ]?to[-_ ]?all)"
_ROTATES = r"rotate[ _]method[ _=:'\"]*"
_EXCHANGES: tuple[tuple[str, ContextExchange], ...] = (
    (
        rf"\ba2a[ +&/_-]+p2p\b|(hybrid|hierarchical)[ _](cp|context)|{_OF_CONTEXT}hybrid|\busp\b|loong-?train|2d[- ]attention",
        "hybrid",
    ),
    (rf"\bulysses{_DEGREE}{_TIMES}ring\b|\bring{_DEGREE}{_TIMES}ulysses\b", "hybrid"),
    (rf"{_ROTATES}all[-_ ]?to[-_ ]?all", "ring"),
    (rf"{_ROTATES}all[-_ ]?gather|\bgathered[-_ ]ring\b", "gathered_ring"),
    (
        rf"ulysses|{_OF_CONTEXT}{_ALL_TO_ALL}\b(?![- _]*(?:dispatch|overlap))|\b{_ALL_TO_ALL}[- ](?:based[- ])?{_CONTEXT}\b",
        "all_to_all",
    ),
    (rf"{_OF_CONTEXT}all[-_ ]?gather|\ball[-_ ]?gather[- ](?:based[- ])?(?:cp|context)\b", "all_gather"),
    (rf"\bring[- ]?attention|zig-?zag|{_OF_CONTEXT}(?:p2p|ring)\b", "ring"),
)
"""Ways to exchange keys and values by the words that mean them; the first that fits holds."""
_EXCHANGES_OF_PYTORCH: Mapping[ContextExchange, ContextExchange] = {
    "ring": "gathered_ring",
    "all_gather": "gathered_ring",
    "all_to_all": "ring",
}
"""What the same words mean where PyTorch's ring is the habit: it is one with either rotate method, and gathers by default."""
_BY_HEADS = re.compile(r"\b(ulysses|isp)\b", re.IGNORECASE)
"""Parts of the sequence are exchanged for heads, as in DeepSpeed Ulysses."""
_SAYS_HOW = re.compile(rf"{_BY_HEADS.pattern}|{_ROTATES}|\bgathered[-_ ]ring\b", re.IGNORECASE)
"""Words that mean the same everywhere."""
_RING = re.compile(r"\bring\b", re.IGNORECASE)
_SCHEME = re.compile(rf"{_RING.pattern}|^(cp|context)\b", re.IGNORECASE)
_SEQUENCE_ONLY = re.compile(r"\bisp\b", re.IGNORECASE)
_OF_TENSOR_RANKS = (
    *(
        "megatron",
        "msp",
        "fsp",
        "tp",
        "tensor",
        "tensor parallel",
        "sp",
        "sequence parallel",
        "sequence-parallel",
    ),
    *(
        "with tp",
        "tp-sp",
        "tp+sp",
        "tp/sp",
        "tp sp",
        "megatron-sp",
        "megatron sp",
        "megatron sequence parallel",
    ),
)
_NOTED_SPLIT = re.compile(
    r"(?:(?<![\w-])(?:--)?|(?<=tp-))(?:sp|sequence[-_ ]parallel(?:ism)?)(?![-_ ]?(?:size|degree))(?!\w|[ =:-]{0,3}\d)",
    re.IGNORECASE,
)
"""Sequence parallelism without a number of ranks of its own: `selective + SP`, `sequence_parallel=True`."""
_OF_NO_RANKS = ("none", "mtp")
_RANKS = re.compile(r"[2-9]|[1-9]\d{1,3}")
"""Words for who splits the sequence beside tensor parallelism; `isp`, `msp`, `fsp` and `mtp` are modes of InternEvo."""
_WINDOW = re.compile(
    r"\b(?:sliding[- ]window|swa)(?:[- ](?:attention|size|width|length)){0,3}[ =:(-]*(?:of )?(\d+)(?![\d.]| ?(?:%|gpus?\b))",
    re.IGNORECASE,
)
_WINDOWED_LAYERS = re.compile(
    r"\b(\d{1,2}) ?(?:/|(?:out )?of) ?(\d{1,2}) (?:of (?:the |all )?)?layers"
    r"|\bevery (\d{1,2})(?:st|nd|rd|th) layer(?: is| has)? (?:full|global)",
    re.IGNORECASE,
)
"""Layers that have a window, of how many, or which ones have none: `SWA 4096 in 3 of 4 layers`, `every 4th layer full`."""
_DOCUMENTS = re.compile(
    r"\b(?:mean|average|avg\.?)(?: packed)? (?:(?:document|doc|sample|sequence|seq)s? )?len(?:gth)?[^\d,;]{0,10}?(\d+)"
    r"|\b(?:mean|average|avg\.?) (?:document|doc)(?: of)? (\d+)"
    r"|\b(?:documents|docs|samples|sequences)(?: of)? (\d+) tokens on average",
    re.IGNORECASE,
)


def window_cells(told: Told, known: ModelShape | None) -> dict[str, object]:
    """Returns the fields of `SlidingWindow`; nothing if every token attends to all previous ones.

    A window named in a column or the notes applies to every layer unless `full_every` or the notes say otherwise; 0 means none.
    """
    if told.cells.numbers.get("window") == 0.0:
        return {}
    notes = told.text("notes")
    if tokens := told.cells.count("window") or _number(_WINDOW, notes):
        return {"window_tokens": tokens, "full_every": told.cells.count("full_every") or _full_every(notes)}
    return known.sliding_window.model_dump() if known and known.sliding_window else {}


def _full_every(notes: str) -> int | None:
    """Returns n if one in n layers has no window; `None` if the notes say nothing, or several in n have none."""
    if not (found := _WINDOWED_LAYERS.search(notes)):
        return None
    if found[3]:
        return int(found[3])
    return int(found[2]) if int(found[2]) - int(found[1]) == 1 else None


def document_cells(told: Told) -> dict[str, object]:
    """Returns the fields of `Documents`: a mean length, with documents dealt out at random; nothing if none is named."""
    mean = told.cells.count("mean_document") or _number(_DOCUMENTS, told.text("notes"))
    return {"mean_tokens": mean} if mean else {}


def splits_sequence(written: str) -> bool | None:
    """Returns whether tensor-parallel ranks also split norms by sequence; `None` where nothing is said.

    Schemes of context parallelism say nothing of them, as either may be beside the other.

    Raises:
        InputError: the cell says something else.
    """
    first = re.sub(r"\s*\(.*|[ =]+\d+$", "", written)
    if counts_ranks(written):
        return True
    yes, no = (*YES, *_OF_TENSOR_RANKS), (*NO, *_OF_NO_RANKS)
    if first.lower() not in (*yes, *no) and splits_for_context(written):
        return None
    return is_yes("sp", first, yes=yes, no=no)


def told_split(told: Told) -> bool | None:
    """Returns whether tensor-parallel ranks also split norms by sequence, by its column or else notes and recomputation.

    Raises:
        InputError: the column says something else.
    """
    if told.text("sp").lower() not in NOTHING_SAID:
        return splits_sequence(told.text("sp"))
    for column in ("notes", "recompute"):
        text = told.text(column)
        found = False if is_denied(_NOTED_SPLIT, text) else bool(affirmed(_NOTED_SPLIT, text)) or None
        if found is not None and not splits_for_context(text):
            told.remark("sp", f"{'yes' if found else 'no'}, as {column} says")
            return found
    return None


def counts_ranks(written: str) -> bool:
    """Returns whether a cell gives no yes or no, but ranks that share the sequence, as configurations of InternEvo do."""
    return bool(_RANKS.fullmatch(written))


def splits_for_context(written: str) -> bool:
    """Returns whether a cell names context parallelism, whose ranks are those of the column `cp`."""
    return bool(_exchange(written) or _BY_HEADS.search(written) or _SCHEME.search(written))


def splits_sequence_only(written: str) -> bool:
    """Returns whether so-called tensor parallelism splits the sequence but no product, like InternEvo's ISP."""
    return bool(_SEQUENCE_ONLY.search(written))


def says_exchange(told: Told) -> bool:
    """Returns whether the column of the exchange of context-parallel ranks says something."""
    return told.text(EXCHANGE).lower() not in NOTHING_SAID


def context_exchange(
    told: Told, habits: Habits, *, has_window: bool, splits_heads: bool
) -> tuple[ContextExchange, bool]:
    """Returns how context-parallel ranks attend to the whole sequence, and whether this had to be assumed.

    Args:
        told: the row.
        habits: of its framework.
        has_window: whether layers have a sliding window, which a ring does not support: keys and values are then assumed to
            be gathered.
        splits_heads: whether the ranks can have equally many heads, as habitual exchanges of heads need.

    Raises:
        InputError: the column says something else.
    """
    column = told.text(EXCHANGE)
    if says_exchange(told):
        if found := _exchange(f"{EXCHANGE}={column}"):
            return _meant_under(habits, found, column), False
        rule = "is not understood; write p2p, all_gather, gathered_ring, a2a or a2a+p2p, or leave it empty"
        raise InputError([Problem(path=EXCHANGE, value=shown(column), rule=rule)])
    written = told.text("sp")
    scheme: ContextExchange | None = "ring" if _RING.search(written) else None
    if found := _exchange(written) or ("all_to_all" if _BY_HEADS.search(written) else scheme):
        return _meant_under(habits, found, written), False
    for said in (f"CP {told.text('cp')}", told.text("notes"), told.framework):
        if found := _exchange(said):
            return _meant_under(habits, found, said), False
    exchanges_heads = habits.context_exchange == "all_to_all"
    if has_window and not (exchanges_heads and splits_heads):
        return "all_gather", True
    return ("ring" if exchanges_heads and not splits_heads else habits.context_exchange), True


def possible_exchange(
    told: Told, sequences: Mapping[str, object], *, heads: int, kv_heads: int, layout: RunLayout, domain: int
) -> dict[str, object]:
    """Returns the exchange where ranks can have it: a ring in place of an exchange of heads that do not divide.

    Software that does both chooses how many ranks exchange heads; here all of a link domain do.

    Args:
        told: the row, which gets a remark.
        sequences: fields of the workload, with `context_exchange` where ranks share a sequence.
        heads: of the queries.
        kv_heads: of the network.
        layout: degrees; tensor-parallel ranks share heads out, too.
        domain: accelerators that share a scale-up link.
    """
    near = min(layout.context_parallel, max(1, domain // layout.tensor_parallel))
    ranks = near * layout.tensor_parallel
    is_whole = heads % ranks == 0 and kv_heads % ranks == 0 and layout.context_parallel % near == 0
    if sequences.get("context_exchange") != "hybrid" or is_whole or near == 1:
        return {}
    exchange: ContextExchange = "all_gather" if "window_tokens" in sequences else "ring"
    meaning = (
        f"{ranks} ranks of a link domain cannot exchange {kv_heads} key-value heads; taken as {exchange}"
    )
    told.remark(EXCHANGE if says_exchange(told) else "cp", meaning)
    return {"context_exchange": exchange}


def exchanged_heads(
    told: Told, sequences: Mapping[str, object], *, heads: int, kv_heads: int, layout: RunLayout
) -> int:
    """Returns the key-value heads needed by ranks that exchange heads: copies if there are fewer (DeepSpeed's ALST).

    Args:
        told: the row, which gets a remark about copies.
        sequences: fields of the workload, with `context_exchange` where ranks share a sequence.
        heads: of the queries.
        kv_heads: of the network.
        layout: degrees; tensor-parallel ranks share heads out, too.
    """
    ranks = layout.tensor_parallel * layout.context_parallel
    if (
        sequences.get("context_exchange") != "all_to_all"
        or kv_heads >= ranks
        or ranks % kv_heads
        or heads % ranks
    ):
        return kv_heads
    told.remark(
        EXCHANGE if says_exchange(told) else "sp",
        f"{ranks} ranks exchange {kv_heads} key-value heads: simulated with copies, {ranks} of them",
    )
    return ranks


def _meant_under(habits: Habits, found: ContextExchange, said: str) -> ContextExchange:
    """Returns what a framework means by the words in which an exchange was found."""
    if habits.context_exchange == "gathered_ring" and not _SAYS_HOW.search(said):
        return _EXCHANGES_OF_PYTORCH.get(found, found)
    return found


def _exchange(said: str) -> ContextExchange | None:
    return first_affirmed(_EXCHANGES, said)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    size = affirmed_number(pattern, text) or 0
    return size if 0 < size < 10**9 else None
