"""What do the replicas of a measured run shard, and within which groups? From the words that people write in one cell."""

from __future__ import annotations

import re
from dataclasses import replace
from math import lcm

from planner.input.problems import shown
from planner.measured.cells.file import Cells
from planner.measured.cells.told import Told
from planner.measured.cells.words import (
    NOTHING_SAID,
    affirmed,
    affirmed_number,
    first_affirmed,
    is_denied,
    of_this_run,
)
from planner.measured.frameworks.names import is_automodel, is_torchtitan
from simulator.domain.choices import ShardedCopies
from simulator.errors import InputError, Problem

COLUMN = "zero_stage_or_fsdp"
SHARD_GROUPS = "shard_ranks"
"""Entry in `assumed` for shard groups whose size is not stated; a node's ranks are assumed."""
LAST_STAGE = 3
"""Of ZeRO: optimizer states, gradients and weights."""

_KEEPS_WEIGHTS = (
    r"reshard(ing|_after_forward| after forward)?[\s=:('\"]*(false|never|no\b|off\b|0)"
    r"|\b(no|not|never|without)[- _]reshard(ed|ing)?(?!\w)"
)
"""PyTorch's `reshard_after_forward=False`."""
_SHARDED_OPTIMIZER = (
    r"(shard|partition)(ed|s|ing)?[- ]optim|optim\w*[- ](states? )?(shard|partition)"
    r"|weight[- ]update[- ]shard|\bwus\b"
)
_BEYOND_STAGES = r"zero[- _]?(infinity|\+\+|plus[- _]?plus|pp\b)|\b(qwz|hpz|qgz)\b"
_STAGES = (
    (_BEYOND_STAGES, 3),
    (r"\b(p_?)?os ?\+ ?g ?\+ ?p\b", 3),
    (
        rf"shard_grad_op|\b(p_?)?os ?\+ ?g\b|optim_grads(?!_params)|{_KEEPS_WEIGHTS}|zero[- _]?(offload|100b\b)",
        2,
    ),
    (r"hybrid[- _]?zero", 1),
    (r"no_shard", 0),
    (r"fsdp\W{1,3}optim(izer)?\b(?!_)", 1),
    (r"fsdp|gemini|full(y)?[- _]shard|hsdp|hybrid|\bmics\b|dp_(shard|replicate)", 3),
    (
        rf"distributed|^dist$|dist\b\W{{0,2}}opt|dist_?opt|^optimi[sz]er( states?)?$|\b(p_?)?os\b|\boss\b|{_SHARDED_OPTIMIZER}",
        1,
    ),
    (r"^(none|no|off|false|ddp|dp|data parallel|replicated?|unsharded|0|\u2717|\u2718)(\W*\(.*\))?$", 0),
)
"""Stages by the words that mean them; the first that fits holds. ZeRO-Offload and ZeRO-100B shard what stage 2 does (arXiv
2101.06840, 1910.02054),
MiCS all of it within groups (arXiv 2205.00119), the `hybrid zero` optimizer of InternEvo its states within groups, fairscale's
OSS its states, as sharding of the weight update does (arXiv 2004.13336), Colossal-AI's Gemini everything, and Megatron-FSDP
what its strategy names. ZeRO-Infinity and ZeRO++ shard what stage 3 does (arXiv 2104.07857, 2306.10209)."""
_SOME_STAGE = re.compile(
    r"zero(?![- _=:]*\d)|\bgspmd\b|\bshard(s|ed|ing)?\b(?![- _=:]*\d)|\b(?:isp|amsp)\b|weight[- ]parallel"
    r"|^(yes|true|on|\u2713|\u2714)$"
)
"""Words for sharding that leave open what is sharded."""
_IN_GROUPS = r"(?:shard(?:ing|ed)?(?:[- ]groups?(?: of)?|[-_ ](?:size|degree))?|\bmics|hybrid[- _]?zero)"
_GROUP_RANKS = re.compile(
    rf"{_IN_GROUPS}(?![ _=:]*-1)[ _=:(-]*(\d+)\b(?!\.\d| ?nodes?\b)|hsdp\W{{0,3}}\d+ ?[x\u00d7*,] ?(\d+)"
    r"|hsdp[ _=:(-]*([4-9]|\d{2,})\b(?!\.\d| ?(?:nodes?|replicas?|groups?|[x\u00d7*,]))"
    r"|\b(\d+) (?:gpus?|ranks?) (?:per|a) shard|hsdp\D*\b(\d+)[- ]shards?\b"
    r"|\b[fh]sdp2? (?:over|across|within|groups of) (\d+)\b(?! ?nodes?\b)"
    r"|hsdp\W{0,3}\d+ groups of (\d+)\b(?! ?nodes?\b)"
    r"|(?<![a-z])(?<!dcn_)fsdp(?:[- _]?[12])?(?:[- ]axis|[- ]size|_parallelism)?[ =:(]+([4-9]|\d{2,})\b(?!\.\d| ?nodes?\b)"
    r"|\b(\d+)-way (?:fsdp|shard)"
    r"|zero[- _]?1[ ,]*(?:[=:(]|size)(?:[ =:(]|dict|size)*([2-9]|\d{2,})\b(?!\.\d|[- ]?(?:bits?|bytes?|x|nodes?)\b)"
)
"""Ranks of a shard group; `-1` is PyTorch's word for all that are left, a mesh is written as groups times ranks, a number
behind FSDP or HSDP is that of its ranks unless it is a version, and that behind `zero1` InternEvo's size of its groups."""
_ACROSS_GROUPS = re.compile(r"dcn_fsdp\w*[ =:]+(?!1\b)")
"""MaxText's word for sharding over the network, too."""
_TENSOR = re.compile(r"(?<![a-z])(?:tp|tensor(?:[-_ ]parallel\w*)?)[ =:_x-]*(\d{1,3})\b", re.IGNORECASE)
_GROUPS = re.compile(
    r"replicat\w*[ _=:-]*(\d+)|hsdp\D{0,20}(\d+)[- ]replicas?\b|dcn_data\w*[ =:]+(\d+)|\b(\d+) slices\b"
)
"""Groups that keep copies; those of MaxText are slices, between which it replicates."""
_DEGREES_ALONE = re.compile(r"[2-5]d( parallel\w*)?|(?:[dtpce]p|sp|vpp)(?:\W{1,3}(?:[dtpce]p|sp|vpp))+")
"""Kinds of parallelism, which say nothing of what replicas shard: `DP+TP+PP`, `3D`."""
_WITHIN_NODES = r"within (?:a |the |each |one )?nodes?\b|\bintra-?node|\bnode-?local"
_SHARDING = re.compile(r"zero|shard|[fh]sdp|distributed|dist[- _]?opt")
_DIGIT = re.compile(
    r"(?<!hybrid[- _])(?:zero|stage)[- _=:]*(\d+)(?!\d*b\b)|(?:zero|stage)[- _=:]*([0-3])\b|\bz-?([0-3])\b|^(\d+)(?:\.0+)?$"
)
_NOTED = re.compile(
    r"\bzero[-_ ]?(?:stage[-_ ]?)?[1-3]\b(?![-\w])|\bhsdp\b(?: \(?\d+ ?x ?\d+\)?)?"
    r"|\b(?:hybrid_shard|full_shard|shard_grad_op)\b|\bici_fsdp_parallelism ?= ?\d+|\bfsdp[12]?\b",
    re.IGNORECASE,
)
"""What notes call sharding where no column does."""
_NOTED_BESIDE = re.compile(
    rf"{_KEEPS_WEIGHTS}|\bhsdp\b(?: \(?\d+ ?x ?\d+\)?)?|\bhybrid_shard\b"
    r"|\b(?:dp|data_parallel)_replicate(?:_degree)? ?= ?[2-9]\d*|\bici_fsdp_parallelism ?= ?\d+",
    re.IGNORECASE,
)
"""What notes say of it where its column says no more than FSDP."""
_OPTIMIZER = re.compile(r"\bdist(?:ributed)?[-_ ]opt(?:imi[sz]er)?\b|_distributed_optimizer\b", re.IGNORECASE)
"""Megatron's word for ZeRO-1 (`--use-distributed-optimizer`)."""
_FSDP_ALONE = re.compile(r"(?:pytorch(?:'s)? )?fsdp[- _]?[12]?|fully_shard|zero[- _]?3 ?[(/,] ?fsdp[12]?\)?")
_WEIGHT_RANKS = re.compile(
    r"\b(?:wp|weight[- _]parallel(?:ism)?(?:[- _](?:size|degree))?)(?:[ =:(]*(?:of )?)([2-9]|[1-9]\d{1,4})\b(?![.\d])"
    r"|\bweight ?= ?dict\( ?size ?= ?([2-9]|[1-9]\d{1,4})\b",
    re.IGNORECASE,
)
"""Ranks that share weights, which ISP gathers layer by layer and drops again (`weight` in the configuration of InternEvo)."""
_FSDP_2 = re.compile(
    r"^(?!.*(megatron|simple_?fsdp)).*(fsdp[- _]?2\b(?!\.)|fully_shard\b|torchtitan|torchtune|automodel|\blingua\b|olmo-?core)"
)
"""PyTorch's `fully_shard` and frameworks of it; what torchtitan calls SimpleFSDP is another, and so is Megatron's FSDP."""
_DIGIT_OF_A_NAME = re.compile(r"zero[- _]?([1-3])\b")


