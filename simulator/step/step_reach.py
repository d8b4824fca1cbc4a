"""How far do the measured steps reach, and what in a step goes beyond what was compared?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Any

from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable


def _told(words: str, most: int = 0) -> Any:  # noqa: ANN401 (a field of any type)
    """A part as it is told, with `{}` in the place of its figure, and the most of it in a published step."""
    return field(metadata={"words": words, "most": most})


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What in a step is larger or newer than in others, each part on its own; 0 if a step has nothing of it."""

    sequence_tokens: int = _told("sequences of {} tokens", most=65_536)
    context_ranks: int = _told("context parallelism {}", most=2)
    """Ranks that share a sequence."""
    tensor_domains: int = _told("tensor parallelism across link domains", most=1)
    """Link domains that the ranks of one tensor-parallel group span."""
    is_latent: bool = _told("latent attention")
    """Whether keys and values are compressed to a latent vector."""
    is_linear: bool = _told("linear attention")
    """Whether some blocks keep a state instead of attending."""
    has_indexer: bool = _told("attention to chosen tokens")
    """Whether an indexer chooses the tokens that attention sees."""
    is_compressed: bool = _told("compressed attention")
    """Whether attention sees compressed tokens."""
    has_streams: bool = _told("hyper-connections")
    """Whether several streams carry the residual."""
    has_images: bool = _told("images")
    """Whether a vision encoder makes tokens of images."""
    has_adapters: bool = _told("low-rank adapters")
    """Whether low-rank adapters are trained instead of the weights."""
    is_in_4_bits: bool = _told("4 bits")
    """Whether products are in 4 bits."""

    def is_within(self, measured: Iterable[Reach]) -> bool:
        """Returns whether each part was measured as large, or larger, in some step."""
        largest = (max(parts) for parts in zip(*(known.parts for known in measured), strict=True))
        return all(part <= most for part, most in zip(self.parts, largest, strict=True))

    @property
    def parts(self) -> tuple[int, ...]:
        """All parts, in the order of their fields."""
        return tuple(getattr(self, part.name) for part in fields(self))


MEASURED_REACH = Reach(**{part.name: part.metadata["most"] for part in fields(Reach)})
"""The largest of each part among the published steps of docs/validation.md, all of it on dense models: the few steps of
mixtures of experts have short sequences and no context parallelism, for which their error of 30 % at least stands."""


@dataclass(frozen=True, kw_only=True)
class BeyondPart:
    """A part of a step that goes beyond everything measured."""

    words: str
    """What it is, with `{}` in the place of its figure."""
    figure: str = ""
    """How large it is; empty for what a step has or has not."""

    @property
    def text(self) -> str:
        """What it is, and how large: `context parallelism 4 (measured: up to 2)`."""
        return self.words.format(self.figure)


def num_domains(num_ranks: int, domain_size: int) -> int:
    """Returns the number of link domains that neighbouring ranks span."""
    return ceil(num_ranks / domain_size)


def reach_of(job: Job, plans: PlanTable, row: int) -> Reach:
    """Returns the reach of the step of one of some designs."""
    offer, workload = job.offers[int(plans.offer[row])], job.workload
    return Reach(
        sequence_tokens=workload.sequence_length,
        context_ranks=int(plans.context_parallel[row]),
        tensor_domains=num_domains(int(plans.tensor_parallel[row]), offer.node.link_domain_size),
        is_latent=workload.model.latent_attention is not None,
        is_linear=workload.model.linear_attention is not None,
        has_indexer=workload.model.indexer is not None,
        is_compressed=workload.model.compressed_attention is not None,
        has_streams=workload.model.hyper_connections is not None,
        has_images=workload.images is not None,
        has_adapters=workload.lora is not None,
        is_in_4_bits=Precision.from_code(int(plans.precision[row])) is Precision.FP4,
    )


def parts_beyond(reach: Reach) -> tuple[BeyondPart, ...]:
    """Returns what in a step goes beyond everything measured; nothing if it is within."""
    return tuple(
        _beyond(part.metadata["words"], part.metadata["most"], own)
        for part, own in zip(fields(reach), reach.parts, strict=True)
        if own > part.metadata["most"]
    )


def _beyond(words: str, most: int, own: int) -> BeyondPart:
    if "{}" not in words:
        return BeyondPart(words=words)
    return BeyondPart(words=f"{words} (measured: up to {most:,})", figure=f"{own:,}")


def beyond_measured(reach: Reach) -> tuple[str, ...]:
    """Returns the same in words."""
    return tuple(part.text for part in parts_beyond(reach))
