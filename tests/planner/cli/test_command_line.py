"""Is the command line what people expect? Help, examples, completion, colours, verbosity, interrupts, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from planner.cli import commands as cli
from planner.cli.completion import SHELLS, VARIABLE
from planner.cli.terminal import exit_codes
from planner.cli.terminal.help import CODES, SECTIONS
from planner.cli.terminal.output import WIDTH
from simulator.catalog import Kind, names

ROOT = Path(__file__).parents[3]
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"
SWEEP = """\
job: {workload: {model: llama-3.1-8b, tokens: 5e10, sequence_length: 8192, global_batch_size: 64},
      offers: [{accelerator: h100-sxm5-80gb, num_gpus: 16, rent_usd_per_gpu_hour: 2.5}], site: us-iowa}
num_gpus: [16, 32, 64]
checkpoint_schemes: [async]
"""


def commands(
    group: click.Group = cli.commands, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands())
LEAVES = {path: command for path, command in COMMANDS.items() if not isinstance(command, click.Group)}


def examples_of(command: click.Command) -> list[str]:
    return [
        line.strip() for line in (command.epilog or "").splitlines() if line.strip().startswith("capplan ")
    ]


def interrupted(*_: object, **__: object) -> None:
    """Stands for what Ctrl-C ends at once."""
    raise KeyboardInterrupt


class TestHelp:
    @pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
    def test_every_command_says_what_it_does_and_has_examples(
        self, path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = COMMANDS[path]
        assert command.short_help
        assert cli.main([*path, "--help"]) == 0
        out = capsys.readouterr().out
        assert "Examples:\n" in out
        assert f"capplan {' '.join(path)}" in out.partition("Examples:")[2]
        assert max(len(line) for line in out.splitlines()) <= WIDTH
        assert "\\b" not in out

    @pytest.mark.parametrize("path", LEAVES, ids=" ".join)
    def test_examples_are_accepted_by_the_command(self, path: tuple[str, ...]) -> None:
        for line in examples_of(LEAVES[path]):
            words = shlex.split(line.partition(" > ")[0], comments=True)
            assert tuple(words[1 : 1 + len(path)]) == path
            LEAVES[path].make_context("capplan", words[1 + len(path) :])  # raises where options are wrong

    @pytest.mark.parametrize("path", LEAVES, ids=" ".join)
    def test_every_option_has_help(self, path: tuple[str, ...]) -> None:
        options = [each for each in LEAVES[path].params if isinstance(each, click.Option)]
        assert [option.name for option in options if not option.help] == []

    @pytest.mark.parametrize("path", LEAVES, ids=" ".join)
    def test_every_number_and_word_that_is_taken_by_default_is_shown(self, path: tuple[str, ...]) -> None:
        options = [each for each in LEAVES[path].params if isinstance(each, click.Option)]
        taken = [each for each in options if not each.is_flag and isinstance(each.default, int | float | str)]
        assert [option.name for option in taken if option.default != "" and not option.show_default] == []

    def test_the_first_page_lists_every_command_under_a_heading(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["--help"]) == 0
        out = capsys.readouterr().out
        headings = [heading for heading, _ in SECTIONS]
        positions = [out.index(f"\n{heading}:\n") for heading in headings]
        assert positions == sorted(positions)
        named = {name for _, group in SECTIONS for name in group}
        assert set(cli.commands.commands) <= named
        assert all(f"\n  {name} " in out for name in cli.commands.commands)


class TestExitCodes:
    def test_the_first_page_and_the_page_on_exit_codes_have_those_of_the_program(self) -> None:
        codes = {code for code in vars(exit_codes).values() if isinstance(code, int)}
        page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
        assert {int(code) for code in re.findall(r"^  (\d+) ", CODES, re.MULTILINE)} == codes
        assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes


class TestCompletion:
    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_script_of_a_shell_names_the_program(
        self, shell: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "capplan" in out
        assert f"{VARIABLE}={shell}_complete" in out

    @staticmethod
    def completed(words: str, position: int) -> list[str]:
        environment = {
            **os.environ,
            VARIABLE: "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        code = "import sys; from planner.cli.commands import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    def test_commands_options_choices_and_names_are_completed(self) -> None:
        assert self.completed("capplan ti", 1) == ["timeline"]
        assert "--replay" in self.completed("capplan timeline --re", 2)
        assert self.completed("capplan recommend job.yaml --format p", 4) == ["parquet"]
        assert self.completed("capplan catalog accelerators h200", 3) == [
            name for name in names(Kind.ACCELERATORS) if name.startswith("h200")
        ]

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("init --site swed", ["sweden"]),
            ("init --model gpt-neox", ["gpt-neox-20b"]),
            ("init --accelerators b300,h100-nvl", ["b300,h100-nvl-94gb"]),
            ("simulate --scheme in_", ["in_memory_peer"]),
            ("goodput --scheme in_", ["in_memory_peer"]),
        ],
    )
    def test_values_that_are_names_are_completed(self, words: str, expected: list[str]) -> None:
        assert self.completed(f"capplan {words}", 3) == expected


def on_a_terminal(*arguments: str, **variables: str) -> bytes:
    """Runs a command with a terminal as its output and returns what is shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "planner.cli", *arguments],
        cwd=ROOT,
        env={
            **{name: text for name, text in os.environ.items() if name != "NO_COLOR"},
            "TERM": "xterm",
            **variables,
        },
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65_536):
            shown += chunk
    except OSError:  # the other end is closed: Linux says so by an error
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return shown