def zero_stage(written: str) -> int | None:
    """Returns what the replicas shard; `None` if the cell says nothing, or does not say what.

    Raises:
        InputError: the cell says something else.
    """
    text = written.lower()
    if re.sub(r"\s*\([^()]*\)$", "", text) in NOTHING_SAID or _DEGREES_ALONE.fullmatch(text):
        return None
    stage = _written_stage(text)
    if stage is None and _leaves_stage_open(text):
        return None
    if stage is None or stage > LAST_STAGE:
        rule = "is not understood; write none, zero1, zero2, zero3, FSDP, HSDP or distributed optimizer"
        raise InputError([Problem(path=COLUMN, value=shown(written), rule=rule)])
    return stage


def _leaves_stage_open(written: str) -> bool:
    """Returns whether a cell says that replicas shard something, but not what."""
    text = written.lower()
    return bool(affirmed(_SOME_STAGE, text)) and _written_stage(text) is None


def told_stage(told: Told, habit: int) -> int | None:
    """Returns the stage that a row states; `None` if the framework's habit applies, which must shard if the row does."""
    written = told.text(COLUMN)
    if not _leaves_stage_open(written):
        return zero_stage(written)
    told.remark(
        COLUMN, "does not say what is sharded; taken as usual for the framework, at least the optimizer"
    )
    return told.default(COLUMN, 1) if habit == 0 else None


