"""Which cells of a measured run hold the fields of a record that shares names with others? Those with the prefix of the record.

Layers of a network, of its vision encoder and of an indexer all have heads; the prefix says whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.measured.software import muon
from planner.measured.workload import compressed, hybrids, images, indexers
from simulator.domain.compressed_attention import CompressedAttention
from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.images import Images
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.muon import Muon
from simulator.domain.token_indexer import TokenIndexer
from simulator.domain.vision import VisionEncoder
from simulator.record import Record


def _prefixed(prefix: str, record: type[Record]) -> Mapping[str, str]:
    """Returns names of cells by field."""
    return {name: f"{prefix}{name}" for name in record.model_fields}


OF_LINEAR_ATTENTION = _prefixed(hybrids.PREFIX, LinearAttention)
OF_INDEXER = _prefixed(indexers.PREFIX, TokenIndexer)
OF_COMPRESSED = _prefixed(compressed.PREFIX, CompressedAttention)
OF_STREAMS = _prefixed(compressed.STREAMS_PREFIX, HyperConnections)
OF_MUON = _prefixed(muon.PREFIX, Muon)
OF_IMAGES = _prefixed(images.PREFIX, Images)
OF_VISION = _prefixed(images.VISION_PREFIX, VisionEncoder)
"""Names of cells by field of each record."""
PREFIXED = {
    cell
    for cells in (
        *(OF_LINEAR_ATTENTION, OF_INDEXER, OF_COMPRESSED, OF_STREAMS),
        *(OF_MUON, OF_IMAGES, OF_VISION),
    )
    for cell in cells.values()
}
"""All of them."""


def fields_in(row: Mapping[str, str], cells: Mapping[str, str]) -> dict[str, object] | None:
    """Returns the non-empty cells of a row by their fields; `None` if all are empty."""
    return {name: row[cell] for name, cell in cells.items() if row.get(cell)} or None


def encoder_fields(row: Mapping[str, str]) -> dict[str, object] | None:
    """Returns the fields of the vision encoder of a row; `None` where it has none."""
    fields = fields_in(row, OF_VISION)
    return fields and {**fields, "projector_sizes": row[OF_VISION["projector_sizes"]].split()}
