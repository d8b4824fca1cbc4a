"""Which network do people mean by `NVLink3 node + 8x200G HDR InfiniBand` or `400 Gb/s per GPU`, and how fast is it?

A rate is used only where the text says how many links it is for: the cards of a node, a whole node, or each accelerator. `Gb`
are bits and `GB` are bytes. Rates of the scale-up link (NVLink, xGMI), which are quoted in bytes, come from the catalogue.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from planner.input.problems import shown
from planner.measured.cells.words import affirmed
from planner.measured.hardware.machine_names import machine_of
from simulator import catalog
from simulator.errors import InputError, Problem
from simulator.units import GIGA, KILO, gigabits_per_s

_SLOW = r"(?<![\d.])[1-5]?\d(?:\.\d{1,6})?\s?(?-i:[Gg]b)(?:it)?(?:/s|ps)"
"""Less than 60 Gb/s, which one card of Ethernet has, or a virtual machine."""
_ETHERNET = "roce|ethernet|spectrum-?x"
_ALONE = r"(?:(?<!\w)|(?<=\d[xX]))"
"""Before a rate that is no part of another name, as of an A800, but may be one of several cards."""
_INFINIBAND = re.compile(r"infiniband|\bib\b", re.IGNORECASE)
_GENERATIONS_GBIT_PER_S = {"xdr": 800.0, "ndr": 400.0, "hdr": 200.0, "edr": 100.0}
"""Rate of a port of InfiniBand; a number behind the name (`HDR100`) is that of a split one."""


def _infiniband(gbit_per_s: float) -> str:
    """Returns how people write InfiniBand of a rate: `400 Gb/s InfiniBand`, `IB 400G`."""
    words = r"(?:infiniband|\bib\b)"
    return rf"{_ALONE}{gbit_per_s:.0f}\s?G?\W*(gb?(it)?(/s|ps) )?{words}|{words}\W*{gbit_per_s:.0f}\s?g"


_FABRICS = (
    ("omni-?path", "omni-path"),
    ("slingshot", "slingshot-11"),
    (r"\befa", "efa-400g"),
    (r"\bxdr(800)?\b|quantum[- ]?x800", "infiniband-xdr"),
    (r"\bndr(200|400)?\b|quantum[- ]?2\b", "infiniband-ndr"),
    (r"\bhdr(100|200)?\b", "infiniband-hdr"),
    (r"\bedr(100)?\b", "infiniband-edr"),
    *((_infiniband(rate), f"infiniband-{name}") for name, rate in _GENERATIONS_GBIT_PER_S.items()),
    (rf"{_ALONE}800G?.*({_ETHERNET})", "ethernet-roce-800g"),
    (rf"^(?!.*infiniband).*({_ETHERNET}|tcpx|gbe\b|{_SLOW})", "ethernet-roce-400g"),
    ("tpu|jupiter|dcn", "tpu-dcn"),
)
"""Fabrics by what their descriptions contain; what is not told apart is the usual fabric of the accelerator."""
_PARTS = re.compile(r"[+;,()&]|\band\b", re.IGNORECASE)
_SCALE_UP = re.compile(r"nv-?link|nv-?switch|xgmi|infinity fabric|\bici\b|neuron-?link", re.IGNORECASE)
_RATE = (
    r"(?:(?P<size>\d{1,6}(?:\.\d{1,6})?)\s*(?P<prefix>[GTgt])(?P<unit>(?:b(?:it)?|B)(?:/s|ps)|b(?:it|E)?\b|\b)"
    r"|(?P<generation>(?i:[EHNX]DR))[ -]?(?P<port>100|200|400|800)?\b)"
)
_CARDS = re.compile(
    rf"\b(?P<count>\d{{1,4}})\s*(?:[xX\u00d7]\s*|(?i:NICs?|HCAs?|cards?|ports?|rails?)\b\s*(?:of|with|at|@|x|:)?\s*){_RATE}"
)
_TIMES = re.compile(r"(?<=\d)\s*\*\s*(?=\d)")
_KINDS_OF_CARDS = (
    r"(?:NVIDIA|Mellanox|CX|ConnectX|BlueField|Broadcom|Thor|AMD|Pensando|Pollara|HPE|Cray|Slingshot|Cassini|InfiniBand|IB|RoCE"
    r"|EFA|NICs?|HCAs?)"
)
_NO_COUNT = re.compile(
    r"\b(ConnectX|CX|BlueField|BF|Thor|Quantum|Spectrum|Slingshot|NVLink)[ -]?\d{1,2}\b"
    r"|\b(PCIe)[ -]*(?:gen[ -]?)?\d?(?:\.\d)?[ -]*x\d{1,2}\b",
    re.IGNORECASE,
)
"""Generations of cards, switches and links, and lanes of a bus, whose numbers count nothing: `CX7`, `Quantum-2`,
`PCIe 5.0 x16`."""
_COUNTED = (
    _CARDS,
    re.compile(rf"\b(?P<count>\d{{1,2}})(?:\s*[xX\u00d7]\s*|\s+)(?:{_KINDS_OF_CARDS}[ -]+){{1,3}}{_RATE}"),
    re.compile(rf"(?<![\w.-])(?<!(?i:gen) )(?P<count>\d{{1,2}})\s+(?=(?i:[EHNX]DR)){_RATE}"),
    re.compile(
        rf"\b(?P<count>\d{{1,2}})\s+{_RATE}\s*(?:IB|InfiniBand|RoCE)?\s*(?i:NICs?|HCAs?|cards?|ports?|rails?)\b"
    ),
    re.compile(
        rf"(?<![\w.]){_RATE}(?:|[^\d]{{0,12}}?(?:(?<![A-Za-z])|(?<=(?i:[EHNX]DR))))[xX\u00d7]\s*(?P<count>\d{{1,2}})\b(?!\s*(?i:nodes?|gpus?))"
    ),
)
"""Cards and the rate of one: `8x400G`, `8x CX7 400G`, `8 HDR200`, `4 HDR HCAs`, `400G x8`."""
_BARE = re.compile(r"(?<![\w.])(\d{1,2})\s*[xX\u00d7]\s*(100|200|400|800)\b(?!\s*[GTMgtm])")
"""Cards whose rate has no unit."""
_OF_TWO_PORTS = re.compile(
    r"(?<![\w.])(\d{1,2})\s*(?:[xX\u00d7]\s*\(?|\()\s*2\s*[xX\u00d7]\s*(50|100|200|400)\s*(?:[Gg](?:b(?:it)?(?:/s(?:ec)?|ps)?)?)?\b\)?"
)
"""Cards of two ports, whose rates add up: `8x2x200G` of Oracle's machines."""
_RATE_BEHIND = re.compile(rf"(\d\s*[xX\u00d7]\s*(?:{_KINDS_OF_CARDS}[ -]*)+)\(\s*({_RATE})[^()]*\)")
"""Cards whose rate stands in brackets: `8 x ConnectX-7 (400G)`."""
_COUNT_BEHIND = re.compile(
    rf"({_RATE})\s*(?:InfiniBand|IB|RoCE|EFA|Ethernet)?"
    r"\s*\(\s*(?P<cards>\d{1,2})\s*(?i:NICs?|HCAs?|cards?|ports?|rails?)\b[^()]*\)"
)
"""The rate of cards whose number stands in brackets: `HDR 200G (1 NIC per node)`."""
_OVERSUBSCRIBED = re.compile(r"over-?subscri\w*", re.IGNORECASE)
_OF_ONE = re.compile(rf"(?<![\w.]){_RATE}")
_EACH_GPU = re.compile(
    r"(?:\bper|/|\ba|\beach)\s*(?:gpu|accelerator|device|chip|hpu|tpu|gcd|gaudi ?\d?)\b(?![- ]pair)",
    re.IGNORECASE,
)
_EACH_PAIR = re.compile(
    r"(?:\bper|/|\beach|\bevery)\s*(?:gpu[- ]pairs?|pair of gpus|(?:two|2) gpus)\b", re.IGNORECASE
)
_EACH_NODE = re.compile(r"(?:\bper|/|\ba|\beach)\s*(?:node|server|host)\b", re.IGNORECASE)
_PLAIN_ETHERNET = re.compile(rf"^(?!.*(roce|rdma|infiniband)).*(ethernet|gbe\b|{_SLOW})", re.IGNORECASE)
"""A host has one card of it unless more are named; cards for RDMA come one for each accelerator, and so do cards of the rate
that the usual node has for each: `400GbE` of H100."""
_BRIDGES = "bridges between cards are left out: all are linked by PCIe"
FASTEST_PORT_GBIT_PER_S = 800.0
_DOMAIN = re.compile(r"NVL(\d{1,6})\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Network:
    """What a description says about the links; empty if it says nothing."""

    fabric: str
    """Catalogue name of the network between nodes."""
    node_bytes_per_s: float | None
    """All network cards of a node, per direction."""
    num_cards: int | None
    """Network cards of a node."""
    link_domain_size: int | None
    """Accelerators that share the scale-up link."""
    names_scale_up: bool
    """Whether the scale-up link is named, the only one that a run within its domain uses."""
    is_understood: bool
    """Whether anything in the description is understood."""
    remark: str = ""
    """What is assumed beyond the description, or left out of it."""
    link_remark: str = ""
    """The same of the links inside a node."""


def network_of(description: str, accelerator: str, *, gpus_per_node: int | None = None) -> Network:
    """Returns what a free-text description says about the links.

    Args:
        description: such as `NVLink3 node + 8x200G HDR InfiniBand`.
        accelerator: catalogue name.
        gpus_per_node: accelerators per node; if omitted, those of the usual node.

    Raises:
        InputError: the accelerator has no link domain of the named size.
    """
    words = next((kind for words, kind in _FABRICS if re.search(words, description, re.IGNORECASE)), None)
    node = catalog.default_node(accelerator)
    usual_bytes_per_s = node.network_bytes_per_s_per_accelerator
    node_bytes_per_s, num_cards = _rate_of_node(
        description, gpus_per_node or node.num_accelerators, usual_bytes_per_s
    )
    machine = machine_of(description, accelerator)
    remark = ""
    if node_bytes_per_s is None and machine:
        node_bytes_per_s, num_cards = gigabits_per_s(machine.gigabits_per_s), machine.num_cards
        remark = f"taken as {machine.name}, with {machine.gigabits_per_s:g} Gb/s for each node"
    elif node_bytes_per_s is None:
        remark = _unread_rate(
            description,
            usual_bytes_per_s,
            is_usual=words in (None, catalog.default_fabric(accelerator).kind),
        )
    if affirmed(_OVERSUBSCRIBED, description):
        remark = "; ".join(filter(None, [remark, "links that are fewer further up are left out"]))
    domain = _domain(description, accelerator)
    is_card, names_links = catalog.is_pcie_card(accelerator), bool(_SCALE_UP.search(description))
    has_scale_up = "pcie" in description.lower() if is_card else names_links
    usual = machine.fabric if machine else catalog.default_fabric(accelerator).kind
    is_usual_kind = usual.startswith("infiniband") and bool(_INFINIBAND.search(description))
    return Network(
        fabric=words or usual,
        node_bytes_per_s=node_bytes_per_s,
        num_cards=num_cards,
        link_domain_size=domain,
        names_scale_up=domain is not None or has_scale_up,
        is_understood=bool(
            words or node_bytes_per_s or domain or has_scale_up or names_links or is_usual_kind
        ),
        remark=remark,
        link_remark=_BRIDGES if is_card and affirmed(_SCALE_UP, description) else "",
    )


def _unread_rate(description: str, usual_bytes_per_s: float, *, is_usual: bool) -> str:
    """Returns that a rate is left out which does not say of how many links it is, unless it is usual for one.

    Args:
        description: of the links.
        usual_bytes_per_s: of an accelerator of the usual node.
        is_usual: whether the fabric is that of the usual node, the name of whose generation says nothing new.
    """
    rates = (_OF_ONE.search(part) for part in _PARTS.split(description) if not _SCALE_UP.search(part))
    unread = [rate for rate in rates if rate and (rate["size"] or not is_usual)]
    if all(math.isclose(_bytes_per_s(rate), usual_bytes_per_s) for rate in unread):
        return ""
    return f"{unread[0][0].strip()} does not say of how many links it is; the usual links of the accelerator stand in"


def _domain(description: str, accelerator: str) -> int | None:
    found = _DOMAIN.search(description)
    if found is None:
        return None
    size, largest = int(found[1]), catalog.default_node(accelerator).link_domain_size
    if not 0 < size <= largest:
        rule = (
            f"names a link domain that {accelerator} does not have: at most {largest} share a scale-up link"
        )
        raise InputError([Problem(path="interconnect", value=shown(description), rule=rule)])
    return size


def _rate_of_node(description: str, gpus: int, usual_bytes_per_s: float) -> tuple[float | None, int | None]:
    """Returns the rate of a node and its cards, from the first part of the description that says so.

    Args:
        description: of the links.
        gpus: accelerators of a node.
        usual_bytes_per_s: of an accelerator of the usual node.
    """
    description = _TIMES.sub("x", description)
    counted = _RATE_BEHIND.sub(r"\1\2", _NO_COUNT.sub(r"\1\2", description))
    counted = _COUNT_BEHIND.sub(r"\g<cards>x\1", _OF_TWO_PORTS.sub(_as_one_port, counted))
    for part in _PARTS.split(_BARE.sub(r"\1x\2G", counted)):
        is_scale_up = bool(_SCALE_UP.search(part))
        for_each_gpu = gpus // 2 if _EACH_PAIR.search(part) else gpus if _EACH_GPU.search(part) else 1
        cards = next(filter(None, (words.search(part) for words in _COUNTED)), None)
        if cards and not (is_scale_up and _is_in_bytes(cards)):
            num_cards = int(cards["count"]) * for_each_gpu
            return num_cards * _bytes_per_s(cards), num_cards
        rate = _rate_in(part)
        if rate is None or is_scale_up:
            continue
        is_share = _EACH_GPU.search(part) or _EACH_PAIR.search(part) or _EACH_NODE.search(part)
        if is_share or _is_of_many(rate):
            return for_each_gpu * _bytes_per_s(rate), None
        is_usual = math.isclose(_bytes_per_s(rate), usual_bytes_per_s)
        if _PLAIN_ETHERNET.search(part) and not is_usual:
            return _bytes_per_s(rate), 1
    return None, None


def _as_one_port(cards: re.Match[str]) -> str:
    """Returns cards of two ports as cards of one that is twice as fast."""
    return f"{cards[1]}x{2 * int(cards[2])}G"


def _rate_in(part: str) -> re.Match[str] | None:
    """Returns the first rate of a part that is a number, or else that of a generation's port."""
    rates = list(_OF_ONE.finditer(part))
    return next((rate for rate in rates if rate["size"]), next(iter(rates), None))


def _is_of_many(rate: re.Match[str]) -> bool:
    """Returns whether a rate is one of Tbit/s, which only all cards of a node have together."""
    return not _is_in_bytes(rate) and _bytes_per_s(rate) > gigabits_per_s(FASTEST_PORT_GBIT_PER_S)


def _is_in_bytes(found: re.Match[str]) -> bool:
    return (found["unit"] or "").startswith("B")


def _bytes_per_s(found: re.Match[str]) -> float:
    if generation := found["generation"]:
        return gigabits_per_s(float(found["port"] or _GENERATIONS_GBIT_PER_S[generation.lower()]))
    size = float(found["size"]) * (KILO if found["prefix"] in "Tt" else 1.0)
    return size * GIGA if _is_in_bytes(found) else gigabits_per_s(size)
