"""Which number does a cell of a measured run hold? With the separators, units and words that people add to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simulator.units import GIB, GIGA, KIB, KILO, MEGA, MIB, MILLISECOND

_NUMBER = r"(?P<about>[~\u2248]\s*)?(?P<number>\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,9})?|\d{1,16}(?:\.\d{1,17})?)"
_WRITTEN = re.compile(rf"{_NUMBER}\s*(?P<scale>[kKM](?![A-Za-z]))?\s*\(?(?P<unit>[^\d()]*)\)?")
_EXPLAINED = re.compile(r"([^()]+?)\s*\([^()]*\)")
_IN_TOKENS = re.compile(
    rf"{_NUMBER}\s*(?:(?P<million>M|million)|(?P<thousand>K))?\s*(?P<unit>tok(?:en)?s?)?", re.IGNORECASE
)
_COMMA = re.compile(r"\s*(\d{1,3}(?:\.\d{3})+|\d+),(\d+)(?![\d.,])")
_DECIMAL_COMMA = re.compile(r"\s*(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,(?!\d{3}(?!\d))\d+)(?![\d.,])")
_UNSURE_COMMA = re.compile(r"\s*\d{1,3},\d{3}(?![\d.,])")
_THOUSANDS_BY_POINTS = re.compile(r"\s*\d{1,3}(?:\.\d{3})+(?![\d.,]|\s*(?:[kKM](?![a-z])|million))")
_POINT_SEPARATOR = re.compile(r"(?<=\d)\.(?=\d{3})")
_BLANK_SEPARATOR = re.compile(r"(?<=\d)[ '\u00a0\u2009\u202f\u2019](?=\d{3}(?!\d))")
"""Between thousands, as many languages write them: `16 384`, `16'384`."""
_POWER_OF_TWO = re.compile(r"\b2\s?(?:\^|\*\*)\s?(\d{1,2})\b")
"""As in `2^22 tokens`."""
MOST_SEQUENCES = 2**18
"""A bare batch size above this number counts tokens, not sequences: the smallest batch usually stated in tokens is 2^19, half a
million, and no published step has as many sequences."""
MOST_ROUNDED_FRACTION = 0.05
"""Share of a batch that rounding its millions or thousands of tokens takes away at most."""
MOST_BINARY_DIGITS = 2
"""Digits of a number of tokens up to which a million may be 2^20 and a thousand 1,024: `4M`, `0.5M`, `16M`,
but not `62.5M`; and powers of two: `512K`."""
_PRODUCT = re.compile(
    r"(\d{1,6})(?:\s*(?:nodes?|servers?|hosts?))?\s*[x\u00d7*]\s*(\d{1,6})(?:\s*gpus?)?", re.IGNORECASE
)
"""Nodes times accelerators: `16x8`, `16 nodes x 8 GPUs`."""
_NAMED_DEVICES = re.compile(
    r"(?<=\d)\s*[x\u00d7]?\s*(?:nvidia |amd )?(?:[ablhv]|g[bh]|mi)\d{2,3}x?s?(?= gpus?|$)", re.IGNORECASE
)
"""What is counted, by its name: `64 H100s`, `8xH100`, `64 B200 GPUs`."""
_THOUSANDS = ("vocab", "tokens_per_s_per_gpu")
"""Columns in which `k` is 1,000; sizes of networks, batches and clusters are counted in powers of two."""
_SPANS = ("seq_len", "window")
"""Columns of tokens that are powers of two more often than not."""
LEAST_DIGITS = 2
_DEVICES = (("gpus?|cards?|chips?|devices?|accelerators?|[htn]pus?", 1.0),)
_OF_A_NODE = ((rf"({_DEVICES[0][0]})? ?(/|per|a|each)? ?(node|server|host|tray)?", 1.0),)
_TOKENS = (("tokens?", 1.0),)
_SEQUENCES = (("seqs?|sequences?|samples?", 1.0),)
_WAYS = (("-? ?ways?|ranks?", 1.0),)
_HEADS = (("gqa|mqa|mha|kv|(kv[- ])?heads?|groups?", 1.0),)
_UNITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "n_gpus": _DEVICES,
    "gpus_per_node": _OF_A_NODE,
    "seq_len": _TOKENS,
    "window": _TOKENS,
    "mean_document": _TOKENS,
    "tokens_per_image": _TOKENS,
    "images_per_sequence": (("images?|pictures?|tiles?|frames?", 1.0),),
    "global_batch": _SEQUENCES,
    "micro_batch": (
        (r"(seqs?|sequences?|samples?)?\s*((per|a|/) ?(gpu|device|chip|accelerator|rank|replica))?", 1.0),
    ),
    **dict.fromkeys(("tp", "cp", "ep", "etp", "dp"), _WAYS),
    "pp": (*_WAYS, ("(pipeline )?stages?", 1.0)),
    "vpp": (("((model|virtual) )?chunks?( (per|a) (stage|rank))?|virtual stages?|stages (per|a) rank", 1.0),),
    "experts": (("(routed )?experts?|routed", 1.0),),
    "topk": (("(active |routed )?experts?( (per|a) token)?|active|routed", 1.0),),
    "layers": (("layers?", 1.0),),
    "heads": _HEADS,
    "kv_heads": _HEADS,
    "step_time_s": (
        (r"s(ec(ond)?s?)?(/\w+)?", 1.0),
        (r"ms(/\w+)?", MILLISECOND),
    ),
    "tokens_per_s_per_gpu": ((r"(tok(en)?s?(/s(ec(ond)?)?)?|tgs|tps)(/(gpu|device|chip))?", 1.0),),
    "peak_mem_gib_per_gpu": (("gib", 1.0), ("gb?", GIGA / GIB), ("mib", MIB / GIB), ("mb", MEGA / GIB)),
}
"""Units that may follow the numbers of a column, and their size in the column's own unit."""
_DECIMAL = re.compile("gb?|mb", re.IGNORECASE)
"""Units of memory that some write for binary ones."""
_WORDS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "kv_heads": (("mqa|multi-query", 1.0),),
    "mlp_matrices": (
        (r"(swi|ge|re)?glu|gated( \w+)?", 3.0),
        (r"gelu|relu|relu\^?2|squared[- ]relu|plain|not gated|ungated", 2.0),
    ),
}
"""Words that are numbers of a column."""
_OWN_NAMES: Mapping[str, str] = {
    **{name: name for name in ("tp", "pp", "ep", "etp", "dp")},
    "cp": "cp|ulysses|ring",
    "vpp": "vpp?",
    "micro_batch": "mbs",
    "global_batch": "gbs",
    "topk": "top-?k?",
}
"""What people write before the numbers of a column: `EP64`, `TP=8`, `top-2`."""
_OF_ALL = re.compile(r"(\d{1,6})\s*(?:of|/|out of)\s*(\d{1,6})")
"""Experts of a token among all: `8 of 256`."""
_BESIDE_SHARED = re.compile(
    r"(\d{1,6}[a-z ]*?)\s*(?:(?:\+|,|and|plus)\s*(\d{0,2})\s*shared\b[a-z ]*|\+\s*(\d{1,2}))", re.IGNORECASE
)
"""Routed experts, and shared ones, which have a column of their own: `256 routed + 1 shared`, `256+1`."""
_SPREAD = re.compile(r"(?<=\d)\s*(?:\u00b1|\+/-)\s*\d{1,9}(?:\.\d{1,9})?%?")
"""What repeated measurements differ by: `2.13 \u00b1 0.02`."""
_NOT_USED = re.compile("no|off|false|disabled|dense", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Number:
    """What a cell says, in the unit of its column."""

    value: float
    is_exact: bool = True
    """Whether this is exactly what was written, and not an interpretation."""


def number_in(column: str, cell: str, *, may_be_0: bool) -> Number | None:
    """Returns the number in a cell; `None` if there is none.

    Args:
        column: its name.
        cell: what is written, trimmed.
        may_be_0: whether 0 means `not used` in the column.
    """
    cell = _plain(_without_name(column, cell))
    if (mean := _SPREAD.sub("", cell)) != cell:
        return _inexact(number_in(column, mean, may_be_0=may_be_0))
    if column in ("n_gpus", "gpus_per_node"):
        cell = _NAMED_DEVICES.sub("", cell)
    try:
        return Number(value=float(cell))
    except ValueError:
        pass
    if may_be_0 and _NOT_USED.fullmatch(cell):
        return Number(value=0.0)
    words = _meaning(_WORDS.get(column, ()), cell)
    if words is not None:
        return Number(value=words)
    if column == "n_gpus" and (product := _PRODUCT.fullmatch(cell)):
        return Number(value=float(int(product[1]) * int(product[2])), is_exact=False)
    if column == "topk" and (found := _OF_ALL.fullmatch(cell)) and int(found[1]) <= int(found[2]):
        return Number(value=float(found[1]))
    if column in ("experts", "topk") and (beside := _BESIDE_SHARED.fullmatch(cell)):
        return _inexact(_with_words(column, beside[1]))
    if explained := _EXPLAINED.fullmatch(cell):
        outside = number_in(column, explained[1], may_be_0=may_be_0)
        return _with_words(column, cell) or _inexact(outside)
    return _with_words(column, cell)


def shared_experts_in(column: str, cell: str) -> int:
    """Returns how many shared experts a cell lists with the routed ones: 1 of `256 routed + 1 shared`, 0 of `256`."""
    beside = _BESIDE_SHARED.fullmatch(_plain(_without_name(column, cell)))
    return int(beside[2] or beside[3] or 1) if beside else 0


def has_decimal_comma(cell: str) -> bool:
    """Returns whether the comma in a cell can only be a decimal mark: `7,17`, `1.234,5`."""
    return bool(_DECIMAL_COMMA.match(cell))


def has_unsure_comma(cell: str) -> bool:
    """Returns whether the comma in a cell may be a decimal mark or separate thousands: `7,173`."""
    return bool(_UNSURE_COMMA.match(cell))


def with_point(cell: str) -> str:
    """Returns a cell with a decimal point in the place of its decimal comma: `7,173`, `1.234,5`."""
    found = _COMMA.match(cell)
    return f"{found[1].replace('.', '')}.{found[2]}{cell[found.end() :]}" if found else cell


def without_points(cell: str) -> str:
    """Returns a count without the points between its thousands, as they stand where commas are decimal marks: `4.096`."""
    return _POINT_SEPARATOR.sub("", cell) if _THOUSANDS_BY_POINTS.match(cell) else cell


def with_powers_as_numbers(text: str) -> str:
    """Returns a text with its powers of two multiplied out: `2^22 tokens`."""
    return _POWER_OF_TWO.sub(lambda power: str(2 ** int(power[1])), text)


def _plain(cell: str) -> str:
    """Returns a cell without blanks between thousands and without powers."""
    return with_powers_as_numbers(_BLANK_SEPARATOR.sub("", cell))


def _without_name(column: str, cell: str) -> str:
    """Returns a cell without the name of its column in front of a number."""
    names = _OWN_NAMES.get(column)
    return re.sub(rf"^(?:{names})[ =:_-]*(?=\d)", "", cell, flags=re.IGNORECASE) if names else cell


def _inexact(number: Number | None) -> Number | None:
    return None if number is None else Number(value=number.value, is_exact=False)


def sequences_in(cell: str, seq_len: float | None) -> Number | None:
    """Returns the sequences of a batch that is counted in tokens; `None` where it is not, or their length is not known.

    Of the whole batches that millions (of 2^20, or of 10^6 and rounded) may mean, the one with most factors of two is meant:
    `4.2M tokens` are 512 sequences of 8,192. Thousands likewise.
    """
    found = _IN_TOKENS.fullmatch(_plain(cell))
    if found is None or not seq_len:
        return None
    size = float(found["number"].replace(",", ""))
    is_large = size > max(MOST_SEQUENCES, seq_len)
    if not (found["million"] or found["unit"] or is_large):
        return None
    units = (MIB, MEGA) if found["million"] else (KIB, KILO) if found["thousand"] else None
    whole = round(size / seq_len) if units is None else _rounded_batch(found["number"], *units, seq_len)
    return Number(value=float(whole), is_exact=False)


def _rounded_batch(number: str, binary: float, decimal: float, seq_len: float) -> int:
    """Returns the sequences of a batch whose tokens are given in thousands or millions, which are binary or rounded."""
    size, num_digits = float(number.replace(",", "")), len(re.sub(r"\D", "", number).lstrip("0"))
    away = min(0.5 * 10.0 ** -len(number.partition(".")[2]), MOST_ROUNDED_FRACTION * size)
    least, most = ((size + side) * decimal / seq_len for side in (-away, away))
    possible = [round(size * decimal / seq_len), *_roundest(math.ceil(least), math.floor(most))]
    may_be_binary = num_digits <= MOST_BINARY_DIGITS or math.log2(size).is_integer()
    if may_be_binary and (size * binary / seq_len).is_integer():
        possible.append(int(size * binary / seq_len))
    return max(possible, key=lambda count: count & -count)


def _roundest(least: int, most: int) -> Iterator[int]:
    """Yields the multiple of the largest power of two in a range of positive numbers, where it has any."""
    for power in range(most.bit_length(), -1, -1):
        if (multiple := most >> power << power) >= max(1, least):
            yield multiple
            return


def _with_words(column: str, cell: str) -> Number | None:
    found = _WRITTEN.fullmatch(re.sub(r"^(gqa)[- (]+", "", cell, flags=re.IGNORECASE))
    return _with_unit(column, found) if found else None


def _with_unit(column: str, found: re.Match[str]) -> Number | None:
    """Returns a number in the unit of its column; `None` where the words behind it are no unit of the column's."""
    unit = found["unit"].strip()
    factor = _meaning(_UNITS.get(column, ()), unit) if unit else 1.0
    if factor is None:
        return None
    is_exact = not (found["scale"] or found["about"] or _DECIMAL.fullmatch(unit))
    scaled = _scaled(column, found["number"].replace(",", ""), found["scale"])
    return None if scaled is None else Number(value=scaled * factor, is_exact=is_exact)


def _scaled(column: str, number: str, scale: str | None) -> float | None:
    """Returns a number with what `k` or `M` stands for; `None` where the column is not counted in such.

    Those are 1,024 where that gives a whole number, but in columns of thousands; `131k` tokens are the power of two nearby.
    """
    size = float(number)
    if scale is None:
        return size
    if scale == "M" and column not in _SPANS:
        return None
    thousand, binary = (MEGA, MIB) if scale == "M" else (KILO, KIB)
    if column in _SPANS and (power := _power_of_two(number, thousand)):
        return power
    is_binary = column not in _THOUSANDS and math.isclose(size * binary, round(size * binary))
    return size * (binary if is_binary else thousand)


def _power_of_two(number: str, thousand: float) -> float | None:
    """Returns the power of two of which a rounded or cut number of two and more digits gives the first; else `None`."""
    digits = len(number.partition(".")[2])
    if len(number.replace(".", "")) < LEAST_DIGITS or not float(number):
        return None
    power = 2.0 ** round(math.log2(float(number) * thousand))
    return power if abs(power / thousand - float(number)) < 10.0**-digits else None


def _meaning(meanings: tuple[tuple[str, float], ...], text: str) -> float | None:
    return next(
        (value for words, value in meanings if re.fullmatch(words, text, re.IGNORECASE)),
        None,
    )