def shares_weights(written: str) -> bool:
    """Returns whether a cell says over how many ranks InternEvo's weight parallelism splits the weights."""
    return affirmed(_WEIGHT_RANKS, written) is not None


def named_stage(name: str) -> int | None:
    """Returns the ZeRO stage in a framework's name: the last for FSDP, no sharding for DDP; `None` if it names none."""
    words = (("fsdp", LAST_STAGE), (_BEYOND_STAGES, LAST_STAGE), (r"\bddp\b", 0))
    return _first_stage(name, _DIGIT_OF_A_NAME, words)


def sharded_copies(written: str) -> ShardedCopies:
    """Returns the copies of sharded weights that go with the name of a framework or with what a cell says."""
    return "fsdp-2" if _FSDP_2.search(written.lower()) else "none"


def says_to_shard_again(written: str) -> bool:
    """Returns whether a cell asks for weights to be released after every pass, whatever the framework's default."""
    return bool(affirmed(r"zero[- _]?3|stage[- _]?3|reshard\w*[ _=:]*(true|always)", written))


def keeps_weights(written: str) -> bool:
    """Returns whether a cell asks FSDP2 to keep gathered weights from the forward to the backward pass."""
    return bool(re.search(_KEEPS_WEIGHTS, written.lower()))


def _written_stage(text: str) -> int | None:
    if shares_weights(text):
        return LAST_STAGE
    stage = _first_stage(text, _DIGIT, _STAGES)
    is_none = stage is None and (is_denied(_SHARDING, text) or is_denied(_DIGIT, text))
    return 0 if is_none else stage


def _first_stage(text: str, digit: re.Pattern[str], words: tuple[tuple[str, int], ...]) -> int | None:
    """Returns the stage that a digit gives, else words; `None` where neither does."""
    stage = affirmed_number(digit, text)
    return first_affirmed(words, text) if stage is None else stage


def shard_ranks(written: str, *, replicas: int, node_ranks: int) -> int | None:
    """Returns the size of a shard group, as written or the ranks of a node; `None` if all replicas are one group.

    Args:
        written: such as `megatron-fsdp shard 8`, `HSDP`, `HSDP 2x32` or `FSDP2, dp_replicate=2`.
        replicas: number of ranks that hold the same weights without sharding.
        node_ranks: number of these that share a node.

    Raises:
        ValueError: the replicas cannot be divided into such groups.
    """
    text = written.lower()
    ranks = (
        affirmed_number(_WEIGHT_RANKS, text) or affirmed_number(_GROUP_RANKS, text) or None
    )  # 0 says nothing
    groups = affirmed_number(_GROUPS, text) or None
    is_grouped = ranks or groups or affirmed(f"hsdp|hybrid|mics|{_WITHIN_NODES}", text)
    if not is_grouped or _ACROSS_GROUPS.search(text):
        return None
    if ranks is None:
        ranks, rest = (node_ranks, 0) if groups is None else divmod(replicas, groups)
        if rest or (groups is None and ranks == 1 < replicas):
            raise ValueError(f"{replicas} replicas do not make up such shard groups")
    if 0 < ranks < replicas and replicas % ranks:
        raise ValueError(f"{replicas} replicas do not make up shard groups of {ranks}")
    return ranks if 0 < ranks < replicas else None


