"""What does a measured run compute again? From what people write in one cell, and in the notes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.input.problems import shown
from planner.measured import notes as measured_notes
from planner.measured.module_names import CORE_WORDS, MODULES, listed_modules, named_modules, unread_modules
from planner.measured.told import Told
from planner.measured.words import NOTHING_SAID, affirmed, all_affirmed, first_affirmed, is_denied
from simulator.domain.model import RecomputeMethod, RecomputeModule, SelectiveRecompute
from simulator.domain.recompute_modules import CORE, RESTORED, Parts
from simulator.errors import InputError, Problem

_NONE = re.compile(
    r"(none|no|n|off|false|0(\.0+)?|disabled|everything_saveable|without)"
    r"( (activation |gradient )?(recompute|recomputation|checkpointing|ac))?(\s*[,;(].*)?"
)
_EITHER = re.compile(
    r"(none|no|off|false)\s*(/|,|;|or\b|and\b)\s*(full|selective|yes|on|true)"
    r"|(full|selective|yes|on|true)\s*(/|,|;|or\b|and\b)\s*(none|no|off|false)"
)
_FULL = re.compile(
    r"full|\b(yes|y|true|on|enabled|all|half)\b|(^|[=: ])1$|(every|each) layer|block(?!s? \d+ ?-)|uniform|\d+ layers?"
    r"|num[-_ ]layers|checkpoint|\bckpt|\bac\b|\bgc\b|\bremat\b|nothing[_ ]saveable|save_nothing|decoder_layer_input",
    re.IGNORECASE,
)
_ATTENTION = re.compile(r"selective|\bsel\b|core[ _-]?att|\battention\b|\battn\b|\bsac\b|\bops?\b")
_POLICIES: tuple[tuple[str, tuple[RecomputeModule, ...]], ...] = (
    (r"save_dot\w*except_mlp|save_(qkv|out)_proj|(qkv|out)_proj\w*[ _-]offload", ("core_attn", "mlp")),
    (r"dots[\w ]*[_ ]saveable|checkpoint_dots|save_dots|\bminimal", ()),
)
"""What policies of JAX and MaxText compute again that keep some results of products, the nearest that there is."""
_OTHER_MODULES = re.compile(r"modules?\b")
_IN_NOTES = re.compile(r"(?:recompute[ _-]?modules?|selective recompute\w* of)\b[^;.]*", re.IGNORECASE)
_BEFORE_MODULES = re.compile(
    r"\b(?:recomput(?:e[sd]?|ing|ation)|checkpointing|remat)\b(?: (?:of|the|only|for))*", re.IGNORECASE
)
"""Words that modules may follow, as in `recompute: mlp, layernorm`."""
_AGAIN = r"(?:recompute|recomputation|remat|checkpointing)\b"
_SAID_BEHIND = rf"\b(?:{_AGAIN}|recompute[-_ ](?:granularity|mode)\b)[ :='\"]+"
_OTHER_FULL = r"(?![-_ ]?(?:iteration|fine|shard|param|batch|precision|sft|model|network|graph))"
_KINDS_IN_NOTES: tuple[tuple[str, Literal["full", "selective"]], ...] = (
    (rf"\bselective[- ](?:activation[- ])?{_AGAIN}|{_SAID_BEHIND}selective\b", "selective"),
    (rf"\bfull[- ](?:activation[- ])?{_AGAIN}|{_SAID_BEHIND}full\b{_OTHER_FULL}", "full"),
    (r"\b(?:activation|gradient)[- ]checkpointing\b", "full"),
)
_NONE_IN_NOTES = re.compile(
    rf"(?:^|[;,])\s*(?:no|without) (?:(?:activation|gradient)[- ])?{_AGAIN}|\b(?:activation|gradient)[- ]checkpointing:? off\b",
    re.IGNORECASE,
)
_NO_MORE_THAN_SOME = re.compile(
    r"(selective|sel|partial|some)( (activation )?(recompute|recomputation|(activation )?checkpointing))?"
)
"""Cells that leave it to the notes what is computed again."""
_SOME = re.compile(r"\bpartial|^some\b")
_LAYERS = re.compile(
    r"(?<!\d)(\d{1,9})(?:\s*(?:/|(?:out )?of)\s*(?:the |every )?(\d{1,9}))?[ _-]*layers?\b(?:\s*(?:/|(?:out )?of)\s*(\d{1,9}))?"
)
"""Layers that are computed again, and perhaps all that there are: `20 of 80 layers`."""
_NUMBERED = re.compile(
    r"(?:block|uniform|num[-_ ]layers)[ ,:=(_/-]*(\d{1,5})(?![\d.%])(?!\s*(?:/|(?:out )?of\b))|full ?@ ?(\d{1,5})\b"
    r"|full[ ,(:=]+([2-9]|[1-9]\d{1,4})\b(?![.%])(?!\s*(?:/|%|percent|(?:out )?of\b|bits?\b))"
)
"""The same behind Megatron's words: `block 4`, `uniform, 2`, `num-layers 10`, `full (10)`."""
_EVERY_NTH = re.compile(
    r"(?<!of )(?:every|each) (?:(other)|(\d{1,3})(?:st|nd|rd|th))\b(?! (?:ops?|operat\w+|mat[- ]?mul\w*|gemms?|mm|products?)\b)"
    r"|\b1 in (\d{1,3})\b"
)
"""Layers, not the products of `every 2nd op`."""
_SELECTED_NTH = re.compile(r"(?:selective|s?ac)(?:[ _]ac)?(?:[ _]option)?[ =:(]*([2-9]|[1-9]\d)\)?")
"""The same by torchtitan's option: `selective 2` computes every second layer again."""
_OF_LAYERS = re.compile(r"\s+of (?:the |all )?layers")
_HALF = re.compile(r"\bhalf\b(?: (?:the |all )?layers)?")
_EVERY_LAYERS = re.compile(r"(?<!of )(?:every|each) (\d{1,3}) layers")
_OFFLOADED = re.compile(
    r"[,;+ ]*(?:cpu[- ]?)?(?:activations?[- ])?offload\w*[^\d,;+]{0,24}\d+ ?layers(?: to cpu)?"
)
_NOT_SURE = re.compile(
    r"@|full[ ,(:=]+\d+\)?$|budget|(?<!of )(?:every|each) \d+ layers|^(?!100 ?%$)[\d./% ]+$"
)
"""Numbers of which only the likeliest meaning is taken."""
_BUDGET = re.compile(r"budget\D{0,3}(0?\.\d{1,2}|[01](?:\.0+)?)(?![\d.])")
"""What of the activations is kept, as in `activation_memory_budget` of PyTorch's compiler."""
_SHARE = re.compile(
    r"(\d{1,9})\s*(?:/|(?:out )?of)\s*(?:the )?(\d{1,9})|(\d{1,9}) ?(?:%|percent|per cent)|(?<![\d.])0?\.(\d\d?)(?!\d)"
)
"""The same without that word, of which whole layers have a share: `full (20 of 80)`, `AC 25 %`, and `selective 1/2` or 0.5 of
fms-fsdp (`apply_fsdp_checkpointing`)."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What is computed again, in the words of `Plan.recompute` and its neighbours."""

    kind: Literal["none", "selective", "full"]
    num_layers: int | None = None
    """`Plan.recompute_num_layers`."""
    method: RecomputeMethod | None = None
    """`Workload.recompute_method`, where layers are counted."""
    is_implied: bool = False
    """Whether groups of layers are what `full` means beside a number; where that is all of a chunk, it only counts them."""
    of_layers: int | None = None
    """Layers of the whole network among which they are counted, 100 where they are per cent; left out: those of a chunk."""
    modules: tuple[RecomputeModule, ...] = ()
    """`Workload.recompute_modules`, where modules are named."""
    is_exact: bool = True
    """Whether this is all that was written; modules without a name, and some layers, may be any."""
    unread: tuple[str, ...] = ()
    """What is named beside known modules and is none of them."""
    is_some: bool = False
    """Whether something is computed again, which does not say what."""
    is_understood: bool = True
    """Whether it says anything of recomputation that is known."""

    def keeps_inputs(self, habit: SelectiveRecompute) -> bool:
        """Returns whether inputs of all products wait for weight gradients, selective recomputation being as is habit."""
        if self.kind != "selective":
            return self.kind == "none"
        return RESTORED.issuperset(self.modules) if self.modules else habit == "attention"


