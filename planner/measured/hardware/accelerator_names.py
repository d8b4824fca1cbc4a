"""Which accelerator of the catalogue do people mean by `H100-80GB`, `MI300X` or `GB200 NVL72`?"""

from __future__ import annotations

import difflib
import re
from functools import cache

from planner.input.problems import shown
from planner.measured.hardware.machine_names import accelerator_of_machine
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.hardware import Accelerator
from simulator.errors import CatalogError, InputError, Problem
from simulator.units import GIB

USUAL_NAMES = {
    "v100": "v100-sxm2-32gb",
    "v100sxm2": "v100-sxm2-32gb",
    "v10016gb": "v100-sxm2-16gb",
    "v100pcie": "v100-pcie-32gb",
    "v100s": "v100s-pcie-32gb",
    "v100s32gb": "v100s-pcie-32gb",
    "v100spcie": "v100s-pcie-32gb",
    "a100": "a100-sxm4-80gb",
    "a100sxm": "a100-sxm4-80gb",
    "a100sxm4": "a100-sxm4-80gb",
    "a10040gb": "a100-sxm4-40gb",
    "a10064gb": "a100-sxm4-64gb",
    "a100sxm64gb": "a100-sxm4-64gb",
    "a100sxm40gb": "a100-sxm4-40gb",
    "a100320gb": "a100-sxm4-40gb",
    "a100640gb": "a100-sxm4-80gb",
    "a100pcie": "a100-pcie-80gb",
    "a100sxm80gb": "a100-sxm4-80gb",
    "a800": "a800-sxm4-80gb",
    "a800sxm": "a800-sxm4-80gb",
    "a800pcie": "a100-pcie-80gb",
    "a800pcie80gb": "a100-pcie-80gb",
    "a80080gbpcie": "a100-pcie-80gb",
    "h100": "h100-sxm5-80gb",
    "h100sxm": "h100-sxm5-80gb",
    "h100sxm5": "h100-sxm5-80gb",
    "h100hbm3": "h100-sxm5-80gb",
    "h100nvl": "h100-nvl-94gb",
    "h10094gb": "h100-nvl-94gb",
    "h200": "h200-sxm-141gb",
    "h200sxm": "h200-sxm-141gb",
    "h200nvl": "h200-nvl-141gb",
    "h800": "h800-sxm5-80gb",
    "h800sxm": "h800-sxm5-80gb",
    "h800pcie": "h800-pcie-80gb",
    "h20": "h20-sxm-96gb",
    "h20141gb": "h20-sxm-141gb",
    "h203e": "h20-sxm-141gb",
    "h203e141gb": "h20-sxm-141gb",
    "l40s": "l40s-pcie-48gb",
    "l40s48gb": "l40s-pcie-48gb",
    "b200": "b200-sxm-180gb",
    "b200sxm": "b200-sxm-180gb",
    "b300sxm": "b300",
    "b300ultra": "b300",
    "b300blackwellultra": "b300",
    "gh200": "gh200-96gb",
    "gh200120gb": "gh200-96gb",
    "gh200480gb": "gh200-96gb",
    "gh200141gb": "gh200-144gb",
    "gh200gracehopper": "gh200-96gb",
    "gb200nvl72": "gb200",
    "gb300nvl72": "gb300",
    "gb200graceblackwell": "gb200",
    "gb300graceblackwell": "gb300",
    "gb300blackwellultra": "gb300",
    "vr200nvl72": "vr200",
    "vrnvl72": "vr200",
    "verarubin": "vr200",
    "verarubinnvl72": "vr200",
    "rubin": "vr200",
    "rubinsxm": "vr200",
    "r200": "vr200",
    "mi250": "mi250x",
    "mi250gcd": "mi250x-gcd",
    "mi250x1gcd": "mi250x-gcd",
    "mi250x64gb": "mi250x-gcd",
    "mi300": "mi300x",
    "mi325": "mi325x",
    "mi350": "mi350x",
    "mi355": "mi355x",
    "mi455": "mi455x",
    "mi455xhelios": "mi455x",
    "gaudi2hl225": "gaudi2",
    "gaudi2d": "gaudi2",
    "hlsgaudi2": "gaudi2",
    "hl325l": "gaudi3",
    "tpuv5lite": "tpu-v5e",
    "tpuv5litepod": "tpu-v5e",
    "trillium": "tpu-v6e",
    "tputrillium": "tpu-v6e",
    "trilliumtpu": "tpu-v6e",
    "ironwood": "tpu-v7",
    "ironwoodtpu": "tpu-v7",
    "ironwoodtpuv7x": "tpu-v7",
    "tpuironwood": "tpu-v7",
    "tpu7x": "tpu-v7",
    "tpuv7x": "tpu-v7",
    "trainium": "trainium1",
    "trn1": "trainium1",
    "trn1n": "trainium1",
    "trainiumneuroncore": "trainium1-core",
    "trainium1neuroncore": "trainium1-core",
    "trn2": "trainium2",
    "trainium2ultra": "trainium2",
    "trn3": "trainium3",
    "ascend910c": "ascend-910c",
    "910c": "ascend-910c",
    "huaweiascend910c": "ascend-910c",
}
"""Catalogue name by what people write, without blanks, hyphens, makers and, where it says nothing new, memory. Drivers call a
GH200 by the memory of its processor, 120 or 480 GB, and a DGX A100 has that of eight. An A800 on PCIe differs from an A100 in
its bridges alone, which are not modelled."""

