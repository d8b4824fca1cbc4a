"""Do Chakra traces say what they should, in both forms and both ways, and are broken ones refused?"""

from __future__ import annotations

import gzip
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz_mutations import JSON_LINES, PROTOBUF, Form, mutations
from benchmarks.fuzz_traces import num_refused
from simulator.deep.networks.topologies import switch
from simulator.deep.playing.play import play
from simulator.deep.traced_steps.chakra_export import chakra_export
from simulator.deep.traced_steps.chakra_play import chakra_step
from simulator.deep.traced_steps.extrapolate import extrapolate
from simulator.deep.traces.chakra import ChakraNode, CommType, NodeType, Value
from simulator.deep.traces.chakra_files import read_chakra, write_chakra
from simulator.deep.traces.parallelism import GradientSync, Parallelism, PipelineOrder
from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.wire import as_varint
from simulator.errors import InputError

NUM_MUTATIONS = 300
NODES = (
    ChakraNode(id=0, name="first ∂", type=NodeType.COMP_NODE, duration_micros=1500),
    ChakraNode(
        id=7,
        name="all-reduce",
        type=NodeType.COMM_COLL_NODE,
        deps=(0,),
        start_time_micros=2**40,
        attributes={
            "is_cpu_op": False,
            "comm_type": 0,
            "comm_size": 2**33,
            "pg_name": "3",
            "offset": -5,
            "share": 0.25,
        },
    ),
    ChakraNode(
        id=2**40,
        name="send",
        type=NodeType.COMM_SEND_NODE,
        deps=(7, 0),
        attributes={"comm_src": 0, "comm_dst": 1, "comm_tag": 300, "comm_size": 17},
    ),
)
SUFFIXES = (".et", ".json")