def counts_shards(written: str) -> bool:
    """Returns whether a cell says what a shard group is, or shards across all of them."""
    text = written.lower()
    words_for_groups = (_WEIGHT_RANKS, _GROUP_RANKS, _GROUPS, _ACROSS_GROUPS, _WITHIN_NODES)
    return any(affirmed(words, text) for words in words_for_groups)


def with_tensor_degree(cells: Cells) -> Cells:
    """Returns a row with the tensor parallelism named next to its sharding (`FSDP 64, TP 4`), if no column states it."""
    written = cells.text.get(COLUMN, "")
    found = affirmed(_TENSOR, written)
    if found is None or "tp" in cells.numbers or not int(found[1]):
        return cells
    remark = (COLUMN, f"tensor parallelism of {found[1]}, as it says")
    return replace(cells, numbers={**cells.numbers, "tp": float(found[1])}, remarks=(*cells.remarks, remark))


def with_noted_sharding(cells: Cells) -> Cells:
    """Returns a row with the sharding that its notes name, where its column is empty or says less."""
    written, notes = cells.text.get(COLUMN, ""), of_this_run(cells.text.get("notes", ""))
    is_empty = written.lower() in NOTHING_SAID
    found = _noted_words(cells, written, notes, is_empty=is_empty)
    if found is None and is_empty and _may_lack_optimizer(cells) and is_denied(_OPTIMIZER, notes):
        return _with_sharding(cells, "none", "no distributed optimizer, as the notes say")
    if found is None:
        return cells
    return _with_sharding(cells, found if is_empty else f"{written}, {found}", f"{found}, as the notes say")


def _noted_words(cells: Cells, written: str, notes: str, *, is_empty: bool) -> str | None:
    """Returns the words of the notes that say more of sharding than the column does; `None` where none do."""
    meanings = [_WEIGHT_RANKS] if _is_interns(cells) and not shares_weights(written) else []
    if is_empty:
        meanings += [_NOTED, *([_OPTIMIZER] if _may_lack_optimizer(cells) else [])]
    elif _FSDP_ALONE.fullmatch(written.lower()):
        meanings.append(_NOTED_BESIDE)
    found = (affirmed(words, notes) for words in meanings)
    return next((match[0] for match in found if match), None)


def _with_sharding(cells: Cells, said: str, meaning: str) -> Cells:
    return replace(cells, text={**cells.text, COLUMN: said}, remarks=(*cells.remarks, (COLUMN, meaning)))


def _may_lack_optimizer(cells: Cells) -> bool:
    """Returns whether the name of a framework leaves it open what is sharded."""
    return named_stage(cells.text.get("framework", "").lower()) is None


def _is_interns(cells: Cells) -> bool:
    """Returns whether a row speaks of InternEvo or of its ISP, whose ranks share weights."""
    words = " ".join(cells.text.get(name, "") for name in ("framework", "source", "sp", COLUMN))
    return re.search(r"intern[- _]?(?:evo|lm)|\bisp\b", words, re.IGNORECASE) is not None


def told_shard_ranks(told: Told, *, replicas: int, node_ranks: int, context: int) -> int | None:
    """Returns the size of a row's shard groups, which hold whole sequences; `None` if all replicas are one group.

    torchtitan and Automodel do not count the ranks that share a sequence, although these shard as well (mesh `dp_shard_cp`).

    Args:
        told: the row.
        replicas: number of ranks that hold the same weights without sharding.
        node_ranks: number of these that share a node.
        context: number of ranks that share a sequence.
    """
    written = told.text(COLUMN)
    try:
        ranks = shard_ranks(written, replicas=replicas, node_ranks=node_ranks)
    except ValueError as error:
        told.remark(COLUMN, f"{error}; taken as sharded over all of them")
        return None
    if ranks is None:
        return None
    if not counts_shards(written):
        told.assumed.append(SHARD_GROUPS)
    if context == 1:
        return ranks
    shards_beside = is_torchtitan(told.framework) or is_automodel(told.framework)
    is_beside = shards_beside and affirmed(_GROUP_RANKS, written.lower())
    whole = ranks * context if is_beside else lcm(ranks, context)
    if whole == ranks:
        return ranks
    told.remark(
        COLUMN, f"groups of {ranks} with {context} ranks to a sequence are taken as groups of {whole}"
    )
    return whole if whole < replicas and replicas % whole == 0 else None
