"""How far do the measured steps reach? The largest of what nobody goes beyond without leaving what was compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from planner.measured_runs import Row, node_of_row


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What of a step is larger or newer than that of others, each part on its own; 0 where a step has nothing of it."""

    sequence_tokens: int
    context_ranks: int
    """Ranks that share a sequence."""
    tensor_domains: int
    """Link domains over which the ranks of one tensor-parallel group lie."""
    is_latent: bool
    """Whether keys and values are compressed to a latent vector."""
    has_adapters: bool
    """Whether low-rank adapters are trained in the place of the weights."""
    is_in_4_bits: bool
    """Whether products are in 4 bits."""

    @classmethod
    def of(cls, row: Row) -> Reach:
        """Returns the reach of one step."""
        domain_size = node_of_row(row).link_domain_size
        return cls(
            sequence_tokens=int(row["sequence_length"]),
            context_ranks=int(row["context_parallel"] or 1),
            tensor_domains=-(-int(row["tensor_parallel"] or 1) // domain_size),
            is_latent=bool(row.get("key_value_rank")),
            has_adapters=bool(row.get("lora_rank")),
            is_in_4_bits=row["precision"] == "fp4",
        )

    def is_within(self, measured: Iterable[Reach]) -> bool:
        """Returns whether each part was measured as large, or larger, in some step."""
        largest = (max(parts) for parts in zip(*(astuple(known) for known in measured), strict=True))
        return all(part <= most for part, most in zip(astuple(self), largest, strict=True))
