"""Does `capplan trace` find what is in a trace, say it in words and show it on a timeline?"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from planner.cli.commands import main
from planner.deep.events import COMPUTE, NETWORK
from planner.deep.link_rows import link_rows
from planner.trace.hop_simulation import HopAnswer
from planner.trace.request import NetworkKind, TraceRequest
from planner.trace.simulation import simulate_trace
from simulator import catalog
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.traces.trace_file import write_trace_file
from tests.planner.trace_answers import SLOW_NET, SUMMED_S, answered
from tests.simulator.deep.traces import even, measured

TRACE = Path(__file__).parents[2] / "data" / "traces" / "vgg13.json"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", "simulate", *arguments]) == 0
    return capsys.readouterr().out


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

    @pytest.mark.short(4)
    @pytest.mark.parametrize("parallel", ["ddp=8,tp=2", "tp=16", "ddp=4,tp=2,pp=2", "fsdp"])
    @pytest.mark.parametrize("network", [NetworkKind.NODES, NetworkKind.SWITCH, NetworkKind.RING])
    def test_what_is_alike_is_played_once_and_told_of_each(self, parallel: str, network: NetworkKind) -> None:
        # Direct messages, which `auto` takes, too, end together: which of them is waited for is chance.
        asked = TraceRequest(
            path=TRACE, num_gpus=16, parallel=parallel, network=network, collectives=Algorithm.NCCL
        )
        whole, part = (simulate_trace(asked, is_drawn=drawn).answer for drawn in (True, False))
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
            assert mine.num_alike == theirs.num_alike
        assert whole.num_played == 16
        assert part.num_played * part.num_tasks <= 16 * whole.num_tasks

    def test_ten_thousand_accelerators_are_told_by_the_one_that_is_played(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = [small, "--gpus", "10240", "--parallel", "ddp=1280,tp=8", "--network", "switch"]
        asked += ["--collectives", "ring"]
        answer = answered(capsys, *asked)
        assert (len(answer.accelerators), answer.num_played) == (10_240, 1)
        assert "1 accelerator simulated, for 10,240 identical ones" in told(capsys, *asked)

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
        assert "Messages wait 12.0 s in total for ports and set-ups: 4 set-ups of 4 circuits." in words

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

    def test_iterations_that_a_slow_worker_skips_compute_no_samples(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = [small, "--gpus", "6", "--parallel", "hop", "--hop", "iterations=20,gap=3,backups=1,skip=2"]
        asked += ["--speed", "0=0.25", "--network", "full", "--bandwidth", "1e12", "--latency", "0"]
        assert main(["trace", "simulate", *asked, "--json"]) == 0
        answer = HopAnswer.model_validate_json(capsys.readouterr().out)
        num_skipped = sum(worker.num_skipped for worker in answer.workers)
        assert num_skipped == answer.workers[0].num_skipped > 0
        assert answer.samples_per_s == pytest.approx((6 * 20 - num_skipped) * 128 / answer.step_s)

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
        assert "Offloading" in words
        assert "tensor h" in words

    def test_a_memory_that_holds_everything_is_said_to_leave_nothing_out(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = told(capsys, small, "--gpus", "2", *SLOW_NET, "--offload", "memory=1e9,host=1e9")
        assert "Everything fits in memory: 0.0 GiB of 0.9 GiB used at the peak." in words
        assert "are offloaded and fetched back" not in words

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
            assert link.num_alike == 4
        assert main(["trace", "simulate", small, "--gpus", "16", "--parallel", "dp", *SLOW_NET]) == 0
        heading = "Links with the longest waits, per average accelerator\n"
        row, _, rest = capsys.readouterr().out.partition(heading)[2].partition("\n")
        assert re.fullmatch(r"  gpu \d+ -> gpu \d+, and 15 like it +3,060B +full .*", row)
        assert "->" not in rest

    def test_a_slow_link_has_its_own_row_beside_those_that_are_alike(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = ("--gpus", "4", "--parallel", "dp", *SLOW_NET, "--collectives", "ring")
        answer = answered(capsys, small, *asked, "--slow-link", "gpu:1>gpu:2=0.5")
        rows = list(link_rows(answer.hot_links, answer.num_gpus))
        assert rows[0][0] == "gpu 1 -> gpu 2"
        assert len({row[0] for row in rows}) == len(rows) <= len(answer.hot_links)

    def test_the_same_as_triosim(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "vgg13.json"
        write_trace_file(measured("vgg13"), file)
        answer = answered(capsys, str(file), "--gpus", "8", "--parallel", "tp", "--rules", "triosim")
        assert answer.step_s == pytest.approx(55.055e-3, rel=5e-5)
        assert answer.tensor_parallel == 8

    def test_a_new_batch_scales_passes(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        answer = answered(capsys, small, "--gpus", "1", "--trace-batch-size", "16", "--batch-size", "48")
        assert answer.step_s == pytest.approx(3 * 8.3e-3 + 0.5e-3)

    def test_a_faster_rate_helps(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        ours = ("--traced-on", "a100-sxm4-80gb", "--on", "h100-sxm5-80gb")
        answer = answered(capsys, small, "--gpus", "1", *ours)
        # Neither faster than the ratio of the faster rate, nor slower than on the older one: 989.4 over 312 TFLOP/s.
        assert 8.8e-3 / (989.4 / 312) <= answer.step_s < 8.8e-3

    def test_fitted_times_are_less(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        batch = ("--gpus", "1", "--trace-batch-size", "16", "--batch-size", "32")
        fitted = answered(capsys, small, *batch, "--times", "fitted")
        assert 8.8e-3 < fitted.step_s <= answered(capsys, small, *batch).step_s
        # Of the only operator of a class nobody knows what its time grows with.
        assert "aten::relu_" in fitted.kept_in_proportion
        assert "aten::linear" not in fitted.kept_in_proportion

    def test_collectives_take_the_algorithm_that_is_asked_for(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        network = ("--network", "switch", "--bandwidth", "1e15", "--latency", "1e-3")
        step = ("--gpus", "4", "--parallel", "dp", *network)
        took_s = {
            name: answered(capsys, small, *step, "--collectives", name).step_s
            for name in ("ring", "halving-doubling", "direct", "nccl")
        }
        # 8.8 ms of computing; 6 steps of a ring, 4 of halving and doubling, or 2 of direct messages, of 2 ms each.
        assert took_s["ring"] == pytest.approx(8.8e-3 + 6 * 2e-3)
        assert took_s["halving-doubling"] == pytest.approx(8.8e-3 + 4 * 2e-3)
        assert took_s["direct"] == pytest.approx(8.8e-3 + 2 * 2e-3)
        assert took_s["nccl"] == pytest.approx(took_s["ring"])
        assert answered(capsys, small, *step).step_s == pytest.approx(took_s["direct"])

    @pytest.mark.parametrize("network", ["ring", "switch", "full"])
    def test_small_collectives_lose_what_the_ramp_says(
        self, small: str, capsys: pytest.CaptureFixture[str], network: str
    ) -> None:
        step = ("--gpus", "4", "--parallel", "dp", "--collectives", "ring", "--network", network, *SLOW_NET)
        answer = answered(capsys, small, *step, "--ramp", "1e-4")
        # The ring keeps each cable busy for SUMMED_S.
        assert answer.step_s == pytest.approx(8.8e-3 + SUMMED_S + 2.0 * math.sqrt(1e-4 * SUMMED_S))
        assert not answer.lacks_ramp

    def test_the_ramp_of_nodes_is_inside_them(self) -> None:
        asked = TraceRequest(path=TRACE, num_gpus=4, gpus_per_node=2, network=NetworkKind.NODES, ramp_s=3e-6)
        topology = asked.topology()
        has_ramp, has_none = (
            [topology.link_name(link) for link in np.flatnonzero(chosen).tolist()]
            for chosen in (topology.ramp_s == 3e-6, topology.ramp_s == 0.0)
        )
        assert len(has_ramp) == 2 * 4
        assert all("nvswitch" in name for name in has_ramp)
        assert len(has_none) == 2 * (4 + 4 + 2)  # accelerators to cards, cards to leaves, leaves to the spine

    def test_nodes_have_cards(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        network = ("--network", "nodes", "--gpus-per-node", "2", "--card-bandwidth", "1e6")
        answer = answered(capsys, small, "--gpus", "4", *network)
        assert any("card" in link.link for link in answer.hot_links)


class TestWords:
    @pytest.mark.parametrize(
        ("asked", "is_told"),
        [
            (("--gpus", "4", "--parallel", "dp"), True),
            (("--gpus", "4", "--parallel", "dp", "--network", "switch"), True),
            (("--gpus", "4", "--parallel", "dp", "--ramp", "3e-6"), False),
            (("--gpus", "2", "--parallel", "pp"), False),  # messages, and no collectives
            (("--gpus", "1"), False),
            (("--gpus", "4", "--rules", "triosim"), False),
            (("--gpus", "4", "--parallel", "hop"), False),
        ],
    )
    def test_it_is_said_where_small_collectives_are_too_fast(
        self, small: str, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], is_told: bool
    ) -> None:
        text = told(capsys, small, *asked)
        assert ("Collectives of every size reach full bandwidth" in text) is is_told

    def test_a_slow_accelerator_is_named(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        text = told(capsys, small, "--gpus", "4", "--parallel", "dp", "--speed", "2=0.5", *SLOW_NET)
        # Three others wait 8.3 ms each, until it has computed.
        assert "Others wait for accelerator 2 to compute: 24.9 ms in total, 8.30 ms each" in text
        assert re.search(r"Each accelerator waits \S+ ms for all-reduce traffic\.", text)
        assert "Accelerator 2 finishes last; the others finish 0.500 ms earlier on average." in text

    def test_traffic_that_ends_a_step_is_waited_for(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "layers.json"
        write_trace_file(even(8, 1e-3, 2e-3), file)
        options = ("--parallel", "dp", "--network", "ring", "--bandwidth", "1e5", "--latency", "0")
        text = told(capsys, str(file), "--gpus", "4", *options)
        # 800 bytes of gradients around a ring of four: 6 steps of 200 bytes.
        assert "Each accelerator waits 12.0 ms for all-reduce traffic." in text
        assert "idle at the end of the step" not in text
        slow = told(capsys, str(file), "--gpus", "4", "--speed", "2=0.5", *options)
        assert (
            "Other speeds: accelerator 2 at 0.5 of the trace's speed. This makes the step 24.0 ms longer"
            in slow
        )
        assert "Others wait for accelerator 2 to compute: 72.0 ms in total, 24.0 ms each" in slow
        assert "idle at the end of the step" not in slow

    def test_an_interleaved_pipeline_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "layers.json"
        write_trace_file(even(8, 1e-3, 2e-3), file)
        text = told(capsys, str(file), "--gpus", "2", "--parallel", "pp", "--interleaved", "4")
        assert "2 stages, 2 micro-batches, 4 chunks of layers on each stage" in text

    def test_hidden_traffic_is_said_to_be_hidden(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = told(capsys, small, "--gpus", "1")
        assert "No accelerator waits: computation hides all traffic." in text


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
