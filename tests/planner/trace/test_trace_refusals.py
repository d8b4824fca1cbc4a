"""Is a broken trace refused by `capplan trace`, with what is wrong and the way out?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli.commands import main
from simulator.deep.traces.trace_file import write_trace_file
from tests.simulator.deep.traces import even, write_small


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
            (("--speed", "1=1e-300"), "such as 3=0.8; in digits, at least 0.000000000001 and below 10000"),
            (("--slow-link", "gpu:1=1e-300"), "in digits, at least 0.000000000001 and at most 1"),
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
                ("--offload", "memory=1e9,host=1e9", "--parallel", "fsdp"),
                "--parallel = fsdp: must be left out with a limited memory",
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
            (("--rules", "triosim", "--ramp", "1e-6"), "--ramp is nothing that --rules triosim covers"),
            (("--parallel", "hop", "--ramp", "1e-6"), "--ramp is nothing that workers of --parallel hop"),
            (("--ramp", "-1"), "Invalid value for '--ramp'"),
            (("--rules", "triosim", "--latency", "1"), "--latency is nothing that --rules triosim covers"),
            (("--rules", "triosim", "--order", "gpipe"), "--order is nothing that --rules triosim covers"),
            (("--rules", "triosim", "--microbatches", "2"), "--microbatches is nothing that --rules triosim"),
            (
                ("--rules", "triosim", "--collectives", "ring"),
                "--collectives is nothing that --rules triosim covers",
            ),
            (
                ("--parallel", "hop", "--collectives", "tree"),
                "--collectives is nothing that workers of --parallel hop",
            ),
            (("--parallel", "hop", "--order", "gpipe"), "--order is nothing that workers of --parallel hop"),
            (("--speed", "3=0.5", "--speed", "3=1"), "'3=1' gives accelerator 3 a second speed"),
            (("--order", "gpipe"), "--order = gpipe: orders micro-batches, and a batch is one: leave it out"),
            (
                ("--batch-size", "64", "--microbatches", "3"),
                "--microbatches = 3: must divide the 64 samples of a replica; nearest: 2, 4",
            ),
            (("--batch-size", "2", "--microbatches", "4"), "--batch-size = 2: must be at least 4"),
            (("--rules", "triosim", "--times", "fitted"), "--times: is nothing that --rules triosim covers"),
            (("--gpus", "2048", "--network", "full"), "--gpus = 2048: must be at most 1,024 with a cable"),
            (
                ("--gpus", "4096", "--parallel", "ddp=2048,pp=2"),
                "network = ring: lets messages between stages meet on its links",
            ),
            (
                ("--gpus", "65536", "--parallel", "ddp", "--output", "step.json"),
                "events of 65,536 accelerators, and viewers open 1,000,000",
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
