"""Does `capplan trace capture` run a script as Python would, trace its step, and otherwise say what was wrong?"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, FAILED, OK
from planner.trace import capture as trace_capture
from planner.trace.capture_script import Iterations
from planner.trace.simulation import TraceAnswer
from simulator.deep.traces.trace import OperatorTrace, Phase
from simulator.deep.traces.trace_file import read_trace_file, write_trace_file

TESTS = Path(__file__).parents[2]
STEP_S = 1230e-6
"""Kernels of the step in `tests.simulator.deep.profiles`: 500, 700 and 30 us."""


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that is called torch, for this process and for the script's."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(TESTS / "planner" / "fake_torch.py", site / "torch.py")
    shutil.copy(TESTS / "simulator" / "deep" / "profiles.py", site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(trace_capture, "find_spec", str)


def captured(folder: Path, text: str, *arguments: str) -> int:
    """Captures a script; the folder then has it, and the trace if there is one."""
    (folder / "train.py").write_text(dedent(text), encoding="utf-8")
    command = ["trace", "capture", str(folder / "train.py"), "--batch-size", "4", *arguments]
    return main([*command[:5], "-o", str(folder / "step.json"), *command[5:]])


STEPS = """
import torch
optimizer = torch.optim.SGD()
for _ in range(20):
    torch.autograd.backward()
    optimizer.step()