def text_of(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "step.json"
    write_chakra(path, NODES)
    return path, path.read_text(encoding="utf-8")


class TestFiles:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_what_is_written_is_read_back(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"step{suffix}"
        write_chakra(path, NODES)
        assert read_chakra(path) == NODES

    def test_gzipped_traces_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "step.et"
        write_chakra(path, NODES)
        path.write_bytes(gzip.compress(path.read_bytes()))
        assert read_chakra(path) == NODES

    def test_protobuf_itself_reads_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "step.et"
        write_chakra(path, NODES)
        metadata, *nodes = messages_of(path)
        assert metadata == b"\x0a\x050.0.4"
        for message, node in zip(nodes, NODES, strict=True):
            read = parsed(message)
            assert (read.id, read.name, read.type) == (node.id, node.name, node.type)
            assert tuple(read.data_deps) == node.deps
            assert (read.start_time_micros, read.duration_micros) == (
                node.start_time_micros,
                node.duration_micros,
            )
            values = {each.name: getattr(each, each.WhichOneof("value")) for each in read.attr}
            assert values == node.attributes

    def test_attributes_stand_in_the_fields_from_which_astra_sim_takes_them(self, tmp_path: Path) -> None:
        # Chakra's et_feeder_node.cpp; a value in another field is 0 there, without a word.
        path = tmp_path / "step.et"
        write_chakra(path, NODES)
        fields = {
            "is_cpu_op": "bool_val",
            "comm_type": "int64_val",
            "comm_size": "int64_val",
            "comm_src": "int32_val",
            "comm_dst": "int32_val",
            "comm_tag": "int32_val",
            "pg_name": "string_val",
        }
        found = {
            each.name: each.WhichOneof("value")
            for message in messages_of(path)[1:]
            for each in parsed(message).attr
        }
        assert {name: found[name] for name in fields} == fields

    def test_what_protobuf_writes_is_read(self, tmp_path: Path) -> None:
        node = node_type()(id=4, name="sum", type=4, ctrl_deps=[], duration_micros=9)
        values = {
            "double_val": 0.5,
            "float_val": -0.25,
            "int32_val": -3,
            "int64_val": -(2**40),
            "uint32_val": 2**32 - 1,
            "uint64_val": 2**64 - 1,
            "sint32_val": -(2**31),
            "sint64_val": 2**63 - 1,
            "fixed32_val": 2**32 - 2,
            "fixed64_val": 2**64 - 2,
            "sfixed32_val": -7,
            "sfixed64_val": -(2**50),
            "bool_val": True,
            "string_val": "x",
        }
        for name, value in values.items():
            node.attr.add(name=name, **{name: value})
        path = tmp_path / "step.et"
        messages = (b"\x0a\x050.0.4", node.SerializeToString())
        path.write_bytes(b"".join(as_varint(len(message)) + message for message in messages))
        (read,) = read_chakra(path)
        assert read.attributes == values
        assert (read.id, read.name, read.type, read.duration_micros) == (4, "sum", NodeType.COMP_NODE, 9)


def messages_of(path: Path) -> list[bytes]:
    """The messages of a file, each of which has its length before it."""
    decode = import_module("google.protobuf.internal.decoder")._DecodeVarint32  # noqa: SLF001
    data, place, messages = path.read_bytes(), 0, []
    while place < len(data):
        size, place = decode(data, place)
        messages.append(data[place : place + size])
        place += size
    return messages


def parsed(message: bytes) -> Any:  # noqa: ANN401 - an object of protobuf
    """A node, read by protobuf."""
    node = node_type()()
    node.ParseFromString(message)
    return node


def node_type() -> Any:  # noqa: ANN401 - a class that protobuf makes
    """The class of a node, made by protobuf from field numbers of `et_def.proto`, 0.0.4."""
    descriptors = import_module("google.protobuf.descriptor_pb2")
    label, kind = descriptors.FieldDescriptorProto, descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(name="chakra_test.proto", package="chakra_test", syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    attribute.field.add(name="name", number=1, type=kind.TYPE_STRING, label=label.LABEL_OPTIONAL)
    attribute.oneof_decl.add(name="value")
    for name, number, of in (
        ("double_val", 3, kind.TYPE_DOUBLE),
        ("float_val", 5, kind.TYPE_FLOAT),
        ("int32_val", 7, kind.TYPE_INT32),
        ("int64_val", 9, kind.TYPE_INT64),
        ("uint32_val", 11, kind.TYPE_UINT32),
        ("uint64_val", 13, kind.TYPE_UINT64),
        ("sint32_val", 15, kind.TYPE_SINT32),
        ("sint64_val", 17, kind.TYPE_SINT64),
        ("fixed32_val", 19, kind.TYPE_FIXED32),
        ("fixed64_val", 21, kind.TYPE_FIXED64),
        ("sfixed32_val", 23, kind.TYPE_SFIXED32),
        ("sfixed64_val", 25, kind.TYPE_SFIXED64),
        ("bool_val", 27, kind.TYPE_BOOL),
        ("string_val", 29, kind.TYPE_STRING),
    ):
        attribute.field.add(name=name, number=number, type=of, label=label.LABEL_OPTIONAL, oneof_index=0)
    node = file.message_type.add(name="Node")
    for name, number, of, many in (
        ("id", 1, kind.TYPE_UINT64, False),
        ("name", 2, kind.TYPE_STRING, False),
        ("type", 3, kind.TYPE_INT32, False),
        ("ctrl_deps", 4, kind.TYPE_UINT64, True),
        ("data_deps", 5, kind.TYPE_UINT64, True),
        ("start_time_micros", 6, kind.TYPE_UINT64, False),
        ("duration_micros", 7, kind.TYPE_UINT64, False),
    ):
        node.field.add(
            name=name, number=number, type=of, label=label.LABEL_REPEATED if many else label.LABEL_OPTIONAL
        )
    node.field.add(
        name="attr",
        number=10,
        type=kind.TYPE_MESSAGE,
        type_name=".chakra_test.AttributeProto",
        label=label.LABEL_REPEATED,
    )
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("chakra_test.Node")
    return import_module("google.protobuf.message_factory").GetMessageClass(found)


class TestJson:
    """Forms that others write."""

    def test_names_may_stand_as_in_the_schema(self, tmp_path: Path) -> None:
        path, text = text_of(tmp_path)
        snake = re.sub(
            r'"[a-z0-9]+([A-Z][a-z]+)+":', lambda key: re.sub("[A-Z]", r"_\g<0>", key[0]).lower(), text
        )
        assert "data_deps" in snake
        assert "int64_val" in snake
        path.write_text(snake, encoding="utf-8")
        assert read_chakra(path) == NODES

    def test_what_protobuf_writes_as_json_is_read(self, tmp_path: Path) -> None:
        # It leaves out what has its default: the number of node 0, and metadata without a version.
        node = node_type()(id=0, name="first", type=4, duration_micros=5)
        node.attr.add(name="is_cpu_op", bool_val=False)
        follower = node_type()(id=9, type=7, data_deps=[0])
        to_json = import_module("google.protobuf.json_format").MessageToJson
        path = tmp_path / "step.json"
        path.write_text("{}" + to_json(node) + to_json(follower), encoding="utf-8")
        assert '"id": "0"' not in path.read_text(encoding="utf-8")
        assert read_chakra(path) == (
            ChakraNode(
                id=0,
                name="first",
                type=NodeType.COMP_NODE,
                duration_micros=5,
                attributes={"is_cpu_op": False},
            ),
            ChakraNode(id=9, type=NodeType.COMM_COLL_NODE, deps=(0,)),
        )

    def test_the_graph_of_chakras_feeder_is_read(self, tmp_path: Path) -> None:
        # Fields as `json_node.cpp` of chakra reads them.
        first = {"Id": 216, "Name": "cat", "NodeType": 4, "runtime": 318, "is_cpu_op": True, "data_deps": []}
        second = {
            "Id": 432,
            "NodeType": 7,
            "data_deps": [216],
            "ctrlDeps": [3],
            "comm_type": 0,
            "comm_size": 64,
        }
        document = {"workload_graph": [first, second], "workload_name": "x", "ngpus": 8, "soc": "y"}
        path = tmp_path / "step.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        assert read_chakra(path) == (
            ChakraNode(
                id=216,
                name="cat",
                type=NodeType.COMP_NODE,
                duration_micros=318,
                attributes={"is_cpu_op": True},
            ),
            ChakraNode(
                id=432,
                type=NodeType.COMM_COLL_NODE,
                deps=(216,),
                attributes={"comm_type": 0, "comm_size": 64},
            ),
        )


class TestControl:
    """`ctrl_deps`, each node a line of data and control."""

    @staticmethod
    def read(tmp_path: Path, deps: list[tuple[list[int], list[int]]]) -> list[tuple[int, ...]]:
        """What nodes 0, 1 and so on wait for, the same from JSON and from protobuf."""
        nodes = [
            node_type()(id=number, type=4, data_deps=data, ctrl_deps=control)
            for number, (data, control) in enumerate(deps)
        ]
        messages = [node.SerializeToString() for node in nodes]
        wire, text = tmp_path / "step.et", tmp_path / "step.json"
        wire.write_bytes(b"\x00" + b"".join(bytes([len(message)]) + message for message in messages))
        to_json = import_module("google.protobuf.json_format").MessageToJson
        text.write_text("".join(to_json(node) for node in nodes), encoding="utf-8")
        found = read_chakra(wire)
        assert read_chakra(text) == found
        return [node.deps for node in found]

    def test_control_is_waited_for_where_it_says_an_order(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, [([], []), ([], [0]), ([1], [0])]) == [(), (0,), (1, 0)]

    @pytest.mark.parametrize(
        "deps",
        [
            [([], [99]), ([0], [99])],  # a caller that was dropped
            [([1], []), ([], [0])],  # a caller ends when what it called has
            [([], [0]), ([0], [])],  # half of an operator, called by itself
        ],
    )
    def test_callers_are_not_waited_for(
        self, tmp_path: Path, deps: list[tuple[list[int], list[int]]]
    ) -> None:
        assert self.read(tmp_path, deps) == [tuple(data) for data, _ in deps]

    @pytest.mark.parametrize(
        ("deps", "message"),
        [
            ([([], [1]), ([], [0])], "2 nodes wait for each other in a circle, among them 0"),
            ([([], []), ([], [99])], "node 1.deps = 99: waits for a node that is not there"),
            ([([], []), ([0], []), ([], [0, 99])], "node 2.deps = 99: waits for a node that is not there"),
        ],
    )
    def test_what_cannot_be_callers_must_be_there(
        self, tmp_path: Path, deps: list[tuple[list[int], list[int]]], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            self.read(tmp_path, deps)


class TestBroken:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ('"1500"', '"-1500"', r"node at position 0\.duration_micros = -1500: input should be greater"),
            ('"1500"', '"soon"', r"message 1\.durationMicros = soon: must be a whole number"),
            ('"1500"', "true", r"message 1\.durationMicros = True: must be a whole number"),
            ('"COMP_NODE"', '"FANCY_NODE"', r"message 1\.type = FANCY_NODE: must be one of INVALID_NODE, "),
            ('"COMP_NODE"', "true", r"message 1\.type = True: must be one of INVALID_NODE, "),
            ('"type": "COMP_NODE", ', "", r"message 1\.type: is missing: what has none is no node of Chakra"),
            ('"durationMicros"', '"duration"', r"message 1\.duration = 1500: is unknown"),
            ('"dataDeps": []', '"dataDeps": 0', r"message 1\.dataDeps = 0: must be a list"),
            (
                '"dataDeps": []',
                '"dataDeps": [], "data_deps": []',
                r"message 1\.data_deps = \[\]: stands there in two",
            ),
            ('"attr": []', '"attr": [7]', r"message 1\.attr\.0 = 7: must be an object"),
            ('"attr": []', '"attr": [{"boolVal": true}]', r"message 1\.attr\.0\.name: is missing"),
            (
                '"boolVal": false',
                '"boolVal": "no"',
                r"message 2\.attr\.0\.boolVal = no: must be true or false",
            ),
            (
                '"doubleVal": 0.25',
                '"doubleVal": "NaN"',
                r"message 2\.attr\.5\.doubleVal = NaN: must be a finite",
            ),
            (
                '"doubleVal": 0.25',
                '"doubleVal": 1' + "0" * 400,
                r"message 2\.attr\.5\.doubleVal = .*must be a finite",
            ),
            ('"stringVal": "3"', '"stringVal": "\\ud800"', r"message 2\.attr\.3\.stringVal = .*must be text"),
            ('"id": "7"', '"id": "0"', r"node 0 = all-reduce: has the number of another"),
            (
                '"dataDeps": ["0"]',
                '"dataDeps": ["9"]',
                r"node 7\.deps = 9: waits for a node that is not there",
            ),
            ('"dataDeps": []', '"dataDeps": ["7"]', r"3 nodes wait for each other in a circle, among them 0"),
            ('"attr"', "attr", r"message 1: is no JSON of Chakra"),
            ("{", "[{", r"is no (JSON of )?Chakra"),
        ],
    )
    def test_a_broken_node_is_named_with_its_rule(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        path, text = text_of(tmp_path)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(InputError, match=f"(?s)step.json.*{message}"):
            read_chakra(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"foo": 1}', r"message 0\.foo = 1: is unknown"),
            ('[{"id": 1, "type": 4}]', r"message 0 = .*: must be an object"),
            ('{"id": 1, "type": 4, "data_deps": [1]}', "node 1 waits for itself"),
            ('{"workload_graph": 3}', r"document\.workload_graph = 3: must be a list"),
            (
                '{"workload_graph": [], "nodes": []}',
                r"document\.nodes = \[\]: is unknown; known are workload_graph, ",
            ),
            ('{"workload_graph": [{"Id": 1}]}', r"workload_graph\.0\.NodeType: is missing"),
            (
                '{"workload_graph": [{"Id": 1, "NodeType": 4, "Runtime": 3}]}',
                r"workload_graph\.0\.Runtime = 3: is unk",
            ),
            (
                '{"workload_graph": [{"Id": 1, "NodeType": 4, "is_cpu_op": 0}]}',
                r"is_cpu_op = 0: must be true or false",
            ),
        ],
    )
    def test_json_of_other_kinds_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "step.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=f"(?s)step.json.*{message}"):
            read_chakra(path)

    def test_an_attribute_that_is_not_finite_is_refused(self, tmp_path: Path) -> None:
        node = node_type()(id=4, type=4)
        node.attr.add(name="share", double_val=float("nan"))
        path = tmp_path / "step.et"
        message = node.SerializeToString()
        path.write_bytes(b"\x07\x0a\x050.0.4" + bytes([len(message)]) + message)
        with pytest.raises(InputError, match="message 1: is no Chakra trace: attribute share is not finite"):
            read_chakra(path)

    @pytest.mark.parametrize("size", [1, 9, 30, 60])
    def test_a_file_that_is_cut_off_is_refused(self, tmp_path: Path, size: int) -> None:
        path = tmp_path / "step.et"
        write_chakra(path, NODES)
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(InputError, match=r"cut off|has no nodes"):
            read_chakra(path)

    @pytest.mark.parametrize(
        ("message", "problem"),
        [
            (b"\x08\x01\x12\x05abc", "field 2 at byte 4 is cut off"),  # text of 5 bytes, of which 3 are there
            (b"\x08\x01\x19abcdefg", "field 3 at byte 3 is cut off"),  # 7 of 8 bytes
            (b"\x08\x01\x1dabc", "field 3 at byte 3 is cut off"),  # 3 of 4 bytes
            (b"\x08\x01\x12", "a number is cut off at byte 3"),
            (b"\x08\x01\x02\x01a", "field 0 at byte 4 is cut off"),  # fields count from 1
            (b"\x08\x01\x13", "a field at byte 3 has the unknown kind 3"),
        ],
    )
    def test_a_field_that_goes_beyond_its_message_is_refused(
        self, tmp_path: Path, message: bytes, problem: str
    ) -> None:
        path = tmp_path / "step.et"
        # The next message has bytes enough for it.
        path.write_bytes(b"\x00" + bytes([len(message)]) + message + b"\x02\x08\x02" * 9)
        with pytest.raises(InputError, match=f"message 1: is no Chakra trace: {problem}"):
            read_chakra(path)

    @pytest.mark.parametrize("value", [True, -1, 1.0, "1", None])
    def test_a_size_that_is_no_number_of_bytes_is_refused(self, value: Value | None) -> None:
        attributes = {} if value is None else {"comm_size": value}
        rule = "is missing" if value is None else "must be a whole number that is not negative"
        with pytest.raises(InputError, match=rf"node 3\.comm_size.*{rule}"):
            ChakraNode(id=3, attributes=attributes).number("comm_size")

    def test_a_file_without_nodes_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "step.et"
        path.write_bytes(b"")
        with pytest.raises(InputError, match="has no nodes"):
            read_chakra(path)

    def test_broken_gzip_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "step.et"
        path.write_bytes(b"\x1f\x8bnonsense")
        with pytest.raises(InputError, match="is no gzip"):
            read_chakra(path)

    @pytest.mark.short(1)
    @pytest.mark.parametrize(
        ("suffix", "form"), [(".et", None), (".et", PROTOBUF), (".json", None), (".json", JSON_LINES)]
    )
    def test_mutated_files_are_read_or_refused(self, tmp_path: Path, suffix: str, form: Form | None) -> None:
        path = tmp_path / f"step{suffix}"
        write_chakra(path, NODES)
        refused = 0
        for content in mutations(path.read_bytes(), NUM_MUTATIONS, form=form):
            path.write_bytes(content)
            refused += num_refused(lambda: read_chakra(path))
        assert NUM_MUTATIONS / 3 < refused < NUM_MUTATIONS


