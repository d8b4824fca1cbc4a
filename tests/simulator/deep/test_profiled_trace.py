"""Do a profile and an execution trace of PyTorch become the trace that they should?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz_mutations import JSON, Form, mutations
from benchmarks.fuzz_traces import num_refused
from simulator.deep.traces.execution_graph import read_execution_graph
from simulator.deep.traces.kineto import read_profile
from simulator.deep.traces.profiled_trace import read_profiled
from simulator.deep.traces.trace import Category, Phase
from simulator.errors import InputError
from tests.simulator.deep.profiles import EVENTS, NODES, Entry, event, launched, node, tensor, written

NUM_MUTATIONS = 300


class TestSmallStep:
    def test_kernels_belong_to_the_outermost_operator_that_launched_them(self, tmp_path: Path) -> None:
        trace = read_profiled(*written(tmp_path, EVENTS, NODES), batch_size=4)
        assert trace.names == (
            "aten::linear",
            "autograd::engine::evaluate_function: AddmmBackward0",
            "aten::_foreach_add_",
        )
        assert trace.duration_s.tolist() == pytest.approx([500e-6, 700e-6, 30e-6])
        assert [Phase.from_code(code).value for code in trace.phase] == ["forward", "backward", "optimizer"]
        # Eight outputs of eight inputs each, twice; backward twice that.
        assert trace.num_flop.tolist() == [128.0, 256.0, 0.0]
        assert {trace.tensors.names[row] for row in trace.parameters} == {"2", "3"}
        assert trace.forward_of.tolist() == [-1, 0, -1]

    def test_a_frozen_weight_is_a_parameter_by_its_name(self, tmp_path: Path) -> None:
        updated = {"inputs": [[tensor(3)], [tensor(6, 64)]]}
        nodes = [{**one, **updated} if one["id"] == 9 else one for one in NODES]
        trace = read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4)
        assert {trace.tensors.names[row] for row in trace.parameters} == {"2", "3"}

    def test_a_backward_operator_multiplies_twice_as_much_whatever_it_calls_its_inputs(
        self, tmp_path: Path
    ) -> None:
        called = {"op_schema": "aten::mm(Tensor self, Tensor weight)", "input_shapes": [[8], [8, 8]]}
        nodes = [{**one, **called} if one["id"] == 7 else one for one in NODES]
        trace = read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4)
        assert trace.num_flop.tolist() == [128.0, 256.0, 0.0]

    def test_a_lookup_in_an_embedding_multiplies_nothing(self, tmp_path: Path) -> None:
        schema = "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1) -> Tensor"
        lookup = {
            "name": "aten::embedding",
            "op_schema": schema,
            "inputs": [tensor(2, 64), tensor(1)],
            "input_shapes": [[8, 8], [8]],
        }
        events = [{**one, "name": str(one["name"]).replace("linear", "embedding")} for one in EVENTS]
        nodes = [{**one, **lookup} if one["id"] == 2 else one for one in NODES]
        trace = read_profiled(*written(tmp_path, events, nodes), batch_size=4)
        assert trace.names[0] == "aten::embedding"
        assert trace.num_flop.tolist() == [0.0, 0.0, 0.0]

    def test_operators_are_matched_by_their_record_where_the_profile_has_it(self, tmp_path: Path) -> None:
        records = {"aten::linear": 2, "autograd::engine::evaluate_function: AddmmBackward0": 5}
        events = [
            {**one, "args": {"Record function id": records.get(str(one["name"]), 9)}}
            if one["cat"] == "cpu_op"
            else one
            for one in EVENTS
        ]
        nodes = [{**one, "name": f"{one['name']}!"} if one["id"] in (2, 5, 9) else one for one in NODES]
        trace = read_profiled(*written(tmp_path, events, nodes), batch_size=4)
        assert len(trace) == 3

    def test_a_profile_without_kernels_has_the_time_of_its_operators(self, tmp_path: Path) -> None:
        events = [one for one in EVENTS if one["cat"] in ("cpu_op", "user_annotation")]
        trace = read_profiled(*written(tmp_path, events, NODES), batch_size=4)
        assert trace.duration_s.tolist() == pytest.approx([10e-6, 10e-6, 5e-6])

    def test_a_profile_in_which_nothing_takes_time_is_refused(self, tmp_path: Path) -> None:
        events = [{**one, "dur": 0.0} for one in EVENTS]
        with pytest.raises(InputError, match="operators: needs at least one in the forward phase"):
            read_profiled(*written(tmp_path, events, NODES), batch_size=4)

    def test_traffic_between_accelerators_is_left_out(self, tmp_path: Path) -> None:
        events = [*EVENTS, *launched(4, 3.0, 9000.0, "ncclDevKernel_AllReduce")]
        trace = read_profiled(*written(tmp_path, events, NODES), batch_size=4)
        assert trace.duration_s[0] == pytest.approx(500e-6)

    @pytest.mark.parametrize(
        "other",
        [
            {"ph": "M", "name": "process_name", "pid": 1},
            {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 1.0},
            {"ph": "X", "cat": "python_function", "name": "forward", "ts": -1.0},
            {"ph": "X", "name": "without a kind"},
        ],
    )
    def test_events_of_other_kinds_are_not_looked_at(self, tmp_path: Path, other: Entry) -> None:
        profile, _ = written(tmp_path, [other, *EVENTS], NODES)
        with_other = read_profile(profile)
        profile, _ = written(tmp_path, EVENTS, NODES)
        assert with_other == read_profile(profile)

    @pytest.mark.parametrize("num_optimizers", [0, 1, 2])
    def test_what_runs_in_any_step_of_an_optimizer_is_its_own(
        self, tmp_path: Path, num_optimizers: int
    ) -> None:
        steps = [
            event(f"Optimizer.step#SGD.{number}", 40.0 + 20.0 * number, 20.0, cat="user_annotation")
            for number in range(num_optimizers)
        ]
        updates = [event("aten::_foreach_add_", 41.0 + 20.0 * number, 5.0) for number in range(2)]
        profile, _ = written(tmp_path, [*EVENTS[:8], *steps, *updates], NODES)
        phases = [operator.phase for operator in read_profile(profile) if "foreach" in operator.name]
        without = [Phase.BACKWARD] * (2 - num_optimizers)
        assert phases == [Phase.OPTIMIZER] * num_optimizers + without

    def test_what_begins_with_a_step_of_an_optimizer_is_its_own(self, tmp_path: Path) -> None:
        step = event("Optimizer.step#SGD.step", 40.0, 20.0, cat="user_annotation")
        updates = [event("aten::_foreach_add_", begin, 5.0) for begin in (40.0, 60.0)]
        profile, _ = written(tmp_path, [*EVENTS[:8], step, *updates], NODES)
        phases = [operator.phase for operator in read_profile(profile) if "foreach" in operator.name]
        assert phases == [Phase.OPTIMIZER, Phase.BACKWARD]

    def test_of_several_steps_the_last_one_counts(self, tmp_path: Path) -> None:
        earlier = [
            event("ProfilerStep#1", 0.0, 100.0, cat="user_annotation"),
            event("aten::linear", 0.0, 10.0),
            *launched(9, 1.0, 4000.0),
        ]
        later = [{**one, "ts": float(str(one["ts"])) + 1000.0} for one in EVENTS]
        step = event("ProfilerStep#2", 1000.0, 900.0, cat="user_annotation")
        trace = read_profiled(*written(tmp_path, [*earlier, step, *later], NODES), batch_size=4)
        assert trace.single_device_s == pytest.approx(1230e-6)

    def test_a_weight_of_which_an_operator_makes_a_view_is_a_weight(self, tmp_path: Path) -> None:
        # Compiled regions make transposed views of their weights, which nobody allocates.
        view = [40, 102, 0, 64, 4, "cuda:0"]
        nodes = [{**one, "outputs": [tensor(4), view]} if one["id"] == 2 else one for one in NODES]
        trace = read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4)
        assert {trace.tensors.names[row] for row in trace.parameters} == {"2", "3"}

    def test_newer_execution_traces_are_read(self, tmp_path: Path) -> None:
        attributes = ("rf_id", "tid", "scope", "op_schema")
        newer: list[Entry] = [
            {
                "id": one["id"],
                "name": one["name"],
                "ctrl_deps": one["parent"],
                "inputs": {"values": one.get("inputs", []), "shapes": one.get("input_shapes", [])},
                "outputs": {"values": one.get("outputs", [])},
                "attrs": [{"name": name, "value": one.get(name, "")} for name in attributes],
            }
            for one in NODES
        ]
        both = [read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4) for nodes in (NODES, newer)]
        assert both[0].names == both[1].names
        assert np.array_equal(both[0].num_flop, both[1].num_flop)
        assert both[0].tensors.names == both[1].tensors.names


class TestNesting:
    def test_tensors_are_found_in_three_lists_within_each_other(self, tmp_path: Path) -> None:
        deep, too_deep = [[[tensor(1)], tensor(2)]], [[[[tensor(3)]]]]
        _, graph = written(tmp_path, [], [node(2, "aten::cat", inputs=[deep, too_deep], outputs=[tensor(4)])])
        (cat,) = read_execution_graph(graph)
        assert [one.id for one in cat.inputs] == [1, 2]

    @pytest.mark.parametrize(
        ("sizes", "shape"), [([8, 8], (8, 8)), ([[8, 8], [8]], ()), ([8, None], ()), ("8x8", ())]
    )
    def test_sizes_other_than_a_list_of_whole_numbers_are_no_shape(
        self, tmp_path: Path, sizes: object, shape: tuple[int, ...]
    ) -> None:
        one = node(2, "aten::linear", inputs=[tensor(2, 64)], outputs=[tensor(4)], input_shapes=[sizes])
        (linear,) = read_execution_graph(written(tmp_path, [], [one])[1])
        assert [each.shape for each in linear.inputs] == [shape]

    def test_an_operator_in_thousands_of_others_is_one_operator(self, tmp_path: Path) -> None:
        nodes = [node(2, "outer", inputs=[tensor(1)], outputs=[tensor(4)])]
        nodes += [node(number, "inner", parent=number - 1) for number in range(3, 5000)]
        _, graph = written(tmp_path, [], nodes)
        assert [one.name for one in read_execution_graph(graph)] == ["outer"]


class TestReusedNumbers:
    """The observer numbers addresses, and PyTorch's allocators give free ones away again."""

    def test_bytes_that_are_allocated_again_are_other_bytes(self, tmp_path: Path) -> None:
        # The gradient of the weight has the number, the address and the size of what the forward pass made.
        nodes = [
            {**one, "outputs": [tensor(4, 64)]}
            if one["id"] == 7
            else {**one, "inputs": [[tensor(2, 64), tensor(3)], [tensor(4, 64)]]}
            if one["id"] == 9
            else {**one, "outputs": [tensor(4, 64)]}
            if one["id"] == 2
            else one
            for one in NODES
        ]
        trace = read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4)
        made = [trace.outputs.of(row).tolist() for row in range(2)]
        categories = [[Category.from_code(int(trace.tensors.category[one])) for one in row] for row in made]
        assert categories == [[Category.ACTIVATION], [Category.GRADIENT]]
        assert trace.inputs.of(2).tolist()[-1] == made[1][0]

    def test_what_was_saved_may_come_back_under_a_number_that_is_made_later(self, tmp_path: Path) -> None:
        # Tensor 6 is the output of the forward pass unpacked; then its number goes to the gradient of the weight.
        unpacked = [6, 104, 0, 8, 4, "cuda:0"]
        nodes = [{**one, "inputs": [tensor(5), unpacked]} if one["id"] == 6 else one for one in NODES]
        trace = read_profiled(*written(tmp_path, EVENTS, nodes), batch_size=4)
        read, made = trace.inputs.of(1).tolist(), trace.outputs.of(1).tolist()
        assert trace.tensors.storage[trace.outputs.of(0)[0]] in trace.tensors.storage[read]
        assert not set(read) & set(made)