class TestColours:
    COMMAND = ("goodput", "--mtbf-s", "10980", "--stall-s", "5", "--replications", "20")
    COLOUR = re.compile(rb"\x1b\[[0-9;]*3[1-7]")

    def test_a_terminal_gets_them(self) -> None:
        assert self.COLOUR.search(on_a_terminal(*self.COMMAND))

    @pytest.mark.long
    def test_no_color_turns_them_off(self) -> None:
        assert not self.COLOUR.search(on_a_terminal(*self.COMMAND, NO_COLOR="1"))

    def test_a_pipe_gets_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main([*self.COMMAND]) == 0
        assert "\x1b" not in capsys.readouterr().out


class TestProgress:
    def test_verbose_tells_every_stage_on_stderr_and_leaves_stdout_to_the_answer(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["simulate", BLOOM, "--plan", PLAN, "--verbose", "--no-sensitivities", "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["is_feasible"]
        assert re.fullmatch(r"\[ +\d+\.\d s\] simulating the plan\n", err)

    def test_the_line_of_a_terminal_has_rate_and_remaining_time(self) -> None:
        import io

        from rich.console import Console

        from planner.cli.terminal.progress_line import progress_line
        from studies.progress import Progress

        stream = io.StringIO()
        with progress_line(Console(file=stream, force_terminal=True, width=150)) as report:
            for done in (0, 1_000, 2_000, 3_000):
                report(Progress(stage="searching", num_done=done, num_total=4_000))
        assert re.search(r"[\d,]+/s", stream.getvalue())
        assert re.search(r"1\.00 s left", stream.getvalue())

    def test_a_new_stage_begins_anew(self) -> None:
        import io

        from rich.console import Console

        from planner.cli.terminal.progress_line import progress_line
        from studies.progress import Progress

        stream = io.StringIO()
        with progress_line(Console(file=stream, force_terminal=True, width=150)) as report:
            report(Progress(stage="first", num_done=4_000, num_total=4_000))
            report(Progress(stage="second", num_done=0, num_total=10))
        assert "0/10" in stream.getvalue()

    @pytest.mark.parametrize(
        "path", [("simulate",), ("sweep",), ("validate",), ("compare",), ("study", "run")]
    )
    def test_what_takes_long_can_be_quiet_or_verbose(self, path: tuple[str, ...]) -> None:
        options = {option for parameter in LEAVES[path].params for option in parameter.opts}
        assert {"--quiet", "--verbose"} <= options


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["--json", "recommend", "job.yaml"],
            "--json belongs behind the command: capplan recommend ... --json",
        ),
        (["study", "--quiet", "run", "job.yaml"], "No such option '--quiet'"),
        (["--nonsense", "recommend", "job.yaml"], "No such option '--nonsense'"),
    ],
)
def test_an_option_in_front_of_its_command_is_sent_behind_it(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert hint in capsys.readouterr().err


class TestClosedStreams:
    @staticmethod
    def closing(stream: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = shlex.join([sys.executable, "-m", "planner.cli", *arguments])
        shell = ["/bin/sh", "-c", f"{command} {stream}"]
        return subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)

    def test_an_answer_that_nobody_wants_is_no_error(self) -> None:
        done = self.closing(">&-", "catalog")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.long
    def test_an_answer_does_without_progress(self) -> None:
        done = self.closing("2>&-", "simulate", BLOOM, "--plan", PLAN, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["is_feasible"]

    def test_a_refusal_has_its_code(self) -> None:
        assert self.closing(">&- 2>&-", "simulate", BLOOM, "--plan", "tp=x").returncode == 2


class TestNarrowLocales:
    @staticmethod
    def in_ascii(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        narrow = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "planner.cli", *arguments]
        environment = os.environ | narrow | more
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    @pytest.mark.long
    def test_a_folder_whose_name_cannot_be_said_is_one_error(self, tmp_path: Path) -> None:
        folder = tmp_path / "naïve"
        folder.mkdir()
        shutil.copy(BLOOM, folder / "job.yaml")
        done = self.in_ascii(folder, "recommend", "job.yaml", "--quiet")
        assert done.returncode == exit_codes.FAILED
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: '")
        assert line.endswith("or with names in ASCII it can")
        assert "cannot be written in this locale, whose names are in ascii" in line

    @pytest.mark.long
    def test_a_file_whose_name_cannot_be_said_is_read(self, tmp_path: Path) -> None:
        shutil.copy(BLOOM, tmp_path / "naïve.yaml")
        done = self.in_ascii(tmp_path, "simulate", "naïve.yaml", "--plan", PLAN)
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.long
    def test_a_file_that_the_output_cannot_name_is_written(self, tmp_path: Path) -> None:
        utf8 = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "ascii"}
        done = self.in_ascii(tmp_path, "init", "--yes", "naïve.yaml", **utf8)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("na?ve.yaml is written")
        assert (tmp_path / "naïve.yaml").exists()


def test_help_without_space_says_what_cannot_be_written() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "planner.cli", "--help"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: stdout cannot be written to: No space left on device\n",
    )


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        ImportError("libzstd.so.1: failed to map segment from shared object"),
        ImportError("libarrow.so: cannot allocate memory in static TLS block"),
        RuntimeError("can't allocate lock"),
        RuntimeError("can't start new thread"),
    ],
    ids=str,
)
def test_too_little_memory_fails_in_one_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def out_of_memory(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("planner.one_design.simulated_design.simulate_plan", out_of_memory)
    assert cli.main(["simulate", BLOOM, "--plan", PLAN]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: there is not enough memory: raise the limit of the shell (ulimit -v)")
    assert err.count("\n") == 1


@pytest.mark.parametrize("failure", [ImportError("no module of that name"), RuntimeError("broken")], ids=str)
def test_other_failures_are_not_called_a_lack_of_memory(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("planner.one_design.simulated_design.simulate_plan", broken)
    with pytest.raises(type(failure), match=str(failure)):
        cli.main(["simulate", BLOOM, "--plan", PLAN])


class TestInterrupts:
    def test_a_sweep_keeps_the_rows_until_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        from planner.sweep import table as sweep_table

        file, rows = tmp_path / "sweep.yaml", tmp_path / "rows.csv"
        file.write_text(SWEEP, encoding="utf-8")
        made, kept = sweep_table.point_rows, []

        def stopped_at_two(*arguments: object) -> object:
            kept.append(made(*arguments))  # type: ignore[arg-type]
            if len(kept) == 2:
                signal.raise_signal(signal.SIGINT)
            return kept[-1]

        monkeypatch.setattr(sweep_table, "point_rows", stopped_at_two)
        assert cli.main(["sweep", str(file), "--output", str(rows), "--json"]) == 130
        out, err = capfd.readouterr()
        assert [row["num_gpus"] for row in json.loads(out)["rows"]] == [16, 32]
        assert len(rows.read_text(encoding="utf-8").splitlines()) == 3
        assert "what was evaluated will be shown" in err

    def test_what_keeps_nothing_says_so(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("planner.one_design.simulated_design.simulate_plan", interrupted)
        assert cli.main(["simulate", BLOOM, "--plan", PLAN]) == 130
        out, err = capsys.readouterr()
        assert (out, err.strip()) == ("", "Error: interrupted; nothing is kept")

    def test_a_study_says_how_it_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("planner.study.durable.run_study_of", interrupted)
        assert cli.main(["study", "run", BLOOM, "--store", str(tmp_path), "--no-tracking"]) == 130
        told = "interrupted; capplan study resume goes on with what was simulated, if the study had begun"
        assert told in capsys.readouterr().err

    def test_a_look_at_studies_promises_nothing_to_resume(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("studies.files.store.StudyStore.paths", interrupted)
        assert cli.main(["study", "list", "--store", str(tmp_path)]) == 130
        assert capsys.readouterr().err.strip() == "Error: interrupted; studies keep what they hold"
