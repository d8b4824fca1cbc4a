"""What does a JSON trace for Chakra's feeder contain? One object, whose `workload_graph` is the list of nodes.

This is not protobuf's JSON form: Chakra's feeder (`json_node.cpp`) reads these fields of a node, and no others. Attributes are
fields of the node itself, and `runtime` is what protobuf calls `duration_micros`. Groups cannot be expressed: every collective
includes all accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from simulator.deep.traces.chakra import NodeFields
from simulator.deep.traces.json_fields import JsonFields, spelled

WORKLOAD_GRAPH = "workload_graph"
_DOCUMENT = {name: name for name in (WORKLOAD_GRAPH, "workload_name", "ngpus", "soc")}
_NUMBERS = ("tensor_size", "comm_type", "comm_priority", "comm_size", "comm_src", "comm_dst", "comm_tag")
_NODE = {name: name for name in ("Id", "Name", "NodeType", "runtime", "is_cpu_op", *_NUMBERS)} | spelled(
    ["data_deps", "ctrl_deps"]
)


def feeder_nodes(path: Path, document: Mapping[str, object]) -> Iterator[NodeFields]:
    """Yields the fields of each node; raises `InputError` if one is unknown, missing, or of the wrong type."""
    whole = JsonFields.read(path, "document", document, _DOCUMENT)
    for number, node in enumerate(whole.items(WORKLOAD_GRAPH)):
        yield _node(JsonFields.read(path, f"{WORKLOAD_GRAPH}.{number}", node, _NODE))


def _node(fields: JsonFields) -> NodeFields:
    for name in ("Id", "NodeType"):
        if name not in fields.values:
            raise fields.broken(name, "is missing: what has none is no node of Chakra")
    attributes: dict[str, bool | int] = {
        name: fields.whole(name) for name in _NUMBERS if name in fields.values
    }
    if "is_cpu_op" in fields.values:
        attributes["is_cpu_op"] = fields.truth("is_cpu_op")
    values = {
        "id": fields.whole("Id"),
        "name": fields.text("Name"),
        "type": fields.whole("NodeType"),
        "duration_micros": fields.whole("runtime"),
        "deps": tuple(dict.fromkeys(fields.whole_numbers("data_deps"))),
        "attributes": attributes,
    }
    return NodeFields(values=values, control=fields.whole_numbers("ctrl_deps"))