class TestBroken:
    @pytest.mark.parametrize(
        ("events", "nodes", "message"),
        [
            (
                [event("a", 0.0, 1.0, cat={})],
                NODES,
                r"traceEvents\.0\.cat = {}: input should be a valid string",
            ),
            (
                [*EVENTS, event("gemm", 0.0, 1.0, cat="kernel", args={"correlation": []})],
                NODES,
                r"traceEvents\.12\.args\.correlation = \[\]: input should be a valid integer",
            ),
            (
                [*EVENTS, event("launch", 0.0, 1.0, cat="cuda_runtime", args={"correlation": {"a": 1}})],
                NODES,
                r"traceEvents\.12\.args\.correlation = {'a': 1}: input should be a valid integer",
            ),
            (
                [event("\ud800", 0.0, 1.0)],
                NODES,
                r"traceEvents\.0\.name = .*: input should be a valid string",
            ),
            (EVENTS, [*NODES, NODES[2]], r"graph\.json.*nodes\.7\.id = 5: stands there twice"),
            ([event("a", -1.0, 1.0)], NODES, r"profile\.json.*traceEvents\.0\.ts = -1\.0: input should be"),
            ([event("a", 0.0, -1.0)], NODES, r"traceEvents\.0\.dur = -1\.0: input should be greater"),
            ([event("a", 0.0, 1.0, ts="soon")], NODES, r"traceEvents\.0\.ts = soon: input should be a valid"),
            ([], NODES, r"traceEvents: has no operators \(cat cpu_op\)"),
            (EVENTS, [], r"graph\.json.*nodes: has no operators"),
            (EVENTS, [{"id": "x", "name": "y"}], r"nodes\.0\.id = x: input should be a valid integer"),
            (
                EVENTS,
                [*NODES[:1], {**NODES[1], "outputs": [tensor(4, 10**17)]}, *NODES[2:]],
                r"operators and their tensors\.num_bytes = 4e\+17: input should be less",
            ),
            (
                [*EVENTS, *launched(5, 3.0, 1e12), *launched(6, 3.5, 1e12)],
                NODES,
                r"operators and their tensors\.duration_s = 2000000\.000.*: input should be less",
            ),
            (
                EVENTS,
                [{"id": 1, "name": json.loads("[" * 800 + "]" * 800)}],
                r"nodes\.0\.name = .*: input should",
            ),
            (EVENTS, [node(2, "aten::other")], r"has 0 of the 3 operators with kernels of the profile"),
            (
                EVENTS,
                [node(2, "a", parent=3, scope=7), node(3, "b", parent=2, scope=7), node(4, "c", parent=3)],
                r"node 4\.parent = 3: leads in a circle",
            ),
        ],
    )
    def test_what_is_broken_is_named(
        self, tmp_path: Path, events: list[Entry], nodes: list[Entry], message: str
    ) -> None:
        with pytest.raises(InputError, match=f"(?s){message}"):
            read_profiled(*written(tmp_path, events, nodes), batch_size=4)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is no JSON"),
            ("[]", "must be a list of"),
            ("[" * 100_000, "is no JSON"),
            ("{}", "must be a list"),
        ],
    )
    @pytest.mark.parametrize("read", [read_profile, read_execution_graph])
    def test_other_documents_are_refused(
        self, tmp_path: Path, read: Callable[[Path], object], text: str, message: str
    ) -> None:
        path = tmp_path / "other.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read(path)

    def test_broken_gzip_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "profile.json.gz"
        path.write_bytes(gzip.compress(b"{}")[:10] + b"\xff\xff\xff")
        with pytest.raises(InputError, match=r"is no gzip|is no JSON"):
            read_profile(path)

    @pytest.mark.short(1)
    @pytest.mark.parametrize("form", [None, JSON])
    @pytest.mark.parametrize("name", ["profile.json", "graph.json"])
    def test_mutated_files_are_read_or_refused(self, tmp_path: Path, name: str, form: Form | None) -> None:
        profile, graph = written(tmp_path, EVENTS, NODES)
        file = tmp_path / name
        refused = 0
        for content in mutations(file.read_bytes(), NUM_MUTATIONS, form=form):
            file.write_bytes(content)
            refused += num_refused(lambda: read_profiled(profile, graph, batch_size=4))
        assert NUM_MUTATIONS / 3 < refused < NUM_MUTATIONS
