"""Are traces read as they are meant, and broken ones refused with the place and the rule?"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz_mutations import CSV, JSON, Form, mutations
from benchmarks.fuzz_traces import num_refused
from simulator.deep.traces.read import read_operator_trace
from simulator.deep.traces.trace import NO_LAYER, NO_OPERATOR, Category, OperatorTrace, Phase
from simulator.deep.traces.trace_file import is_trace_file, read_trace_file, trace_record, write_trace_file
from simulator.deep.traces.triosim_files import read_triosim
from simulator.errors import InputError
from tests.simulator.deep.traces import OPERATORS, TENSORS, measured, write_as_triosim, write_small

NUM_MUTATIONS = 300


def named(trace: OperatorTrace, category: Category) -> set[str]:
    return {trace.tensors.names[row] for row in np.flatnonzero(trace.tensors.is_a(category))}


class TestTrioSim:
    def test_operators_have_their_phase_and_time(self, small: OperatorTrace) -> None:
        seconds = {phase: small.duration_s[small.is_in(phase)].sum() for phase in Phase}
        assert seconds == pytest.approx(
            {Phase.FORWARD: 3.15e-3, Phase.BACKWARD: 5.15e-3, Phase.OPTIMIZER: 0.5e-3}
        )
        assert small.name == "small"
        assert np.flatnonzero(small.can_split).tolist() == [0, 2, 5, 7]

    def test_reading_leaves_the_longest_cell_of_other_tables_as_it_was(self, tmp_path: Path) -> None:
        write_small(tmp_path)
        before = csv.field_size_limit()
        read_triosim(tmp_path)
        assert csv.field_size_limit() == before

    def test_tensors_have_their_bytes_and_category(self, small: OperatorTrace) -> None:
        assert named(small, Category.PARAMETER) == {"w1", "b1", "w2", "b2"}
        assert named(small, Category.GRADIENT) == {"dw1", "db1", "dw2", "db2"}
        assert named(small, Category.STATE) == {"m", "v"}
        assert small.parameter_bytes == 4 * (128 + 8 + 256 + 16)

    def test_layers_begin_with_operators_that_have_parameters(self, small: OperatorTrace) -> None:
        assert small.layer.tolist() == [0, 0, 1, 1, 1, 1, 0, 0, NO_LAYER]
        assert small.num_layers == 2

    def test_backward_operators_are_matched_through_views_of_the_weight(self, small: OperatorTrace) -> None:
        assert small.forward_of[[5, 7]].tolist() == [2, 0]
        assert (small.forward_of[[0, 4, 6, 8]] == NO_OPERATOR).all()

    def test_gradients_are_ready_last_layer_first_and_biases_with_their_weights(
        self, small: OperatorTrace
    ) -> None:
        ready = {small.tensors.names[row]: int(small.gradient_ready[row]) for row in small.parameters}
        assert list(ready.items()) == [("w2", 5), ("b2", 5), ("w1", 7), ("b1", 7)]

    @pytest.mark.parametrize("name", ["vgg13", "resnet50"])
    def test_a_trace_of_full_size_is_read_as_it_was_written(self, tmp_path: Path, name: str) -> None:
        trace = measured(name)
        read = read_triosim(write_as_triosim(trace, tmp_path / name))
        assert trace_record(read) == trace_record(replace(trace, source=None))


class TestMeasured:
    @pytest.mark.parametrize(
        ("name", "step_ms", "num_parameters", "num_layers"),
        [
            ("vgg13", 94.038, 133_047_848, 13),
            ("resnet50", 70.723, 25_557_032, 107),
            ("vgg13-batch512", 346.37, 133_047_848, 13),
        ],
    )
    def test_traces_have_the_sums_of_what_they_were_compiled_from(
        self, name: str, step_ms: float, num_parameters: int, num_layers: int
    ) -> None:
        # Sums of the columns of TrioSim's traces, and of the kernels of its profile: 346,344 microseconds and a few of
        # memory sets. Parameters as torchvision counts them.
        trace = measured(name)
        assert trace.single_device_s == pytest.approx(step_ms * 1e-3, rel=1e-5)
        assert trace.parameter_bytes == 4 * num_parameters
        assert trace.num_layers == num_layers
        assert trace.source is not None
        assert "github.com/sarchlab/triosim, commit 3fb3c06" in trace.source


class TestBrokenTrioSim:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (",1010,1000,", ",1010,-1,", r"trace\.csv, line 2\.duration_s = -1e-06: input should be greater"),
            (",1010,1000,", ",1010,nan,", r"trace\.csv, line 2\.duration_s = nan: input should be"),
            (
                ",1010,1000,",
                ",1010,1e300,",
                r"trace\.csv, line 2\.duration_s = .*less than or equal to 1000000",
            ),
            (",1010,1000,", ",1010,soon,", r"line 2\.Operator_cudatimenooverlap = soon: must be a number"),
            ("\n2,aten", "\n1,aten", r"line 3\.OperatorID = 1: must be a whole number above 1"),
            ("\n2,aten", "\n²,aten", r"line 3\.OperatorID = ²: must be a whole number above 1"),
            ("[x; w1; b1]", "[x; w9; b1]", r"trace\.csv, line 2\.inputs = w9: is no tensor of the trace"),
            (
                "[x; w1; b1]",
                "[y; w1; b1]",
                r"line 2\.inputs = y: is made only later, by aten::linear at trace",
            ),
            (",0,forward,1\n2", ",0,sideways,1\n2", r"line 2\.stage = sideways: must be forward, backward"),
            ("1,aten::linear", "1,", r"trace\.csv, line 2\.name: string should have at least 1 character"),
            ("stage", "stadium", r"trace\.csv.*line 1 = .*lacks the columns stage"),
            ("forward", "backward", r"needs at least one in the forward phase"),
        ],
    )
    def test_a_broken_operator_is_named_with_its_line_and_rule(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=f"(?s){message}"):
            read_triosim(write_small(tmp_path / "bad", operators=OPERATORS.replace(old, new)))

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("64,4,input,s1", "64,-4,input,s1", r"tensor\.csv, line 2\.num_bytes = -256\.0: input should be"),
            ("64,4,input,s1", "inf,4,input,s1", r"tensor\.csv, line 2\.num_bytes = inf: input should be"),
            ("64,4,input,s1", "many,4,input,s1", r"line 2\.TensorNumElement = many: must be a number"),
            ("5,h,", "5,b1,", r"line 7\.TensorID = b1: has 512 bytes here, 32 at tensor\.csv, line 5"),
            (
                ",4,input,s1,0",
                ",4",
                r"line 2 = .*: has 5 cells where the heading has 8: is the file cut off\?",
            ),
            ('"[16, 4]"', '"[16, 4]', r"tensor\.csv.*(is no CSV|where the heading has)"),
        ],
    )
    def test_a_broken_tensor_is_named_with_its_line_and_rule(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=f"(?s){message}"):
            read_triosim(write_small(tmp_path / "bad", tensors=TENSORS.replace(old, new)))

    def test_all_broken_rows_are_told_at_once(self, tmp_path: Path) -> None:
        broken = (
            OPERATORS.replace("1010,1000", "1010,x")
            .replace("2000,2000", "2000,y")
            .replace("500,500", "500,z")
        )
        with pytest.raises(InputError) as caught:
            read_triosim(write_small(tmp_path / "bad", operators=broken))
        assert len(caught.value.problems) == 3

    @pytest.mark.parametrize("text", ["", "\n", "OperatorID\n"])
    def test_a_file_without_rows_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InputError, match=r"(?s)trace\.csv.*lacks the columns"):
            read_triosim(write_small(tmp_path / "bad", operators=text))

    def test_a_heading_alone_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"(?s)trace\.csv.*has no rows below its heading"):
            read_triosim(write_small(tmp_path / "bad", operators=OPERATORS.splitlines()[0]))

    def test_a_wrong_encoding_is_refused(self, tmp_path: Path) -> None:
        folder = write_small(tmp_path / "bad")
        (folder / "trace.csv").write_bytes(OPERATORS.encode("utf-16"))
        with pytest.raises(InputError, match=r"(?s)trace\.csv.*byte 0: is no UTF-8"):
            read_triosim(folder)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"(?s)trace\.csv.*does not exist"):
            read_triosim(tmp_path)

    def test_a_huge_file_is_refused_before_it_is_read(self, tmp_path: Path) -> None:
        folder = write_small(tmp_path / "bad")
        with (folder / "trace.csv").open("r+b") as file:
            file.truncate(600_000_000)  # a hole: takes no room on the disk
        with pytest.raises(InputError, match="is larger than 512 MB: cut it to one step"):
            read_triosim(folder)

    @pytest.mark.parametrize("form", [None, CSV])
    @pytest.mark.parametrize("name", ["trace.csv", "tensor.csv"])
    def test_mutated_files_are_read_or_refused(self, tmp_path: Path, name: str, form: Form | None) -> None:
        folder = write_small(tmp_path / "mutated")
        file = folder / name
        refused = 0
        for content in mutations(file.read_bytes(), NUM_MUTATIONS, form=form):
            file.write_bytes(content)
            refused += num_refused(lambda: read_triosim(folder))
        assert NUM_MUTATIONS / 2 < refused < NUM_MUTATIONS


class TestOwnFile:
    @pytest.mark.parametrize("source", [None, "a run of our own"])
    def test_what_is_written_is_read_back(
        self, small: OperatorTrace, tmp_path: Path, source: str | None
    ) -> None:
        path = tmp_path / "small.json"
        trace = replace(small, source=source)
        write_trace_file(trace, path)
        assert is_trace_file(path)
        assert trace_record(read_trace_file(path)) == trace_record(trace)

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (
                '"duration_s": 0.001',
                '"duration_s": -1',
                r"operators\.0\.duration_s = -1: input should be greater",
            ),
            ('"duration_s": 0.001', '"duration_s": NaN', r"duration_s|invalid JSON"),
            ('"batch_size": 16', '"batch_size": 0', r"batch_size = 0: input should be greater"),
            ('"id": "w1"', '"id": "x"', r"tensors\[0\]\.id = x: stands there twice, again at tensors\[1\]"),
            ('"phase": "forward"', '"phase": "sideways"', r"operators\.0\.phase = sideways: input should be"),
            ('"name": "small"', '"nom": "small"', r"name: field required"),
        ],
    )
    def test_a_broken_field_is_named_with_its_rule(
        self, small: OperatorTrace, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        path = tmp_path / "small.json"
        write_trace_file(small, path)
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        with pytest.raises(InputError, match=f"(?s){message}"):
            read_trace_file(path)

    @pytest.mark.parametrize("form", [None, JSON])
    def test_mutated_files_are_read_or_refused(
        self, small: OperatorTrace, tmp_path: Path, form: Form | None
    ) -> None:
        path = tmp_path / "small.json"
        write_trace_file(small, path)
        refused = 0
        for content in mutations(path.read_bytes(), NUM_MUTATIONS, form=form):
            path.write_bytes(content)
            refused += num_refused(lambda: read_trace_file(path))
        assert NUM_MUTATIONS / 2 < refused < NUM_MUTATIONS


class TestAnyFormat:
    def test_folders_and_files_are_told_apart(self, small: OperatorTrace, tmp_path: Path) -> None:
        write_trace_file(small, tmp_path / "own.json")
        own = read_operator_trace(tmp_path / "own.json")
        folder = read_operator_trace(tmp_path / "small", batch_size=16)
        assert trace_record(own) == trace_record(folder) == trace_record(small)

    def test_what_is_no_trace_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
        with pytest.raises(InputError, match=r"notes\.txt(?s:.*)is no trace: give a folder with trace\.csv"):
            read_operator_trace(tmp_path / "notes.txt")
        with pytest.raises(InputError, match=r"missing(?s:.*)does not exist; `capplan trace capture`"):
            read_operator_trace(tmp_path / "missing")
