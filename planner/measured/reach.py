"""How far does a measured row reach in each part of a step? The largest of these bound what has been compared."""

from __future__ import annotations

from planner.measured.runs import Row, node_of_row
from simulator.step.step_reach import Reach, num_domains


def reach_of_row(row: Row) -> Reach:
    """Returns the reach of one step."""
    domain_size = node_of_row(row).link_domain_size
    return Reach(
        sequence_tokens=int(row["sequence_length"]),
        context_ranks=int(row["context_parallel"] or 1),
        tensor_domains=num_domains(int(row["tensor_parallel"] or 1), domain_size),
        is_latent=bool(row.get("key_value_rank")),
        is_linear=bool(row.get("linear_kind")),
        has_indexer=bool(row.get("indexer_num_heads")),
        is_compressed=bool(row.get("compressed_query_rank")),
        has_streams=bool(row.get("hyper_num_streams")),
        has_images=bool(row.get("images_per_sequence")),
        has_adapters=bool(row.get("lora_rank")),
        is_in_4_bits=row["precision"] == "fp4",
    )