NOT_GIVEN = Recomputed(kind="none", is_exact=False)
"""What is assumed where nothing is said."""
_ANY = replace(NOT_GIVEN, is_some=True)


def recomputed(written: str, notes: str) -> Recomputed | None:
    """Returns what a cell and the notes mean; `None` where the cell says nothing.

    Layers that are counted are the first ones of a chunk, as in Megatron's `block`; those of `full` recomputation without that
    word are groups of so many, as in its `uniform`.

    Words that mean nothing here are taken as none, and are not understood.

    Raises:
        InputError: the cell says none and some in one.
    """
    text = written.lower()
    says_little = text in NOTHING_SAID or _NO_MORE_THAN_SOME.fullmatch(text)
    if says_little and (found := _noted_modules(notes)):
        return found
    if text in NOTHING_SAID:
        return _noted(notes)
    if _EITHER.fullmatch(text):
        rule = "says both; write none, selective, full, or the layers: full block 5 layers"
        raise InputError([Problem(path="recompute", value=shown(written), rule=rule)])
    if _NONE.fullmatch(text):
        return Recomputed(kind="none")
    text = _OFFLOADED.sub("", text)
    return _part_or_all(text, notes) if text else NOT_GIVEN


def _part_or_all(text: str, notes: str) -> Recomputed:
    """Returns what a cell means that says more than none."""
    num_layers, of_layers = _count(text)
    is_exact = not _NOT_SURE.search(text)
    if num_layers == 0:
        return Recomputed(kind="none")
    is_some = affirmed(_SOME, text) is not None
    if of_layers or (is_some and num_layers):
        some = _some_layers(num_layers, of_layers)
        return replace(some, is_exact=some.is_exact and is_exact)
    if selective := _selective(text):
        return selective
    if is_some:
        return _noted_part(notes)
    if not affirmed(_FULL, text):
        is_known = any(is_denied(words, text) for words in (_ATTENTION, *MODULES.values(), _FULL))
        return replace(NOT_GIVEN, is_understood=is_known)
    method = None if num_layers is None else _method(text)
    return Recomputed(
        kind="full",
        num_layers=num_layers,
        method=method,
        is_implied=method == "uniform" and not _names_groups(text),
        is_exact=is_exact or not num_layers,
    )