class TestBothWays:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    @pytest.mark.parametrize(
        "parallelism",
        [
            Parallelism(),
            Parallelism(data_parallel=4),
            Parallelism(data_parallel=2, sync=GradientSync.AT_THE_END),
            Parallelism(data_parallel=4, sync=GradientSync.SHARDED),
            Parallelism(tensor_parallel=2),
            Parallelism(pipeline_parallel=2, num_microbatches=2),
            Parallelism(
                pipeline_parallel=2,
                num_microbatches=4,
                tensor_parallel=2,
                data_parallel=2,
                order=PipelineOrder.GPIPE,
            ),
        ],
    )
    def test_a_step_takes_the_same_when_it_comes_back(
        self, small: OperatorTrace, tmp_path: Path, parallelism: Parallelism, suffix: str
    ) -> None:
        topology = switch(parallelism.num_gpus, 1e6, 1e-5)
        direct = extrapolate(small, parallelism, topology)
        export = chakra_export(small, parallelism)
        export.write(tmp_path, "step", suffix=suffix)
        ranks = [read_chakra(tmp_path / f"step.{rank}{suffix}") for rank in range(parallelism.num_gpus)]
        again = chakra_step(ranks, export.groups, topology)
        # Durations are whole microseconds in a trace; those of the optimizer are rounded.
        assert play(again.graph, topology, again.paths).makespan_s == pytest.approx(
            play(direct.graph, topology, direct.paths).makespan_s, abs=2e-6
        )

    def test_gradients_are_one_collective_of_all_their_bytes(self, small: OperatorTrace) -> None:
        export = chakra_export(small, Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END))
        assert export.groups == {1: (0, 1, 2, 3)}
        for nodes in export.nodes:
            (found,) = [node for node in nodes if node.type is NodeType.COMM_COLL_NODE]
            assert found.attributes == {
                "is_cpu_op": False,
                "comm_type": CommType.ALL_REDUCE,
                "comm_size": 1632,
                "pg_name": "1",
            }
            assert sum(node.duration_micros for node in nodes) == 8800

    def test_no_node_is_one_of_the_host(self, small: OperatorTrace) -> None:
        # ASTRA-sim's `Workload::issue` would take a message of the host for a computation without length, and skip it.
        export = chakra_export(small, Parallelism(pipeline_parallel=2, data_parallel=2))
        nodes = [node for row in export.nodes for node in row]
        assert {
            NodeType.COMP_NODE,
            NodeType.COMM_SEND_NODE,
            NodeType.COMM_RECV_NODE,
            NodeType.COMM_COLL_NODE,
        } == {node.type for node in nodes}
        assert all(node.attributes["is_cpu_op"] is False for node in nodes)

    def test_stages_send_and_receive(self, small: OperatorTrace) -> None:
        first, second = chakra_export(small, Parallelism(pipeline_parallel=2)).nodes
        kinds = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
        told = [
            [
                (node.attributes["comm_src"], node.attributes["comm_dst"], node.attributes["comm_tag"])
                for node in nodes
                if node.type is kind
            ]
            for nodes in (first, second)
            for kind in kinds
        ]
        assert told == [[(0, 1, 0)], [(1, 0, 1)], [(1, 0, 1)], [(0, 1, 0)]]


