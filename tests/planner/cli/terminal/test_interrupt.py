"""Do signals of schedulers and closed terminals end commands like Ctrl-C? Exit code 130, kept results, and a message."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.cli import commands as cli
from planner.cli import entry
from planner.cli.terminal.interrupt import stop_on_interrupt
from planner.recommended import output
from planner.recommended.recommendation import Recommendation
from tests.planner.hand_made import recommended

ROOT = Path(__file__).parents[4]
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
SIMULATE = ["simulate", BLOOM, "--plan", "tp=4,pp=12,dp=8,mbs=2,recompute=full"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def as_started_from_a_shell() -> Iterator[None]:
    """What runs the tests may ignore signals, or handle them."""
    usual = {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, usual.get(number, signal.SIG_DFL)) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raising(number: signal.Signals) -> Callable[..., None]:
    return lambda *_, **__: signal.raise_signal(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_with_130_and_says_what_is_kept(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setattr("planner.one_design.simulated_design.simulate_plan", raising(number))
    assert cli.main(SIMULATE) == 130
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "Error: interrupted; nothing is kept")
    assert signal.getsignal(number) == before


def test_what_nohup_has_a_command_ignore_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr("planner.views.catalog_view.show", raising(signal.SIGHUP))
    assert cli.main(["catalog"]) == 0
    with stop_on_interrupt() as should_stop:
        signal.raise_signal(signal.SIGHUP)
        assert not should_stop()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", SIGNALS)
def test_an_answer_that_is_complete_is_printed_to_its_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = output.answer_json

    def interrupted(answer: Recommendation) -> str:
        signal.raise_signal(number)
        return written(answer)

    monkeypatch.setattr("planner.answer.recommend.recommend", lambda *_, **__: recommended())
    monkeypatch.setattr("planner.recommended.output.answer_json", interrupted)
    assert cli.main(["recommend", BLOOM, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "recommended"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_signal_while_the_reader_waits_cuts_nothing_off(unbuffered: str) -> None:
    """The pipe is full when the signal comes: the system then writes a part, and Python alone would drop the rest."""
    length = 3 * 65_536
    code = (
        "import sys\nfrom planner.cli.terminal.interrupt import stop_on_interrupt\n"
        "from planner.cli.terminal.output import write\n"
        f"with stop_on_interrupt():\n    print('begun', file=sys.stderr, flush=True)\n    write('x' * {length})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    with process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "begun\n"
        assert process.stdout.read(1) == "x"  # it writes, and soon cannot go on
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"  # that it is stopping
        assert len(process.stdout.read()) == length - 1
    assert process.returncode == 0


def test_a_program_that_calls_the_command_gets_the_answer_as_text() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as written:
        assert cli.main(["catalog", "models"]) == 0
    assert written.getvalue().startswith("name")


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_while_commands_are_imported_has_the_code_too(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    slow = types.ModuleType("planner.cli.commands")
    slow.__getattr__ = raising(number)  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, slow.__name__, slow)
    assert entry.main() == 130
    assert capfd.readouterr().err == "Error: interrupted; nothing is kept\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_no_signal_changes_the_code_while_python_ends(number: signal.Signals) -> None:
    code = (
        "import atexit, signal, sys\nfrom planner.cli import entry\n"
        f"atexit.register(signal.raise_signal, {int(number)})\nsys.argv = ['capplan', '--version']\n"
        "sys.exit(entry.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "capplan", "")


def test_a_terminal_that_is_closed_ends_a_command_with_130() -> None:
    """Nothing can be written to it any more."""
    ours, its = pty.openpty()
    code = (
        "import fcntl, sys, termios, time\nfrom planner.cli.commands import main\n"
        "from planner.one_design import simulated_design\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "def simulate_plan(*_, **__):\n    print('begun', file=sys.stderr)\n"
        "    for _ in range(600):\n        time.sleep(0.1)\n"  # a signal just before one sleep does not cut it short
        f"simulated_design.simulate_plan = simulate_plan\nsys.exit(main({[*SIMULATE, '--quiet']}))"
    )

    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    assert b"begun" in os.read(ours, 100)
    os.close(ours)
    assert process.wait(timeout=PATIENCE_S) == 130
