"""How far do the measured steps reach, and what in a step goes beyond what was compared?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What in a step is larger or newer than in others, each part on its own; 0 if a step has nothing of it."""

    sequence_tokens: int
    context_ranks: int
    """Ranks that share a sequence."""
    tensor_domains: int
    """Link domains that the ranks of one tensor-parallel group span."""
    is_latent: bool
    """Whether keys and values are compressed to a latent vector."""
    is_linear: bool
    """Whether some blocks keep a state instead of attending."""
    has_indexer: bool
    """Whether an indexer chooses the tokens that attention sees."""
    is_compressed: bool
    """Whether attention sees compressed tokens."""
    has_streams: bool
    """Whether several streams carry the residual."""
    has_images: bool
    """Whether a vision encoder makes tokens of images."""
    has_adapters: bool
    """Whether low-rank adapters are trained instead of the weights."""
    is_in_4_bits: bool
    """Whether products are in 4 bits."""

    def is_within(self, measured: Iterable[Reach]) -> bool:
        """Returns whether each part was measured as large, or larger, in some step."""
        largest = (max(parts) for parts in zip(*(known.parts for known in measured), strict=True))
        return all(part <= most for part, most in zip(self.parts, largest, strict=True))

    @property
    def parts(self) -> tuple[int, ...]:
        """All parts, in the order of their fields."""
        return (
            self.sequence_tokens,
            self.context_ranks,
            self.tensor_domains,
            self.is_latent,
            self.is_linear,
            self.has_indexer,
            self.is_compressed,
            self.has_streams,
            self.has_images,
            self.has_adapters,
            self.is_in_4_bits,
        )


MEASURED_REACH = Reach(
    sequence_tokens=65_536,
    context_ranks=2,
    tensor_domains=1,
    is_latent=False,
    is_linear=False,
    has_indexer=False,
    is_compressed=False,
    has_streams=False,
    has_images=False,
    has_adapters=False,
    is_in_4_bits=False,
)
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
    words = (
        f"sequences of {{}} tokens (measured: up to {MEASURED_REACH.sequence_tokens:,})",
        f"context parallelism {{}} (measured: up to {MEASURED_REACH.context_ranks})",
        "tensor parallelism across link domains",
        "latent attention",
        "linear attention",
        "attention to chosen tokens",
        "compressed attention",
        "hyper-connections",
        "images",
        "low-rank adapters",
        "4 bits",
    )
    found = zip(reach.parts, MEASURED_REACH.parts, words, strict=True)
    return tuple(
        BeyondPart(words=told, figure=f"{part:,}" if "{}" in told else "")
        for part, most, told in found
        if part > most
    )


def beyond_measured(reach: Reach) -> tuple[str, ...]:
    """Returns the same in words."""
    return tuple(part.text for part in parts_beyond(reach))