_MAKERS = re.compile(
    r"^(custom|nvidia|amd|instinct|intel|habana|google|aws|cloud|hpu|tesla|hgx|dgx2h?(?=v)|dgx|superpod"
    r"|volta(?=v)|ampere|(grace)?hopper(?=g?h)|(grace)?blackwell(ultra)?(?=g?b))+"
)
"""Who makes a device, what it is built into, and its architecture."""
_MEMORY = re.compile(
    r"(?<!highgpu)(?<!megagpu)(?<!ultragpu)(?:^|[\s_(,/-]+)(\d{1,5})\s*G(?:i?B)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
"""Not the accelerators of a machine, as in `a3-megagpu-8g`."""
_BARE_MEMORY = re.compile(
    r"(?<![a-wyz0-9])([ahbv]\d{2,3}(?:[\s_-]*(?:SXM\d?|PCIe))?)[\s_-]+(16|32|40|64|80|9[46]|141|180|192|288)\s*$",
    re.IGNORECASE,
)
"""A memory without its unit behind a card of NVIDIA, as in `A100-80` or `a100-sxm-80`."""
_FORM = re.compile(
    r"[\s_(,-]+(SXM\d?|OAM|custom|HBM\d?e?|Tensor[\s_-]?Core|(?:\d{1,2}-)?GPUs?|HGX|DGX(?:-?[12]H?)?|NVLink\d?|NVSwitch|Superchips?)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
"""Words for how a device is built, which tell no two of a name apart once its memory is known."""
_COUNT = re.compile(
    r"^\s*(?:\d+\s*[xX\u00d7*]\s*){0,2}\d+\s*(?:[xX\u00d7*]\s*|\s)(?=[A-Za-z])|\s+[xX\u00d7]\s*\d+\s*$|\s+\d+\s*[xX\u00d7]\s*$"
    r"|(?<=\d)(?<!NVL\d\d)\s*[x\u00d7*]\s*\d+\s*$"
)
"""How many there are of a device, before or behind its name."""
_PLURAL = re.compile(r"(?<=\d)(?<!\bl40)s\b")
"""As in `H100s`; `V100S` and `L40S` are other cards than those without the letter."""
_DOMAIN = re.compile(r"[\s_-]+NVL(\d{1,3})(?:x(\d))?\b(?:\s+racks?\b)?", re.IGNORECASE)
_ASIDE = re.compile(r"\s*\(([^()]*)\)")
"""A word behind a name, in brackets: another name, a machine, or what one of them is."""
_INSTANCE = re.compile(r"\b(trn\d)[nu]?\.\d+xlarge\b", re.IGNORECASE)
"""Machines of AWS that are called by their accelerators."""
_OTHER_INSTANCE = re.compile(r"[\s_(,-]+p(?:4de|5\w{0,2}|6\w{0,8})(?:-\w+)?\.\d+xlarge\b\)?", re.IGNORECASE)
"""Those that are not, behind the name of what they have."""
_P4D = re.compile(r"(?<=a100)[\s_(,-]+p4d\.24xlarge\b\)?", re.IGNORECASE)
"""The one whose name tells that an A100 has 40 GB."""
_GENERATION = re.compile(
    r"\b(?:tpu[\s_-]*(?=v?\d|[ti])|(?=v[3-7][a-z]{0,7}-))(v?\d[a-z]*|trillium|ironwood)"
    r"(?:[\s_-]+(?:\d+|pod|slice|trillium|ironwood))*\s*$",
    re.IGNORECASE,
)
"""A generation of TPU with its slice (`v5e-256`, whose number counts chips or cores) or its other name."""
_DEVICE = re.compile(
    r"[\s_-]+(?:chips?|HPUs?|HL-?\d+[A-Z]?|nodes?|servers?|machines?|(?:UBB[\s_-]+)?boards?)$", re.IGNORECASE
)
"""What a device is called, what it is in, or its order number, behind its name."""
_OLD_MEMORY = (
    (re.compile(r"h100.*nvl(94gb|(?!\d))|h100.*pcie.*94gb|h100.*94gb.*pcie"), "h100nvl94gb"),
    (re.compile(r"h100(sxm5?)?.*64gb"), "h100sxm564gb"),
    (re.compile(r"h100.*80gb.*hbm2e|h100.*hbm2e.*80gb|h100.*pcie"), "h100pcie80gb"),
    (re.compile(r"h100(sxm5?)?(?=.*(9[56]gb|hbm2e))|h100sxm5?(?=.*94gb)"), "h100sxm596gb"),
)
"""H100 NVL, and those with HBM2e: cards of 80 GB, modules of 64 GB, and of 96 GB, which drivers show as 94 or 95, of less power
than their namesakes."""
_WORD = re.compile(r"[^\s_,;/()]+")
_BESIDE = re.compile(
    r"(?!mig$|pcie|nvl|sxm|gcd|half$|lite$|max$|super$|ti$|cnx$|ultra$|cpx$)[a-z][\w.-]*|\d+ ?w|hl-?\d+[a-z]?",
    re.IGNORECASE,
)
"""Words beside a name that make no other device of it: a machine's name, a power."""
_LIKE = (
    (r"b100", "b200-sxm-180gb"),
    (r"mi300a", "mi300x"),
    (r"mi1\d0|mi210", "mi250x-gcd"),
    (r"l4$|l4\d*gb|l40|(geforce)?(rtx)?[45]0[5-9]0|rtx(pro|\d000ada)", "l40s-pcie-48gb"),
    (r"a(10g?|16|30|40)($|\d*gb)|(rtx)?a[456]000|(geforce)?(rtx)?30[5-9]0", "a100-pcie-40gb"),
    (r"t4$|(titan|quadro)|(geforce)?(rtx)?20[5-9]0", "v100-pcie-16gb"),
)
"""Devices that the catalogue lacks, and what it has that is nearest in architecture and memory."""
_MOST_NEAR = 4
"""Names that a reason proposes at most."""
MEMORY_DIFFERS_BY = 0.1
"""Memory that is written differs by at most so much from the catalogue's: 192 GB of a B200 are 180 GB in use."""


def accelerator_id(name: str, *, path: str = "gpu") -> str:
    """Returns the catalogue name of an accelerator.

    Args:
        name: as somebody writes it.
        path: where it is written, for error messages.

    Raises:
        CatalogError: neither a catalogue name nor a usual one.
        InputError: the catalogue has the accelerator with another memory only.
    """
    named = _known(name)
    if named is None and (inside := accelerator_of_machine(name) or name_among_words(name)):
        return inside
    if named is None:
        raise CatalogError([Problem(path=path, value=name, rule=_unknown_rule(name))])
    accelerator = catalog.accelerator(named, path=path)
    _check_memory(name, _with_unit(name), accelerator, path)
    return accelerator.id


def name_among_words(name: str) -> str | None:
    """Returns the only accelerator that some of the words name, where all of them name none and the others are harmless."""
    if _known(name) or accelerator_of_machine(name):
        return None
    words = list(_WORD.finditer(name))
    for count in range(len(words) - 1, 0, -1):
        named = set()
        for start in range(len(words) - count + 1):
            others = [*words[:start], *words[start + count :]]
            if all(_BESIDE.fullmatch(word[0]) for word in others):
                named.add(_known(name[words[start].start() : words[start + count - 1].end()]))
        if found := named - {None}:
            return found.pop() if len(found) == 1 else None
    return None


def _known(name: str) -> str | None:
    """Returns the catalogue name of an accelerator by all that is written; `None` where it is that of none."""
    return _known_among(name, catalog.names(Kind.ACCELERATORS))


@cache
def _known_among(name: str, accelerators: tuple[str, ...]) -> str | None:
    known = _spellings_of(accelerators) | USUAL_NAMES
    spellings = (spelling for reading in _readings(_with_unit(name)) for spelling in _spellings(reading))
    return next((known[spelling] for spelling in spellings if spelling in known), None)


def _with_unit(name: str) -> str:
    return _BARE_MEMORY.sub(r"\1-\2GB", name)


def _unknown_rule(name: str) -> str:
    """Returns why an accelerator is not known, with those that are nearest to it."""
    plain = _without_maker(name)
    known = catalog.names(Kind.ACCELERATORS)
    like = next((near for words, near in _LIKE if re.match(words, plain)), None)
    of_family = [one for one in known if catalog.accelerator(one).family == _plain(name)]
    spelt = difflib.get_close_matches(plain, _catalog_spellings(), n=3, cutoff=0.6)
    near = [like] if like else of_family or [_catalog_spellings()[spelling] for spelling in spelt]
    nearest = f"; nearest: {', '.join(near[:_MOST_NEAR])}" if near else ""
    return f"is not among the catalogue's accelerators{nearest}; `capplan catalog accelerators` lists all"


def _readings(name: str) -> tuple[str, ...]:
    """Returns the names that may be meant, the likeliest first: all that is written, then what is aside or around it."""
    name = _OTHER_INSTANCE.sub("", _P4D.sub(" 40GB", name))
    around, aside = _ASIDE.sub("", name), _ASIDE.findall(name)
    shorter = [
        _DEVICE.sub("", _GENERATION.sub(r"TPU\1", _INSTANCE.sub(r"\1", _COUNT.sub("", each))))
        for each in (around, *aside)
    ]
    memories = (_MEMORY.search(each) for each in aside)
    sized = [f"{around} {memory[1]}GB" for memory in memories if memory]
    return (name, *sized, around, *aside, *shorter)


def _spellings(name: str) -> tuple[str, ...]:
    """Returns how the catalogue may spell a name: all of it first, then without the words that say nothing new."""
    of_one = _PLURAL.sub("", _COUNT.sub("", name))
    plain = _without_maker(_MEMORY.sub(r"-\1GB", of_one))
    plain = next((known for words, known in _OLD_MEMORY if words.match(plain)), plain)
    without_memory = _MEMORY.sub("", of_one)
    without_form = _FORM.sub("", without_memory)
    memory = _MEMORY.search(of_one)
    with_memory = [
        f"{_without_maker(each)}{memory[1]}gb" for each in (without_memory, without_form) if memory
    ]
    without = [without_memory, without_form, _DOMAIN.sub("", without_form)]
    return (plain, f"tpu{plain}", *with_memory, *map(_without_maker, without))


def link_domain_of(name: str) -> int | None:
    """Returns how many accelerators share a scale-up link by what follows their name, as in `GB200 NVL36` or `NVL36x2`."""
    found = _DOMAIN.search(name)
    return int(found[1]) * int(found[2] or 1) if found else None


def _without_maker(name: str) -> str:
    return _MAKERS.sub("", _plain(name))


def _check_memory(name: str, with_unit: str, accelerator: Accelerator, path: str) -> None:
    """Refuses a name whose memory is not that of the accelerator; names of the catalogue are its own business."""
    written, known = _MEMORY.search(with_unit), accelerator.memory_bytes / GIB
    if written is None or accelerator.id == name or _without_maker(name) in USUAL_NAMES:
        return
    if abs(int(written[1]) / known - 1.0) <= MEMORY_DIFFERS_BY:
        return
    rule = f"has another memory than {accelerator.id} ({known:.0f} GiB); without a memory it is taken for that one"
    raise InputError([Problem(path=path, value=shown(name), rule=rule)])


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _catalog_spellings() -> dict[str, str]:
    return _spellings_of(catalog.names(Kind.ACCELERATORS))


@cache
def _spellings_of(accelerators: tuple[str, ...]) -> dict[str, str]:
    return {_plain(name): name for name in accelerators}
