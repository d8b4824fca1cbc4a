"""What is in a machine with a name such as `p4d.24xlarge` or `DGX-1`: which accelerators, and which network?"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The network between machines of a kind, as its provider states it."""

    name: str
    fabric: str
    """Catalogue name."""
    gigabits_per_s: float
    """All cards for accelerators of a machine, per direction."""
    num_cards: int | None = None


def _machine(name: str, fabric: str, num_cards: int, card_gigabits_per_s: float) -> Machine:
    total = num_cards * card_gigabits_per_s
    return Machine(name=name, fabric=fabric, gigabits_per_s=total, num_cards=num_cards)


_P3 = _machine("p3.16xlarge", "ethernet-roce-400g", 1, 25.0)
_P3DN = _machine("p3dn.24xlarge", "efa-400g", 1, 100.0)
_P4D = _machine("p4d.24xlarge", "efa-400g", 4, 100.0)
_P5 = Machine(name="p5.48xlarge", fabric="efa-400g", gigabits_per_s=3200.0)
_MACHINES = (
    (r"\bp3\.16", _P3),
    (r"\bp3dn\b", _P3DN),
    (r"\bp4de?\b", _P4D),
    (r"\bp5(e|en)?\b(?=\.|$|\W)|\bp6-b200\b", _P5),
    (r"\ba2-(high|mega|ultra)gpu", _machine("a2-ultragpu-8g", "ethernet-roce-400g", 1, 100.0)),
    (r"\ba3[- ]?high(gpu)?\b", _machine("a3-highgpu-8g", "ethernet-roce-400g", 4, 200.0)),
    (r"\ba3[- ]?mega(gpu)?\b", _machine("a3-megagpu-8g", "ethernet-roce-400g", 8, 200.0)),
    (r"\ba3[- ]?ultra(gpu)?\b|\ba4[- ]highgpu", _machine("a3-ultragpu-8g", "ethernet-roce-400g", 8, 400.0)),
    (r"\bnd[- ]?v2\b|\bnd40rs", _machine("NDv2", "infiniband-edr", 1, 100.0)),
    (r"\bndm?[- ]?a100[- ]?v4\b|\bnd96am?sr", _machine("ND A100 v4", "infiniband-hdr", 8, 200.0)),
    (r"\bnd[- ]?h[12]00[- ]?v5\b|\bnd96isr", _machine("ND H100 v5", "infiniband-ndr", 8, 400.0)),
)
"""Machines by their names. AWS: `Accelerated computing instances` and the EFA guide; Google Cloud: `Networking and GPU
machines`, without the cards that are no accelerator's; Azure: `GPU accelerated virtual machine sizes`."""
_ACCELERATORS = (
    (r"\bp3\.16", "v100-sxm2-16gb"),
    (r"\bp3dn\b|\bnd[- ]?v2\b|\bnd40rs|\bdgx-?[12]\b", "v100-sxm2-32gb"),
    (r"\bp4d\b|\ba2-(high|mega)gpu|\bnd96asr", "a100-sxm4-40gb"),
    (r"\bp4de\b|\ba2-ultragpu|\bndm[- ]?a100|\bnd96amsr", "a100-sxm4-80gb"),
    (r"\bp5\b|\ba3[- ]?(high|mega)|\bnd[- ]?h100|\bnd96isr[- ]?h100", "h100-sxm5-80gb"),
    (r"\bp5en?\b|\ba3[- ]?ultra|\bnd[- ]?h200|\bnd96isr[- ]?h200", "h200-sxm-141gb"),
    (r"\bp6-b200\b|\ba4-highgpu", "b200-sxm-180gb"),
)
"""What they have, by the same pages, as the catalogue names it; a DGX-1 or DGX-2 has V100, of 32 GB since 2018."""
_OF_EFA = (("v100", _P3DN), ("a100", _P4D), ("h100", _P5), ("h200", _P5), ("b200", _P5))
"""EFA is AWS's own, whose machines with these accelerators have one network each."""


def machine_of(description: str, accelerator: str) -> Machine | None:
    """Returns the machine that a description names, or that EFA means with an accelerator; `None` where neither does."""
    text = description.replace("_", " ")
    named = next((machine for words, machine in _MACHINES if re.search(words, text, re.IGNORECASE)), None)
    if named is None and re.search(r"\befa", text, re.IGNORECASE):
        return next((machine for name, machine in _OF_EFA if accelerator.startswith(name)), None)
    return named


def accelerator_of_machine(name: str) -> str | None:
    """Returns the catalogue name of the accelerators of a machine; `None` where a name is that of none."""
    text = name.replace("_", " ")
    return next((has for words, has in _ACCELERATORS if re.search(words, text, re.IGNORECASE)), None)