def _noted(notes: str) -> Recomputed | None:
    """Returns what notes mean beside an empty cell; `None` where they say nothing."""
    if num_layers := measured_notes.recomputed_layers(notes):
        return Recomputed(kind="full", num_layers=num_layers, method="block")
    if kind := first_affirmed(_KINDS_IN_NOTES, notes):
        return Recomputed(kind=kind)
    return Recomputed(kind="none") if _NONE_IN_NOTES.search(notes) else None


def _noted_modules(notes: str) -> Recomputed | None:
    """Returns the modules that notes name; `None` where they name none."""
    if noted := affirmed(_IN_NOTES, notes):
        said = noted[0].lower()
        modules = named_modules(said)
        return Recomputed(
            kind="selective", modules=modules, is_exact=bool(modules or affirmed(CORE_WORDS, said))
        )
    lists = (listed_modules(notes[found.end() :]) for found in all_affirmed(_BEFORE_MODULES, notes))
    listed = next(filter(None, lists), None)
    return Recomputed(kind="selective", modules=named_modules(listed)) if listed else None


def _noted_part(notes: str) -> Recomputed:
    """Returns what notes mean beside a cell that says `partial`; of nothing, anything but none and all."""
    noted = _noted(notes)
    return noted if noted and (noted.num_layers or noted.kind == "selective") else _ANY


def _selective(text: str) -> Recomputed | None:
    """Returns the parts of layers that are named; `None` where there are none."""
    policy = first_affirmed(_POLICIES, text)
    if policy is not None:
        return Recomputed(kind="selective", modules=policy, is_exact=False)
    if modules := named_modules(text):
        unread = unread_modules(text)
        return Recomputed(kind="selective", modules=modules, unread=unread, is_exact=not unread)
    has_others = bool(affirmed(_OTHER_MODULES, text)) and not affirmed(CORE_WORDS, text)
    return (
        Recomputed(kind="selective", is_exact=not has_others)
        if has_others or affirmed(_ATTENTION, text)
        else None
    )


def _method(text: str) -> RecomputeMethod:
    is_grouped = "full" in text and "block" not in text and "@" not in text
    return "uniform" if is_grouped or _names_groups(text) else "block"


def _names_groups(text: str) -> bool:
    return "uniform" in text or bool(_EVERY_LAYERS.search(text))