print("reached the end")
"""


class TestIterations:
    def ends(self, steps: str) -> tuple[str, int]:
        """Marks the steps with which an iteration ends."""
        iterations = Iterations()
        marks = "".join("|" if iterations.ends_with(ord(step)) else "." for step in steps)
        return marks, iterations.num_ended

    def test_one_optimizer_ends_each_with_its_step(self) -> None:
        assert self.ends("aaaa") == (".|||", 4)

    def test_of_several_optimizers_the_last_one_does(self) -> None:
        assert self.ends("abcabcabc") == (".....|..|", 3)


@pytest.mark.usefixtures("fake")
class TestScript:
    def test_the_iteration_of_median_length_is_kept(self, tmp_path: Path) -> None:
        assert captured(tmp_path, STEPS, "--iterations", "3") == OK
        trace = read_trace_file(tmp_path / "step.json")
        assert trace.single_device_s == pytest.approx(2.0 * STEP_S)
        assert (trace.name, trace.batch_size, len(trace)) == ("step", 4, 3)
        assert trace.source is not None
        assert trace.source.startswith("train.py, PyTorch 0.0-fake on Fake H100")

    def test_its_length_is_told_with_those_of_the_others(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        captured(tmp_path, STEPS, "--iterations", "5", "--skip", "2")
        out, err = capfd.readouterr()
        assert "3 operators in 1 layer, 0.00369 s a step (median of 5: 0.00123 to 0.00615)" in err
        assert "reached the end" not in out

    def test_only_the_trace_is_left(self, tmp_path: Path) -> None:
        captured(tmp_path, STEPS)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step.json", "train.py"]

    def test_it_is_run_as_python_would(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "planner.py").write_text("mine = 'its own planner'", encoding="utf-8")
        text = """
            import sys
            from planner import mine
            print(__name__, sys.argv[1:], mine, "torch" in sys.modules)
        """
        assert captured(tmp_path, dedent(text) + STEPS, "--", "--width", "8", "-o", "own") == OK
        assert capfd.readouterr().out == "__main__ ['--width', '8', '-o', 'own'] its own planner False\n"

    def test_what_it_ends_with_is_run(self, tmp_path: Path) -> None:
        ending = f"finally:\n    open({str(tmp_path / 'closed')!r}, 'w').close()\n"
        assert captured(tmp_path, f"try:{STEPS.replace(chr(10), chr(10) + '    ')}\n{ending}") == OK
        assert (tmp_path / "closed").exists()

    def test_one_that_catches_everything_is_stopped(self, tmp_path: Path) -> None:
        text = """
            import torch
            optimizer = torch.optim.SGD()
            while True:
                try:
                    optimizer.step()
                except BaseException:
                    pass
        """
        assert captured(tmp_path, text) == OK

    def test_an_optimizer_inside_another_one_counts_once(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        text = """
            import torch
            class Outer(torch.optim.Optimizer):
                inner = torch.optim.SGD()
                def step(self):
                    self.inner.step()
            optimizer = Outer()
            for _ in range(7):
                optimizer.step()
        """
        assert captured(tmp_path, text) == BROKEN_INPUT
        assert "ended after 7 iterations, and 11 are needed (5 to skip, 1" in capfd.readouterr().err

    def test_several_backward_passes_are_told(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        twice = STEPS.replace("    optimizer", "    torch.autograd.backward()\n    optimizer")
        assert captured(tmp_path, twice) == OK
        assert "One iteration has 2 backward passes" in capfd.readouterr().err

    def test_layers_that_were_compiled_into_one_are_told(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert captured(tmp_path, STEPS) == OK
        assert "torch.compile" not in capfd.readouterr().err
        profiles = Path(os.environ["PYTHONPATH"]) / "profiles.py"
        text = profiles.read_text(encoding="utf-8")
        profiles.write_text(text.replace("aten::linear", "Torch-Compiled Region: 0/0"), encoding="utf-8")
        assert captured(tmp_path, STEPS) == OK
        assert "torch.compile joins the layers that it compiles" in capfd.readouterr().err


@pytest.mark.usefixtures("fake")
class TestBroken:
    @pytest.mark.parametrize(
        ("text", "code", "message"),
        [
            ("print(1 / 0)", FAILED, "train.py failed before the second iteration: ZeroDivisionError: division by zero"),
            (f"{STEPS.replace('20', '3')}\nraise ValueError('bad\\ndata')", FAILED, "after 3 iterations: ValueError: bad"),
            ("def broken(", FAILED, "train.py failed before the second iteration: SyntaxError"),
            ("import sys; sys.exit(7)", FAILED, "it exited with code 7; nothing is written"),
            ("import sys; sys.exit('no data')", FAILED, "it exited with code 1"),
            ("import os; os.kill(os.getpid(), 9)", FAILED, "train.py died: its process was ended by SIGKILL"),
            ("import os; os._exit(5)", FAILED, "train.py died: its process ended with code 5"),
            ("import sys; sys.exit()", BROKEN_INPUT, "ended without importing torch: give a script that trains"),
            ("import torch", BROKEN_INPUT, "ended without a step of an optimizer of torch.optim"),
            (STEPS.replace("20", "1"), BROKEN_INPUT, "ended before the second iteration, and 11 are needed"),
            (STEPS.replace("20", "10"), BROKEN_INPUT, "ended after 10 iterations, and 11 are needed"),
        ],
    )  # fmt: skip
    def test_it_is_said_what_went_wrong_and_nothing_is_written(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, code: int, message: str
    ) -> None:
        assert captured(tmp_path, text) == code
        assert message in capfd.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]

    def test_the_traceback_of_a_script_begins_in_it(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        captured(tmp_path, "def fails():\n    print(1 / 0)\nfails()\n")
        err = capfd.readouterr().err
        assert "division by zero (line 2)" in err
        assert "runpy" not in err
        first = err.splitlines()[1]
        assert first.strip().startswith(f'File "{tmp_path / "train.py"}", line 3')

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("missing.py", "missing.py: is no file: give the Python script that trains"),
            (".", "is no file: give the Python script that trains"),
        ],
    )
    def test_what_is_no_script_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
    ) -> None:
        command = ["trace", "capture", str(tmp_path / name), "--batch-size", "4"]
        assert main([*command, "-o", str(tmp_path / "step.json")]) == BROKEN_INPUT
        assert message in capsys.readouterr().err

    def test_a_file_that_is_no_trace_is_kept_and_nothing_is_run(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "step.json").write_text("{}", encoding="utf-8")
        assert captured(tmp_path, "print('was run')") == BROKEN_INPUT
        out, err = capfd.readouterr()
        assert "exists and is no trace of capplan: choose another name" in err
        assert "was run" not in out

    def test_what_makes_no_trace_is_told_without_a_file_that_is_gone(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        other = "import torch\ntorch.profiler.profile.step = lambda self: None\n"
        assert captured(tmp_path, other + STEPS) == FAILED
        err = capfd.readouterr().err
        assert "what PyTorch 0.0-fake told of train.py makes no trace: traceEvents: has no operators" in err


def test_without_pytorch_it_is_said_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_capture, "find_spec", {}.get)
    assert captured(tmp_path, STEPS) == FAILED
    assert "capturing a step needs PyTorch beside capplan: install capplan[torch]" in capsys.readouterr().err


MODEL = """
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
for _ in range(12):
    inputs, targets = torch.randn(16, 64), torch.randint(0, 10, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
"""
SIZES = [64 * 128, 128, 128 * 32, 32, 32 * 10, 10]
"""Numbers of each weight and bias, worked out by hand."""


@pytest.fixture(scope="module", params=["SGD", "AdamW"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OperatorTrace:
    folder = tmp_path_factory.mktemp("mlp")
    assert captured(folder, MODEL.format(optimizer=request.param)) == OK
    return read_trace_file(folder / "step.json")


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is an extra")
class TestPyTorch:
    def test_its_parameters_are_those_of_the_model(self, trace: OperatorTrace) -> None:
        found = trace.tensors.num_bytes[trace.parameters]
        assert sorted(found.tolist()) == sorted(4.0 * size for size in SIZES)
        assert trace.num_layers == 3

    def test_products_have_their_operations(self, trace: OperatorTrace) -> None:
        linear = [row for row, name in enumerate(trace.names) if name == "aten::linear"]
        assert trace.num_flop[linear].tolist() == [2.0 * 16 * size for size in SIZES[::2]]
        assert trace.can_split[linear].all()

    def test_it_goes_forward_backward_and_to_the_optimizer(self, trace: OperatorTrace) -> None:
        phases = [Phase.from_code(code) for code in trace.phase.tolist()]
        assert phases == sorted(phases, key=list(Phase).index)
        assert set(phases) == set(Phase)

    def test_gradients_are_complete_from_the_last_layer_to_the_first(self, trace: OperatorTrace) -> None:
        weights = [
            row
            for row in trace.parameters
            if trace.tensors.num_bytes[row] in {4.0 * 8192, 4.0 * 4096, 4.0 * 320}
        ]
        assert [trace.tensors.num_bytes[row] / 4.0 for row in weights] == [320, 4096, 8192]

    def test_it_can_be_spread(
        self, trace: OperatorTrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_trace_file(trace, tmp_path / "step.json")
        for parallel in ("ddp", "tp", "ddp=2,pp=2"):
            arguments = [str(tmp_path / "step.json"), "--gpus", "4", "--parallel", parallel, "--json"]
            assert main(["trace", "simulate", *arguments]) == OK
            answer = TraceAnswer.model_validate_json(capsys.readouterr().out)
            assert answer.single_device_s == pytest.approx(trace.single_device_s)
            for row in answer.accelerators:
                parts = row.busy_s + sum(row.traffic_waits_s.values()) + row.others_wait_s + row.over_s
                assert parts == pytest.approx(answer.step_s)

    def test_what_is_computed_again_belongs_to_the_backward_pass(self, tmp_path: Path) -> None:
        again = MODEL.replace("model(inputs)", "checkpoint(model, inputs, use_reentrant=False)")
        text = "from torch.utils.checkpoint import checkpoint\n" + again.format(optimizer="SGD")
        assert captured(tmp_path, text, "--iterations", "1") == OK
        trace = read_trace_file(tmp_path / "step.json")
        assert sorted(trace.tensors.num_bytes[trace.parameters]) == sorted(4.0 * size for size in SIZES)
        assert sum(name == "aten::linear" for name in trace.names) == 3
