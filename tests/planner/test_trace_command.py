"""Does `capplan trace simulate` say what the simulator says, in words, as JSON and as a timeline?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import main
from planner.hop_simulation import HopAnswer
from planner.trace_events import COMPUTE, NETWORK
from planner.trace_play import PlayAnswer
from planner.trace_request import NetworkKind, TraceRequest
from planner.trace_simulation import TraceAnswer, simulate_trace
from simulator import catalog
from simulator.deep.chakra_files import read_chakra
from simulator.deep.trace_file import write_trace_file
from tests.simulator.deep.profiles import EVENTS, NODES, written
from tests.simulator.deep.traces import even, measured, write_small


@pytest.fixture
def small(tmp_path: Path) -> str:
    return str(write_small(tmp_path / "small"))


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> TraceAnswer:
    assert main(["trace", "simulate", *arguments, "--json"]) == 0
    return TraceAnswer.model_validate_json(capsys.readouterr().out)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", "simulate", *arguments]) == 0
    return capsys.readouterr().out


TRACE = Path(__file__).parents[1] / "data" / "traces" / "vgg13.json"
SLOW_NET = ("--bandwidth", "1e6", "--latency", "0")
SUMMED_S = 1.5 * 1632 / 1e6
"""Gradients of the small trace around a ring of four at 1 MB/s."""


class TestAnswer:
    def test_a_step_is_as_long_as_worked_out_by_hand(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(capsys, small, "--gpus", "4", "--parallel", "dp", *SLOW_NET)
        assert answer.step_s == pytest.approx(8.8e-3 + SUMMED_S)
        assert answer.single_device_s == pytest.approx(8.8e-3)
        assert answer.samples_per_s == pytest.approx(4 * 128 / (8.8e-3 + SUMMED_S))
        assert answer.efficiency_fraction == pytest.approx(8.8e-3 / (8.8e-3 + SUMMED_S))
        assert (answer.data_parallel, answer.num_microbatches, answer.batch_size) == (4, 1, 128)

    @pytest.mark.parametrize("parallel", ["ddp=8,tp=2", "tp=16", "ddp=4,tp=2,pp=2", "fsdp"])
    @pytest.mark.parametrize("network", [NetworkKind.NODES, NetworkKind.SWITCH, NetworkKind.RING])
    def test_what_is_alike_is_played_once_and_told_of_each(self, parallel: str, network: NetworkKind) -> None:
        asked = TraceRequest(path=TRACE, num_gpus=16, parallel=parallel, network=network)
        whole, part = (simulate_trace(asked, is_folded=folds).answer for folds in (False, True))
        assert part.step_s == pytest.approx(whole.step_s, rel=1e-12)
        for one, other in zip(part.accelerators, whole.accelerators, strict=True):
            assert one.accelerator == other.accelerator
            assert one.traffic_waits_s == pytest.approx(other.traffic_waits_s, rel=1e-9, abs=1e-12)
            assert one.busy_s == pytest.approx(other.busy_s)
            assert one.held_up_others_s == pytest.approx(other.held_up_others_s, abs=1e-12)
        for mine, theirs in zip(part.hot_links, whole.hot_links, strict=True):
            assert mine.num_bytes == pytest.approx(theirs.num_bytes)
            assert mine.waited_s == pytest.approx(theirs.waited_s)
            assert mine.full_fraction == pytest.approx(theirs.full_fraction)
        assert whole.num_played == 16
        assert part.num_played * part.num_tasks <= 16 * whole.num_tasks

    def test_ten_thousand_accelerators_are_told_by_the_one_that_is_played(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = [small, "--gpus", "10240", "--parallel", "ddp=1280,tp=8", "--network", "switch"]
        answer = answered(capsys, *asked)
        assert (len(answer.accelerators), answer.num_played) == (10_240, 1)
        assert "1 played, each for 10,240 that do the same" in told(capsys, *asked)

    def test_circuits_are_set_up_before_gradients_travel(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        photonic = ("--network", "photonic", "--ports", "2", "--set-up", "3")
        answer = answered(capsys, small, "--gpus", "4", "--parallel", "dp", *SLOW_NET, *photonic)
        assert answer.step_s == pytest.approx(3.0 + 8.8e-3 + SUMMED_S)
        assert answer.circuits is not None
        assert (answer.circuits.num_circuits, answer.circuits.num_set_ups) == (4, 4)
        assert answer.circuits.waited_s == pytest.approx(4 * 3.0)
        for row in answer.accelerators:
            assert row.traffic_waits_s["circuits"] == pytest.approx(3.0)
            parts = row.busy_s + sum(row.traffic_waits_s.values()) + row.others_wait_s + row.over_s
            assert parts == pytest.approx(answer.step_s)
        words = told(capsys, small, "--gpus", "4", "--parallel", "dp", *SLOW_NET, *photonic)
        assert (
            "Messages wait 12.0 s for ports and set-ups, all of them together: 4 set-ups of 4 circuits."
            in words
        )

    def test_decentralised_workers_do_not_wait_for_a_slow_one_that_they_need_not_hear(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # A step takes 8.8 ms, and twice that on accelerator 0; those beside it are three iterations ahead of it, those
        # beside them six, and the last one, which hears from both of these, seven.
        asked = [small, "--gpus", "6", "--parallel", "hop", "--hop", "iterations=20,gap=3,backups=1"]
        asked += ["--speed", "0=0.5", "--network", "full", "--bandwidth", "1e12", "--latency", "0"]
        assert main(["trace", "simulate", *asked, "--json"]) == 0
        answer = HopAnswer.model_validate_json(capsys.readouterr().out)
        assert answer.step_s == pytest.approx(20 * 17.6e-3)
        assert answer.workers[1].iterations_per_s == pytest.approx(20 / (17 * 17.6e-3))
        assert answer.workers[3].iterations_per_s == pytest.approx(20 / (13 * 17.6e-3))
        assert answer.workers[1].for_tokens_s == pytest.approx(17 * 17.6e-3 - 20 * 8.8e-3)
        assert [wait.worker for wait in answer.workers[1].waits_for] == [0]
        assert answer.samples_per_s == pytest.approx(6 * 20 * 128 / answer.step_s)
        assert answer.largest_gap == 3
        assert main(["trace", "simulate", *asked]) == 0
        words = capsys.readouterr().out
        assert "small on 6 workers" in words
        assert "largest gap between neighbours 3; 0 iterations skipped" in words
        assert "for 0 (123 ms)" in words

    def test_a_graph_of_ones_own_and_slowdowns_by_chance(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "pairs.json"
        file.write_text("[[0, 1], [1, 0]]", encoding="utf-8")
        hop = f"graph={file},iterations=10,chance=1,slowdown=3,seed=7"
        asked = [
            small,
            "--gpus",
            "2",
            "--parallel",
            "hop",
            "--hop",
            hop,
            "--bandwidth",
            "1e12",
            "--latency",
            "0",
        ]
        assert main(["trace", "simulate", *asked, "--json"]) == 0
        answer = HopAnswer.model_validate_json(capsys.readouterr().out)
        assert answer.step_s == pytest.approx(10 * 3 * 8.8e-3)
        file.write_text("[[0, 1], [1, 0, 2]]", encoding="utf-8")
        assert main(["trace", "simulate", *asked]) == 2
        assert "must be pairs of sender and receiver" in capsys.readouterr().err

    def test_a_limited_memory_sends_activations_away(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # At the peak, when the gradient of the loss is made, there are parameters and moments (1,632 bytes and twice as
        # many), the target, y and its gradient (1,024 each), the loss (4), x (256) and h (512). h is not needed there.
        whole = answered(capsys, small, "--gpus", "2", *SLOW_NET)
        assert whole.replica_peak_bytes == 3 * 1632 + 3 * 1024 + 4 + 256 + 512
        memory = whole.replica_peak_bytes - 400
        asked = [small, "--gpus", "2", *SLOW_NET, "--offload", f"memory={memory:.0f},host=1e9"]
        answer = answered(capsys, *asked)
        assert answer.memory is not None
        assert answer.memory.unlimited_step_s == whole.step_s
        assert answer.memory.peak_bytes <= memory
        assert "h" in [row.tensor for row in answer.memory.tensors]
        assert answer.memory.moved_bytes == sum(row.num_bytes for row in answer.memory.tensors)
        assert answer.step_s >= whole.step_s
        words = told(capsys, *asked)
        assert "What does not fit" in words
        assert "tensor h" in words

    def test_copies_stand_in_the_rows_of_their_accelerators(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "step.json"
        asked = [small, "--gpus", "2", *SLOW_NET, "--offload", "memory=8300,host=1e9", "--output", str(file)]
        told(capsys, *asked)
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        copies = [event for event in events if event["ph"] == "b" and event["name"] in ("offload", "fetch")]
        assert {(event["name"], event["tid"]) for event in copies} == {
            (name, rank) for name in ("offload", "fetch") for rank in (0, 1)
        }

    def test_the_memory_of_a_named_accelerator_is_that_of_the_catalogue(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        names = ("--traced-on", "h100-sxm5-80gb", "--on", "a100-sxm4-80gb")
        answer = answered(capsys, small, "--gpus", "2", *names, "--offload", "host=1e9")
        assert answer.memory is not None
        assert answer.memory.capacity_bytes == catalog.accelerator("a100-sxm4-80gb").memory_bytes
        assert answer.memory.tensors == ()

    def test_sharded_replicas_do_a_part_of_the_optimizer_each(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fast = ("--bandwidth", "1e15", "--latency", "0")
        answer = answered(capsys, small, "--gpus", "4", "--parallel", "fsdp", *fast)
        assert answer.step_s == pytest.approx(8.3e-3 + 0.5e-3 / 4)
        assert answer.data_parallel == 4

    def test_parts_of_every_accelerator_sum_to_the_step(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(
            capsys, small, "--gpus", "8", "--parallel", "ddp=2,tp=2,pp=2", "--network", "switch"
        )
        for row in answer.accelerators:
            parts = row.busy_s + sum(row.traffic_waits_s.values()) + row.others_wait_s + row.over_s
            assert parts == pytest.approx(answer.step_s)
        assert len(answer.accelerators) == 8

    @pytest.mark.parametrize(("num_chunks", "bubble_s"), [(1, 3e-3), (2, 1.5e-3), (4, 0.75e-3)])
    def test_interleaving_divides_the_bubble_by_the_chunks(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], num_chunks: int, bubble_s: float
    ) -> None:
        # Eight layers of 1 ms forward and 2 ms backward on two stages: a micro-batch of four takes a stage 3 ms, and the
        # bubble is (stages - 1) / chunks of that (Narayanan et al. 2021, section 2.2).
        file = tmp_path / "layers.json"
        write_trace_file(even(8, 1e-3, 2e-3), file)
        pipeline = ("--parallel", "pp", "--microbatches", "4", "--interleaved", str(num_chunks))
        answer = answered(
            capsys, str(file), "--gpus", "2", *pipeline, "--bandwidth", "1e15", "--latency", "0"
        )
        assert answer.step_s == pytest.approx(12e-3 + bubble_s)

    def test_links_of_an_even_ring_are_equally_hot(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(capsys, small, "--gpus", "4", "--parallel", "dp", *SLOW_NET)
        assert {link.link for link in answer.hot_links} == {
            "gpu 0 -> gpu 1",
            "gpu 1 -> gpu 2",
            "gpu 2 -> gpu 3",
            "gpu 3 -> gpu 0",
        }
        for link in answer.hot_links:
            assert link.waited_s == pytest.approx(SUMMED_S)
            assert link.num_bytes == pytest.approx(1.5 * 1632)
            assert link.full_fraction == pytest.approx(SUMMED_S / answer.step_s)

    def test_the_same_as_triosim(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "vgg13.json"
        write_trace_file(measured("vgg13"), file)
        answer = answered(capsys, str(file), "--gpus", "8", "--parallel", "tp", "--rules", "triosim")
        assert answer.step_s == pytest.approx(55.055e-3, rel=5e-5)
        assert answer.tensor_parallel == 8

    def test_a_new_batch(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        answer = answered(capsys, small, "--gpus", "1", "--trace-batch-size", "16", "--batch-size", "48")
        assert answer.step_s == pytest.approx(3 * 8.3e-3 + 0.5e-3)

    def test_another_accelerator(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        ours = ("--traced-on", "a100-sxm4-80gb", "--on", "h100-sxm5-80gb")
        answer = answered(capsys, small, "--gpus", "1", *ours)
        # Neither faster than the ratio of the faster rate, nor slower than on the older one: 989.4 over 312 TFLOP/s.
        assert 8.8e-3 / (989.4 / 312) <= answer.step_s < 8.8e-3

    def test_fitted_times(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        batch = ("--gpus", "1", "--trace-batch-size", "16", "--batch-size", "32")
        fitted = answered(capsys, small, *batch, "--times", "fitted").step_s
        assert 8.8e-3 < fitted <= answered(capsys, small, *batch).step_s

    def test_nodes_have_cards(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        network = ("--network", "nodes", "--gpus-per-node", "2", "--card-bandwidth", "1e6")
        answer = answered(capsys, small, "--gpus", "4", *network)
        assert any("card" in link.link for link in answer.hot_links)


class TestWords:
    def test_a_slow_accelerator_is_named(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        text = told(capsys, small, "--gpus", "4", "--parallel", "dp", "--speed", "2=0.5", *SLOW_NET)
        # Three others wait 8.3 ms each, until it has computed.
        assert "Others wait for accelerator 2 to compute: 24.9 ms together, 8.30 ms each" in text
        assert "for all-reduce traffic on average" in text

    def test_an_interleaved_pipeline_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "layers.json"
        write_trace_file(even(8, 1e-3, 2e-3), file)
        text = told(capsys, str(file), "--gpus", "2", "--parallel", "pp", "--interleaved", "4")
        assert "2 stages, 2 micro-batches, 4 runs of layers on each stage" in text

    def test_hidden_traffic_is_said_to_be_hidden(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = told(capsys, small, "--gpus", "1")
        assert "Nobody waits for anybody: all traffic is hidden behind computing." in text


class TestTimeline:
    def test_every_operator_and_message_is_written(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "step.json"
        answer = answered(capsys, small, "--gpus", "4", "--parallel", "dp", "--output", str(file), *SLOW_NET)
        entries = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        operators = [entry for entry in entries if entry["ph"] == "X"]
        assert {entry["tid"] for entry in operators} == {0, 1, 2, 3}
        assert len(operators) == 4 * 9
        assert max(entry["ts"] + entry["dur"] for entry in operators) == pytest.approx(answer.step_s * 1e6)
        begun = {entry["id"]: entry for entry in entries if entry["ph"] == "b"}
        ended = {entry["id"]: entry for entry in entries if entry["ph"] == "e"}
        assert len(begun) == 4 * 6
        assert begun.keys() == ended.keys()
        assert all(ended[number]["ts"] >= entry["ts"] for number, entry in begun.items())
        assert {entry["pid"] for entry in entries} == {COMPUTE, NETWORK}
        assert begun[min(begun)]["args"] == {"to": 1, "bytes": 408.0}

    def test_another_file_is_not_replaced(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("mine", encoding="utf-8")
        assert main(["trace", "simulate", small, "--gpus", "1", "--output", str(file)]) == 2
        assert "exists and is no timeline of capplan" in capsys.readouterr().err
        assert file.read_text(encoding="utf-8") == "mine"


class TestBroken:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--parallel", "pp=3"), "--parallel = pp=3: the degrees multiply to 3, and --gpus is 4"),
            (("--parallel", "zz"), "--parallel = zz: must begin with a kind; known: ddp, dp, fsdp, tp, pp"),
            (("--parallel", "tp=2,tp=2"), "--parallel = tp=2: is given twice"),
            (("--parallel", "tp=two"), "--parallel = tp=two: needs a whole number behind the equals sign"),
            (("--parallel", "fsdp=2,ddp=2"), "ddp and fsdp each say how many replicas: give one of them"),
            (
                ("--rules", "triosim", "--parallel", "fsdp"),
                "--parallel: is nothing that --rules triosim covers",
            ),
            (("--parallel", "dp=2,ddp=2"), "ddp and dp each say how many replicas: give one of them"),
            (("--parallel", "pp"), "--parallel pp = 4: must be at most 2, the layers of 'small'"),
            (("--parallel", "ddp", "--interleaved", "2"), "--interleaved = 2: must be 1 without a pipeline"),
            (
                ("--rules", "triosim", "--interleaved", "2"),
                "--interleaved: is nothing that --rules triosim covers",
            ),
            (("--speed", "4=0.5"), "--speed = 4: must be an accelerator, 0 to 3"),
            (("--speed", "1=0"), "'1=0' must be an accelerator and its speed over that of the trace"),
            (("--on", "h100-sxm5-80gb"), "--on = h100-sxm5-80gb: needs --traced-on"),
            (("--on", "h100", "--traced-on", "zz9"), "zz9"),
            (("--offload", "memory=1e9"), "--offload host: must be given, or pool"),
            (("--offload", "host=1e9"), "--offload memory: must be given"),
            (("--offload", "memory=1e9,pool=1e9"), "--offload pool-shared: must be given"),
            (("--offload", "memory=1e9,host=1e9,pool-memory=1"), "--offload pool-memory = 1: needs pool=..."),
            (("--offload", "memory=x,host=1e9"), "--offload memory = x: must be a number"),
            (("--offload", "memory=5000,host=1e9"), "--offload memory = 5,000: must be at least"),
            (
                ("--offload", "memory=1e9,host=1e9", "--parallel", "tp"),
                "--parallel tp = 4: must be left out",
            ),
            (
                ("--offload", "memory=1e9,host=1e9", "--rules", "triosim"),
                "--offload: is nothing that --rules",
            ),
            (("--offload", "memory=1e9,host=1e9", "--parallel", "hop"), "--offload: is nothing that workers"),
            (("--hop", "gap=3"), "--hop = gap=3: is read with --parallel hop only"),
            (("--parallel", "hop=2,tp=2"), "--parallel = hop=2: stands alone"),
            (("--parallel", "hop", "--hop", "gap"), "--hop = gap: needs a value: gap=..."),
            (("--parallel", "hop", "--hop", "gap=3,gap=4"), "--hop = gap=4: is given twice"),
            (("--parallel", "hop", "--hop", "gaps=3"), "--hop = gaps=3: must begin with a key"),
            (("--parallel", "hop", "--hop", "gap=0"), "--hop gap = 0: must be a whole number between 1"),
            (
                ("--parallel", "hop", "--hop", "chance=nan"),
                "--hop chance = nan: must be a number between 0 and 1",
            ),
            (("--parallel", "hop", "--hop", "graph=rong"), "--hop graph = rong: must be a graph"),
            (("--parallel", "hop", "--hop", "graph=no.json"), "does not exist"),
            (("--parallel", "hop", "--hop", "backups=2"), "--hop backups = 2: must be below 2"),
            (("--parallel", "hop", "--microbatches", "2"), "--microbatches: is nothing that workers"),
            (("--parallel", "hop", "--rules", "triosim"), "--rules: is nothing that workers"),
            (("--ports", "2"), "--ports is read with --network photonic only"),
            (("--set-up", "1", "--network", "switch"), "--set-up is read with --network photonic only"),
            (("--gpus-per-node", "8"), "--gpus-per-node is read with --network nodes only"),
            (("--card-bandwidth", "5e10"), "--card-bandwidth is read with --network nodes only"),
            (("--rules", "triosim", "--latency", "1"), "--latency is nothing that --rules triosim covers"),
            (("--rules", "triosim", "--order", "gpipe"), "--order is nothing that --rules triosim covers"),
            (("--rules", "triosim", "--microbatches", "2"), "--microbatches is nothing that --rules triosim"),
            (("--parallel", "hop", "--order", "gpipe"), "--order is nothing that workers of --parallel hop"),
            (("--speed", "3=0.5", "--speed", "3=1"), "'3=1' gives accelerator 3 a second speed"),
            (("--batch-size", "2", "--microbatches", "4"), "--batch-size = 2: must be at least 4"),
            (("--rules", "triosim", "--times", "fitted"), "--times: is nothing that --rules triosim covers"),
            (("--gpus", "2048", "--network", "full"), "--gpus = 2048: must be at most 1,024 with a cable"),
            (
                ("--gpus", "65536", "--parallel", "ddp=32768,pp=2"),
                "needs more than 16,000,000 tasks: take fewer accelerators",
            ),
            (("--network", "nodes"), "--gpus = 4: must be a multiple of 8, the accelerators of a node"),
            (
                ("--rules", "triosim", "--parallel", "ddp=4"),
                "--parallel: is nothing that --rules triosim covers",
            ),
            (
                ("--rules", "triosim", "--network", "switch"),
                "--network: is nothing that --rules triosim covers",
            ),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, small: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
    ) -> None:
        assert main(["trace", "simulate", small, "--gpus", "4", *arguments]) == 2
        assert message in " ".join(capsys.readouterr().err.split())

    def test_a_file_says_how_many_samples_it_has(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "even.json"
        write_trace_file(even(2, 1e-3, 2e-3), file)
        asked = ["trace", "simulate", str(file), "--gpus", "2", "--trace-batch-size", "64"]
        assert main(asked) == 2
        assert "--trace-batch-size = 64: is read with folders of TrioSim's only" in capsys.readouterr().err

    def test_a_broken_trace_is_named_with_its_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = write_small(tmp_path / "bad")
        text = (folder / "trace.csv").read_text(encoding="utf-8")
        (folder / "trace.csv").write_text(text.replace("[x; w1; b1]", "[x; w7; b1]"), encoding="utf-8")
        assert main(["trace", "simulate", str(folder), "--gpus", "2"]) == 2
        assert "trace.csv, line 2.inputs = w7: is no tensor of the trace" in capsys.readouterr().err


class TestExport:
    def test_one_file_for_each_accelerator_and_the_groups(self, small: str, tmp_path: Path) -> None:
        folder = tmp_path / "astra"
        arguments = ["trace", "export", small, "--gpus", "4", "--parallel", "ddp=2,tp=2"]
        assert main([*arguments, "--output", str(folder)]) == 0
        assert sorted(path.name for path in folder.iterdir()) == [
            "step.0.et",
            "step.1.et",
            "step.2.et",
            "step.3.et",
            "step.groups.json",
        ]
        groups = json.loads((folder / "step.groups.json").read_text(encoding="utf-8"))
        assert sorted(groups.values()) == [[0, 1], [0, 2], [1, 3], [2, 3]]
        first = read_chakra(folder / "step.0.et")
        # Half of 8.0 of the 8.3 ms of computing, and half of the optimizer.
        assert sum(node.duration_micros for node in first) == 4000 + 300 + 250

    def test_json_is_the_same(self, small: str, tmp_path: Path) -> None:
        arguments = ["trace", "export", small, "--gpus", "2"]
        for form in ("et", "json"):
            assert main([*arguments, "--format", form, "--output", str(tmp_path / form)]) == 0
        both = [read_chakra(tmp_path / form / f"step.1.{form}") for form in ("et", "json")]
        assert both[0] == both[1]

    def test_an_older_export_of_the_same_names_is_replaced(self, small: str, tmp_path: Path) -> None:
        arguments = ["trace", "export", small, "--gpus", "2", "--output", str(tmp_path)]
        assert main([*arguments, "--parallel", "dp"]) == 0
        before = (tmp_path / "step.1.et").read_bytes()
        assert main([*arguments, "--parallel", "tp"]) == 0
        assert (tmp_path / "step.1.et").read_bytes() != before

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--gpus", "2"), "holds step.2.et and 1 more of another export: remove what is left of it"),
            (("--gpus", "3"), "holds step.3.et of another export: remove what is left of it"),
            (("--gpus", "4", "--format", "json"), "holds step.0.et and 3 more of another export"),
        ],
    )
    def test_files_that_would_be_left_of_another_export_are_refused(
        self,
        small: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        arguments: tuple[str, ...],
        message: str,
    ) -> None:
        folder = tmp_path / "astra"
        export = ["trace", "export", small, "--output", str(folder)]
        assert main([*export, "--gpus", "4"]) == 0
        before = {path: path.read_bytes() for path in folder.iterdir()}
        assert main([*export, *arguments]) == 2
        assert message in capsys.readouterr().err
        assert {path: path.read_bytes() for path in folder.iterdir()} == before

    def test_a_folder_that_cannot_be_made_is_refused(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("", encoding="utf-8")
        folder = str(tmp_path / "file" / "astra")
        assert main(["trace", "export", small, "--gpus", "2", "--output", folder]) == 2
        assert "cannot be made" in capsys.readouterr().err


class TestConvert:
    def test_a_converted_profile_is_played(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "linear.json"
        files = [str(path) for path in written(tmp_path, EVENTS, NODES)]
        arguments = ["trace", "convert", *files, "--batch-size", "512", "--output", str(file)]
        assert main(arguments) == 0
        assert "3 operators in 1 layer, 0.00123 s a step" in capsys.readouterr().err
        assert main(arguments) == 0  # an older trace is replaced
        capsys.readouterr()
        answer = answered(capsys, str(file), "--gpus", "1")
        assert answer.step_s == pytest.approx(1230e-6)
        assert (answer.trace, answer.batch_size) == ("linear", 512)

    def test_another_file_is_not_replaced(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "notes.json"
        file.write_text("mine", encoding="utf-8")
        files = [str(path) for path in written(tmp_path, EVENTS, NODES)]
        assert main(["trace", "convert", *files, "--batch-size", "1", "--output", str(file)]) == 2
        assert "exists and is no trace of capplan" in capsys.readouterr().err
        assert file.read_text(encoding="utf-8") == "mine"

    def test_a_swapped_pair_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        files = [str(path) for path in reversed(written(tmp_path, EVENTS, NODES))]
        output = str(tmp_path / "vgg.json")
        assert main(["trace", "convert", *files, "--batch-size", "1", "--output", output]) == 2
        assert (
            "traceEvents: must be a list of events: is this a profile of PyTorch?" in capsys.readouterr().err
        )


class TestPlay:
    @pytest.fixture
    def astra(self, small: str, tmp_path: Path) -> Path:
        folder = tmp_path / "astra"
        arguments = ["trace", "export", small, "--gpus", "4", "--parallel", "dp", "--output", str(folder)]
        assert main(arguments) == 0
        return folder

    def test_exported_traces_take_what_the_step_takes(
        self, astra: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", "play", str(astra), "--json", *SLOW_NET]) == 0
        answer = PlayAnswer.model_validate_json(capsys.readouterr().out)
        assert answer.step_s == pytest.approx(8.8e-3 + SUMMED_S)
        assert (answer.traces, answer.num_gpus) == ("step", 4)
        assert len(answer.hot_links) == 4

    def test_words_and_timeline(
        self, astra: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "step.json"
        assert main(["trace", "play", str(astra), "--output", str(file), *SLOW_NET]) == 0
        out = capsys.readouterr().out
        assert "step on 4 accelerators: 11.2 ms a step" in out
        assert "Accelerators wait 2.45 ms for all-reduce traffic on average" in out
        assert len(json.loads(file.read_text(encoding="utf-8"))["traceEvents"]) > 4 * 9

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("step.1.et", None, "lacks the trace of accelerator 1: step.1.et"),
            ("step.1.json", "", "has accelerator 1 twice: step.1.et, step.1.json"),
            ("other.0.et", "", "has traces of 2 runs (other, step): it must be one"),
            ("step.groups.json", "[]", 'must be groups and their accelerators, such as {"1": [0, 1]}'),
            ("step.groups.json", '{"1": [0, true]}', "must be groups and their accelerators"),
            ("step.groups.json", '{"7": [0, 1, 2, 3]}', "pg_name = 1: must be one of the groups 7"),
            ("step.groups.json", '{"1": [0, 1]}', "group 1, collective 0: differs between accelerators"),
        ],
    )
    def test_folders_that_do_not_fit_together_are_refused(
        self, astra: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, message: str
    ) -> None:
        if text is None:
            (astra / name).unlink()
        else:
            (astra / name).write_text(text, encoding="utf-8")
        assert main(["trace", "play", str(astra)]) == 2
        assert message in capsys.readouterr().err

    def test_what_is_no_folder_of_traces_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", "play", str(tmp_path / "missing")]) == 2
        assert main(["trace", "play", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert "is no folder: give the one with NAME.0.et" in err
        assert "has no traces, such as step.0.et" in err
