"""Does `capplan trace` export, convert and replay the traces of other simulators?"""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.cli.terminal import exit_codes
from planner.trace.play import PlayAnswer
from simulator.deep.traces.chakra_files import read_chakra
from tests.planner.trace_answers import SLOW_NET, SUMMED_S, answered
from tests.simulator.deep.profiles import EVENTS, NODES, written


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
        why = f"cannot be a folder, since {tmp_path / 'file'} is a file: choose another name"
        assert f"--output = {folder}: {why}" in capsys.readouterr().err

    def test_a_full_disk_leaves_no_folder(
        self,
        small: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def no_space(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("simulator.deep.traced_steps.chakra_export.write_chakra", no_space)
        folder = tmp_path / "new" / "astra"
        assert main(["trace", "export", small, "--gpus", "2", "--output", str(folder)]) == exit_codes.FAILED
        assert f"--output = {folder}: cannot be written: No space left on device" in capsys.readouterr().err
        assert not list(tmp_path.glob("**/*astra*")) + list(tmp_path.glob("new"))


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
        assert (answer.traces, answer.num_gpus, answer.callers_in) == ("step", 4, ())
        assert len(answer.hot_links) == 4

    def test_the_answer_is_told_in_words_and_written_as_a_timeline(
        self, astra: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "step.json"
        assert main(["trace", "play", str(astra), "--output", str(file), *SLOW_NET]) == 0
        out = capsys.readouterr().out
        assert "step on 4 accelerators: 11.2 ms a step" in out
        assert "Collectives of every size reach full bandwidth" in out
        assert "Each accelerator waits 2.45 ms for all-reduce traffic" in out
        assert len(json.loads(file.read_text(encoding="utf-8"))["traceEvents"]) > 4 * 9

    def test_too_large_a_timeline_is_refused_before_it_is_played(
        self, astra: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("planner.deep.events.MOST_EVENTS", 9)
        monkeypatch.setattr("planner.trace.play.play", lambda *_: pytest.fail("it is played"))
        assert main(["trace", "play", str(astra), "--output", str(tmp_path / "step.json")]) == 2
        assert "--output: would hold " in capsys.readouterr().err

    def test_control_that_names_callers_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Node 0 waits for 1 by data, which is called by 0.
        nodes = [{"id": 0, "data_deps": [1], "ctrl_deps": []}, {"id": 1, "data_deps": [], "ctrl_deps": [0]}]
        lines = [json.dumps({**node, "type": "COMP_NODE", "duration_micros": 5}) for node in nodes]
        (tmp_path / "step.0.json").write_text("".join(lines), encoding="utf-8")
        assert main(["trace", "play", str(tmp_path)]) == 0
        assert "ctrl_deps of accelerator 0 name callers" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("step.1.et", None, "lacks the trace of accelerator 1: step.1.et"),
            (
                "step.3.et",
                None,
                "has 3 of 4 traces: step.3.et is missing; group 1 of step.groups.json names accelerator 3",
            ),
            ("step.1.json", "", "has accelerator 1 twice: step.1.et, step.1.json"),
            ("other.0.et", "", "has traces of 2 runs (other, step): it must be one"),
            ("step.groups.json", "[]", 'must be groups and their accelerators, such as {"1": [0, 1]}'),
            ("step.groups.json", '{"1": [0, true]}', "must be groups and their accelerators"),
            ("step.groups.json", '{"1": [0, 1, 1]}', "1: has accelerator 1 twice: name each member once"),
            (
                "step.groups.json",
                '{"1": [0, 1], "01": [2]}',
                "01: is group 1 once more: give each group once",
            ),
            ("step.groups.json", '{"1": [0, 1], "1": [2]}', "1: is there twice: give each name once"),
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

    def test_the_missing_half_of_a_pipeline_is_named(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "astra"
        arguments = ["trace", "export", small, "--gpus", "2", "--parallel", "pp", "--output", str(folder)]
        assert main(arguments) == 0
        (folder / "step.1.et").unlink()
        assert main(["trace", "play", str(folder)]) == 2
        message = r"has 1 of 2 traces: step\.1\.et is missing; node \d+ of step\.0\.et names accelerator 1\n"
        assert re.search(message, capsys.readouterr().err)

    def test_many_missing_traces_are_counted(self, astra: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for rank in (1, 2, 3):
            (astra / f"step.{rank}.et").unlink()
        assert main(["trace", "play", str(astra)]) == 2
        assert "has 1 of 4 traces: step.1.et and 2 more are missing; group 1 of" in capsys.readouterr().err

    def test_what_is_no_folder_of_traces_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", "play", str(tmp_path / "missing")]) == 2
        assert main(["trace", "play", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert "is no folder: give the one with NAME.0.et" in err
        assert "has no traces, such as step.0.et" in err