def in_model(told: Told, again: Recomputed, sizes: Mapping[str, object]) -> dict[str, object]:
    """Returns the cells of the modules that a network of such sizes has; of others there is a remark."""
    if not again.modules:
        return {}
    parts = _parts(sizes)
    reasons = {module: parts.reason_against(module) for module in again.modules}
    for module, reason in reasons.items():
        if reason:
            told.remark("recompute", f"{module} {reason}; left out")
    fitting = [module for module, reason in reasons.items() if not reason]
    if not fitting:
        return {"recompute": "none"}
    return {"selective_recompute": "attention", "recompute_modules": " ".join(fitting)}


def restored_modules(sizes: Mapping[str, object]) -> tuple[RecomputeModule, ...]:
    """Returns the modules, beside the attention core, that leave the inputs of products in place once computed again.

    Args:
        sizes: of the network.
    """
    parts = _parts(sizes)
    restored = RESTORED.difference(CORE)
    return tuple(module for module in MODULES if module in restored and not parts.reason_against(module))


def _parts(sizes: Mapping[str, object]) -> Parts:
    """Returns what the layers of a network have."""
    has_experts = _is_some(sizes.get("num_experts"))
    return Parts(
        latent_attention=_is_some(sizes.get("key_value_rank")),
        experts=has_experts,
        shared_experts=has_experts and _is_some(sizes.get("shared_ffn_hidden_size")),
        dense_layers=not has_experts or _is_some(sizes.get("num_dense_layers")),
    )


def _is_some(value: object) -> bool:
    """Whether a number, or a cell that spells one, is there and not zero."""
    return value not in (None, "", 0, "0")


def _some_layers(num_layers: int | None, of_layers: int | None) -> Recomputed:
    if num_layers is None:
        return NOT_GIVEN
    if num_layers == of_layers:
        return Recomputed(kind="full")
    return Recomputed(kind="full", num_layers=num_layers, of_layers=of_layers, method="block")


def _count(text: str) -> tuple[int | None, int | None]:
    """Returns the layers that are computed again and those of the whole network, as far as they are told."""
    if budget := _BUDGET.search(text):
        return round(100 * (1.0 - float(budget[1]))), 100
    if found := _SELECTED_NTH.fullmatch(text):
        return 1, int(found[1])
    groups = _EVERY_LAYERS.search(text)
    if groups and not affirmed(_ATTENTION, text):
        return int(groups[1]) if int(groups[1]) > 1 else None, None
    if found := _EVERY_NTH.search(text) or groups:
        return 1, int(next(filter(str.isdigit, filter(None, found.groups())), 2))
    if found := _LAYERS.search(text):
        part, whole = int(found[1]), int(found[2] or found[3] or 0)
        return (part, whole if whole >= part else None) if part < 10**6 else (None, None)
    if found := _NUMBERED.search(text):
        number = int(next(filter(None, found.groups())))
        return (None if number == 1 and "uniform" in text else number), None
    share = _OF_LAYERS.sub("", _HALF.sub("50 %", text))
    is_share = re.search(
        r"full|partial|selective|block|ratio|checkpoint|\bckpt|\bremat|\bac\b", text
    ) or _SHARE.fullmatch(share)
    if is_share and (found := _SHARE.search(share)):
        per_cent = found[3] or (found[4] and found[4].ljust(2, "0"))
        part, whole = int(found[1] or per_cent), int(found[2] or 100)
        return (part, whole) if part <= whole else (None, None)
    return None, None


def of_a_chunk(again: Recomputed, *, num_layers: int, num_chunks: int) -> Recomputed:
    """Returns the same with the layers of one chunk, rounded up; all of the network are full recomputation.

    Args:
        again: what was written.
        num_layers: layers of the network.
        num_chunks: those of the whole pipeline, which all compute the same number again.
    """
    if again.num_layers is None:
        return again
    if again.of_layers is None:
        most = -(-num_layers // num_chunks)
        if again.is_implied and again.num_layers >= most:
            return Recomputed(kind="full")
        if again.method == "uniform" and again.num_layers > most:
            return replace(again, num_layers=most)
        is_all = again.num_layers > most or (again.num_layers == num_layers and num_chunks > 1)
        return Recomputed(kind="full") if is_all else again
    total = max(1, round(num_layers * again.num_layers / again.of_layers))
    each = -(-total // num_chunks)
    return replace(again, num_layers=each, is_exact=again.is_exact and each * num_chunks == total)