class TestPlay:
    def test_collectives_that_do_not_fit_together_are_refused(self, small: OperatorTrace) -> None:
        export = chakra_export(small, Parallelism(data_parallel=2))
        one, other = export.nodes
        without = [node for node in other if node.type is not NodeType.COMM_COLL_NODE]
        deps = {node.id for node in without}
        kept = [
            node.model_copy(update={"deps": tuple(dep for dep in node.deps if dep in deps)})
            for node in without
        ]
        with pytest.raises(InputError, match="group 1, collective 0: differs between accelerators"):
            chakra_step([one, kept], export.groups, switch(2, 1e9, 0.0))

    def test_a_message_that_nobody_receives_is_refused(self, small: OperatorTrace) -> None:
        export = chakra_export(small, Parallelism(pipeline_parallel=2))
        first, second = export.nodes
        stranger = second[0].model_copy(
            update={
                "id": 10**6,
                "type": NodeType.COMM_SEND_NODE,
                "deps": (),
                "attributes": {"comm_dst": 0, "comm_tag": 9, "comm_size": 1},
            }
        )
        rule = "message from 1 to 0 with tag 9: is sent or received by one of the two only"
        more = [stranger.model_copy(update={"id": 10**6 + place}) for place in range(3)]
        for num, others in ((1, "$"), (2, ", and 1 more is$"), (3, ", and 2 more are$")):
            with pytest.raises(InputError, match=rule + others):
                chakra_step([first, [*second, *more[:num]]], export.groups, switch(2, 1e9, 0.0))

    def test_a_message_that_is_received_with_other_bytes_is_refused(self) -> None:
        ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 9}
        sent = ChakraNode(id=4, type=NodeType.COMM_SEND_NODE, attributes={**ends, "comm_size": 1_000})
        received = ChakraNode(id=7, type=NodeType.COMM_RECV_NODE, attributes={**ends, "comm_size": 5})
        rule = r"from 0 to 1 with tag 9: has 1,000 bytes at its sender \(node 4\), and 5 at its receiver \(node 7\)"
        with pytest.raises(InputError, match=rule):
            chakra_step([[sent], [received]], {}, switch(2, 1.0, 0.0))
        silent = received.model_copy(update={"attributes": ends})
        step = chakra_step([[sent], [silent]], {}, switch(2, 1.0, 0.0))
        assert play(step.graph, step.topology, step.paths).makespan_s == pytest.approx(1_000.0)

    def test_unknown_groups_and_small_networks_are_refused(self, small: OperatorTrace) -> None:
        export = chakra_export(small, Parallelism(data_parallel=2))
        with pytest.raises(
            InputError, match=r"accelerator 0, node \d+\.pg_name = 1: must be one of the groups 5"
        ):
            chakra_step(export.nodes, {5: (0, 1)}, switch(2, 1e9, 0.0))
        with pytest.raises(InputError, match="num_gpus = 2: must be at most 1"):
            chakra_step(export.nodes, export.groups, switch(1, 1e9, 0.0))

    @pytest.mark.parametrize(
        ("kind", "seconds"),
        [("ALL_REDUCE", 1.5), ("ALL_GATHER", 3.0), ("REDUCE_SCATTER", 0.75), ("BARRIER", 0.0)],
    )
    def test_collectives_take_their_closed_forms(self, kind: str, seconds: float) -> None:
        # Four accelerators, a byte a second, a byte each: 2 (n-1)/n; n-1 times what each contributes; (n-1)/n.
        attributes = {"comm_type": int(CommType[kind]), "comm_size": 1}
        node = ChakraNode(id=0, type=NodeType.COMM_COLL_NODE, attributes=attributes)
        step = chakra_step([[node]] * 4, {}, switch(4, 1.0, 0.0))
        assert play(step.graph, step.topology, step.paths).makespan_s == pytest.approx(seconds)

    def test_a_mismatch_of_a_collective_without_group_is_one_of_all_accelerators(self) -> None:
        ranks = [
            [ChakraNode(id=0, type=NodeType.COMM_COLL_NODE, attributes={"comm_type": 0, "comm_size": size})]
            for size in (1, 2)
        ]
        with pytest.raises(InputError, match="all accelerators, collective 0: differs between accelerators"):
            chakra_step(ranks, {}, switch(2, 1.0, 0.25))

    def test_a_barrier_needs_no_bytes(self) -> None:
        barrier = ChakraNode(
            id=1, type=NodeType.COMM_COLL_NODE, deps=(0,), attributes={"comm_type": int(CommType.BARRIER)}
        )
        ranks = []
        for micros in (1_000_000, 3_000_000):
            first = ChakraNode(id=0, type=NodeType.COMP_NODE, duration_micros=micros)
            ranks.append([first, barrier, first.model_copy(update={"id": 2, "deps": (1,)})])
        step = chakra_step(ranks, {}, switch(2, 1.0, 0.25))
        played = play(step.graph, step.topology, step.paths)
        assert played.makespan_s == pytest.approx(3.0 + 3.0)

    def test_what_waits_for_a_send_waits_until_it_has_arrived(self) -> None:
        # 1 s of work, 3 bytes over two cables of a byte a second and a latency of 0.25 s each, 1 s of work behind them.
        first, second = (
            ChakraNode(id=number, type=NodeType.COMP_NODE, duration_micros=1_000_000, deps=deps)
            for number, deps in ((0, ()), (2, (1,)))
        )
        ends = {"comm_src": 0, "comm_dst": 1, "comm_size": 3}
        sent = ChakraNode(id=1, type=NodeType.COMM_SEND_NODE, deps=(0,), attributes=ends)
        receiver = [ChakraNode(id=1, type=NodeType.COMM_RECV_NODE, attributes=ends)]
        step = chakra_step([[first, sent, second], receiver], {}, switch(2, 1.0, 0.25))
        assert play(step.graph, step.topology, step.paths).makespan_s == pytest.approx(1.0 + 3.5 + 1.0)
        beside = second.model_copy(update={"deps": (0,)})
        step = chakra_step([[first, sent, beside], receiver], {}, switch(2, 1.0, 0.25))
        assert play(step.graph, step.topology, step.paths).makespan_s == pytest.approx(1.0 + 3.5)

    def test_tasks_are_called_as_their_nodes_and_nodes_without_a_name_by_their_kind(self) -> None:
        nodes = [
            ChakraNode(id=0, type=NodeType.COMP_NODE, name="attention", duration_micros=1),
            ChakraNode(id=1, type=NodeType.COMP_NODE, duration_micros=1),
            ChakraNode(id=2, type=NodeType.METADATA_NODE),
        ]
        graph = chakra_step([nodes], {}, switch(1, 1.0, 0.0)).graph
        assert [graph.labels[label] for label in graph.label] == ["attention", "compute", "node"]

    @pytest.mark.parametrize("name", ["two", "9" * 10, "9" * 5_000, "٣"])
    def test_a_group_that_is_no_number_or_too_large_a_one_is_refused(self, name: str) -> None:
        attributes: dict[str, Value] = {"comm_type": 0, "comm_size": 1, "pg_name": name}
        node = ChakraNode(id=0, type=NodeType.COMM_COLL_NODE, attributes=attributes)
        with pytest.raises(InputError, match=r"node 0\.pg_name = .*: must be one of the groups 3"):
            chakra_step([[node]], {3: (0,)}, switch(1, 1.0, 0.0))

    def test_a_group_may_be_a_number_and_lacking_groups_are_told(self) -> None:
        for name in ("3", 3):
            attributes: dict[str, Value] = {"comm_type": 0, "comm_size": 1, "pg_name": name}
            node = ChakraNode(id=0, type=NodeType.COMM_COLL_NODE, attributes=attributes)
            step = chakra_step([[node]] * 4, {3: (0, 1, 2, 3)}, switch(4, 1.0, 0.0))
            assert play(step.graph, step.topology, step.paths).makespan_s == pytest.approx(1.5)
            with pytest.raises(
                InputError, match=r"pg_name = 3: is a group, and none is known: NAME\.groups\.json"
            ):
                chakra_step([[node]], {}, switch(1, 1.0, 0.0))

    def test_a_collective_without_bytes_is_named_with_its_accelerator(self) -> None:
        nodes = [
            [ChakraNode(id=3, type=NodeType.COMM_COLL_NODE, attributes={"comm_type": 0, **size})]
            for size in ({"comm_size": 8}, {})
        ]
        with pytest.raises(
            InputError, match=r"trace of accelerator 1: 1 problem\n  node 3.comm_size: is missing"
        ):
            chakra_step(nodes, {}, switch(2, 1.0, 0.0))

    @pytest.mark.parametrize(("kind", "name"), [(5, "BROADCAST"), (77, "77")])
    def test_what_is_not_played_is_said(self, kind: int, name: str) -> None:
        node = ChakraNode(id=0, type=NodeType.COMM_COLL_NODE, attributes={"comm_type": kind, "comm_size": 1})
        with pytest.raises(InputError, match=f"comm_type = {name}: is not played"):
            chakra_step([[node]], {}, switch(1, 1.0, 0.0))
