"""Is the timeline of a step drawn and written so that people and browsers can read it?"""

from __future__ import annotations

import io
import json
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from rich.console import Console

from planner import load_job, simulate_plan
from planner.cli import commands as cli
from planner.input.plan_input import plan_of, read_plan
from planner.one_design.simulated_design import SimulatedDesign, one_step
from planner.timeline.stages import summary_of
from planner.timeline.trace import step_entries
from planner.timeline.view import show_timeline
from simulator.step.step_events import ALL, EventKind, StageSeconds, StepEvents, events_of
from simulator.step.timeline import StepTimeline, step_timeline
from tests.support import job_with

EXAMPLES = Path(__file__).parents[3] / "examples"
BLOOM = str(EXAMPLES / "bloom-176b.yaml")
BLOOM_PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full,checkpoint_scheme=sync_sharded"
LLAMA = str(EXAMPLES / "llama-3.1-70b.yaml")
INTERLEAVED = "offer=0,tp=2,pp=4,cp=2,dp=32,vpp=10,zero_stage=1"
LARGE = str(EXAMPLES / "llama-3.1-405b.yaml")
DEEP = "tp=1,pp=63,dp=128"
FEW = "tp=8,pp=4,dp=256,mbs=2"
"""Four micro-batches on four stages."""
KINDS = {"forward", "backward", "send", "parameter_gather", "gradient_sync", "optimizer", "bubble"}


def step_of(job_file: str, plan: str) -> StepTimeline:
    job = load_job(job_file)
    return step_timeline(job, plan_of(job, read_plan(plan))[0])


def picture(step: StepTimeline, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        show_timeline(step, console)
    return [line.rstrip() for line in capture.get().splitlines()]


def stage_lines(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith(" %")]


def rows_of(lines: list[str]) -> list[str]:
    """The letters of every stage."""
    return [line[8:-18] for line in stage_lines(lines)]


def trace(folder: Path, job: str = BLOOM, plan: str = BLOOM_PLAN) -> dict[str, list[dict[str, object]]]:
    file = folder / "step.json"
    assert cli.main(["simulate", job, "--plan", plan, "--no-sensitivities", "--timeline", str(file)]) == 0
    found: dict[str, list[dict[str, object]]] = json.loads(file.read_text(encoding="utf-8"))
    return found


KINDS_BY_LETTER = {
    "F": EventKind.FORWARD,
    "B": EventKind.BACKWARD,
    ".": EventKind.BUBBLE,
    "o": EventKind.OPTIMIZER,
}


def made_up(*stages: str) -> StepTimeline:
    """A step of stages that are written as `F0:2.5 B0:4 .:1`: kind, micro-batch and seconds of one event after another."""
    events, at = [], 0.0
    for stage, text in enumerate(stages):
        at = 0.0
        for word in text.split():
            what, _, seconds = word.partition(":")
            number = int(what[1:]) if what[1:] else ALL
            kind, end = KINDS_BY_LETTER[what[0]].code, at + float(seconds)
            events.append(events_of(kind, np.array([stage]), at, end, micro_batch=number))
            at = end
    every = StepEvents.concatenate(events)
    # What is busy, six kinds of communication, waits, and the optimizer.
    shares = dict(
        zip(StageSeconds.names(), (0.5, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.25, 0.04), strict=True)
    )
    return StepTimeline(
        num_stages=len(stages),
        num_chunks_per_stage=1,
        num_micro_batches=int(every.micro_batch.max()) + 1,
        step_time_s=at,
        first_backward_s=0.0,
        events=every,
        stages=StageSeconds(**{name: np.full(len(stages), share * at) for name, share in shares.items()}),
    )


MARGINS = 26
"""Columns of a picture that are not letters."""


class TestPicture:
    def test_each_letter_is_what_takes_most_of_its_time(self) -> None:
        step = made_up(
            "F0:2.5 F1:2 F2:2 F3:1.5 .:6 B0:4 B1:4 B2:4 B3:4 o:2",
            ".:2 F0:2 F1:2 F2:2 F3:2 B0:4 B1:4 B2:4 B3:4 .:4 o:2",
        )
        # The half of a second that is as long as that before it is the later one's.
        title, heading, first, second, *legend = picture(step, MARGINS + 32)[1:]
        assert title == "One step by stage: 2 stages, 4 micro-batches, 32.0 s"
        assert heading == "  stage 0                         32.0 s  busy  comm  wait"
        assert first == "  0     FFffFFff......BBBBbbbbBBBBbbbboo  50 %  21 %  25 %"
        assert second == "  1     ..FFffFFffBBBBbbbbBBBBbbbb....oo  50 %  21 %  25 %"
        assert "Each letter is 1.00 s and shows" in " ".join(legend)

    @pytest.mark.parametrize(("forward_s", "is_told"), [(1.0, True), (0.9, False)])
    def test_micro_batches_are_told_apart_where_a_forward_has_a_letter(
        self, forward_s: float, *, is_told: bool
    ) -> None:
        forwards = " ".join(f"F{number}:{forward_s}" for number in range(4))
        rest_s = 20.0 - 4 * forward_s
        step = made_up(f"{forwards} .:{rest_s} B0:4 B1:3 B2:1 B3:2")
        assert ("alternate micro-batches" in " ".join(picture(step, MARGINS + 30))) is is_told

    @pytest.mark.parametrize(
        ("scale", "columns", "heading", "middle"),
        [
            (
                1,
                31,
                "0     12.0 s     24.0 s  38.0 s",
                "12.0 s in the middle (31.6 % of the step) are omitted",
            ),
            # No room for both ends: they would touch.
            (10, 35, "0     2.00 min             6.33 min", "2.00 min in the middle (31.6 % of the step)"),
        ],
    )
    def test_of_a_long_step_as_much_is_shown_as_until_all_stages_are_at_work(
        self, scale: int, columns: int, heading: str, middle: str
    ) -> None:
        passes = [f"F{number}:{2 * scale} B{number}:{4 * scale}" for number in range(6)]
        lines = picture(made_up(f"{' '.join(passes)} o:{2 * scale}"), MARGINS + columns)
        assert lines[2] == f"  stage {heading}  busy  comm  wait"
        if scale == 1:
            assert lines[3] == "  0     FFBBBBffbbbb ... FFBBBBffbbbboo  50 %  21 %  25 %"
        assert middle in " ".join(lines)

    def test_a_short_step_is_shown_as_a_whole_with_its_triangle_of_waiting(self) -> None:
        rows = rows_of(picture(step_of(LARGE, FEW)))
        assert len(rows) == 4
        assert [row[0] for row in rows] == ["F", ".", ".", "."]
        first_forwards = [row.index("F") for row in rows]
        assert first_forwards == sorted(set(first_forwards))
        last_backwards = [max(row.rfind("B"), row.rfind("b")) for row in rows]
        assert last_backwards == sorted(set(last_backwards), reverse=True)
        # A stage has at most as many forwards before its first backward as stages follow it, and one more.
        forwards_first = [re.split("[Bb]", row)[0] for row in rows]
        assert "Ff" in forwards_first[0]
        assert "f" not in forwards_first[3]

    def test_letters_take_the_share_of_the_time_that_the_stage_takes(self) -> None:
        step = step_of(LARGE, FEW)
        for stage, row in enumerate(rows_of(picture(step, width=180))):
            idle = row.count(".") / len(row)
            # One letter in a hundred and fifty, and half of one at every edge of about twenty.
            assert idle == pytest.approx(step.stages.pipeline_bubble_s[stage] / step.step_time_s, abs=0.07)

    @pytest.mark.parametrize(("job", "plan"), [(BLOOM, BLOOM_PLAN), (LLAMA, INTERLEAVED)])
    def test_of_a_long_step_beginning_and_end_are_shown_and_the_rest_is_counted(
        self, job: str, plan: str
    ) -> None:
        step = step_of(job, plan)
        lines = picture(step)
        assert all(" ... " in row for row in rows_of(lines))
        left_out = next(line for line in lines if "in the middle" in line)
        share = float(left_out.split("(")[1].split(" %")[0]) / 100
        assert 0.3 < share < 0.9
        assert left_out.endswith("of the step) are omitted; the pattern repeats.")

    def test_many_stages_are_shown_from_both_ends(self) -> None:
        lines = picture(step_of(LARGE, DEEP))
        assert len(rows_of(lines)) == 24
        assert "  ... 39 stages omitted" in lines

    @pytest.mark.parametrize("width", [20, 60, 79, 100, 200])
    @pytest.mark.parametrize(
        ("job", "plan"), [(BLOOM, BLOOM_PLAN), (LARGE, FEW), (LLAMA, "offer=0,tp=8,dp=32")]
    )
    def test_every_row_is_as_wide_as_the_terminal(self, width: int, job: str, plan: str) -> None:
        lines = picture(step_of(job, plan), width)
        widths = {len(line) for line in stage_lines(lines)}
        assert widths == {max(width, 56)} or width < 56
        assert all(line.isascii() for line in lines)

    def test_shares_beside_a_row_are_those_of_the_answer(self) -> None:
        job = load_job(BLOOM)
        answer = simulate_plan(job, read_plan(BLOOM_PLAN), with_sensitivities=False)
        assert answer.timeline is not None
        step = one_step(job, answer)
        assert step is not None
        lines = stage_lines(picture(step))
        for stage, line in zip(answer.timeline.stages, lines, strict=True):
            shares = [float(word) for word in line[-18:].replace("%", "").split()]
            shown_s = answer.timeline.step_time_s - stage.optimizer_s
            communication_s = shown_s - stage.compute_s - stage.pipeline_bubble_s
            parts_s = (stage.compute_s, communication_s, stage.pipeline_bubble_s)
            assert shares == [round(part_s / answer.timeline.step_time_s * 100) for part_s in parts_s]

    def test_only_what_happens_is_explained(self) -> None:
        text = " ".join(picture(step_of(LLAMA, "offer=0,tp=8,dp=32,zero_stage=3")))
        assert "F forward, B backward, o optimizer; upper and lower case" in text

    def test_late_weight_gradients_have_a_letter_of_their_own(self) -> None:
        lines = picture(step_of(BLOOM, "tp=8,pp=4,dp=12,pipeline_schedule=zb_h1"))
        assert "W weight gradient" in " ".join(lines)
        assert all("W" in row or "w" in row for row in rows_of(lines))


class TestAnswer:
    def test_the_cool_down_begins_with_the_end_of_the_last_forward_of_the_first_stage(self) -> None:
        step = made_up("F0:2 F1:2 .:4 B0:4 B1:4 o:2", ".:2 F0:2 F1:3 B0:4 B1:4 .:1 o:2")
        assert summary_of(step).cool_down_s == 18.0 - 4.0

    def test_the_json_has_a_summary_whose_parts_sum_to_the_step(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["simulate", BLOOM, "--plan", BLOOM_PLAN, "--no-sensitivities", "--json"]) == 0
        found = SimulatedDesign.model_validate(json.loads(capsys.readouterr().out))
        timeline, design = found.timeline, found.design
        assert timeline is not None
        assert design is not None
        assert timeline.step_time_s == pytest.approx(design.step_time_s, rel=1e-9)
        # 2,048 sequences over 8 replicas, two at a time.
        assert (timeline.num_stages, timeline.num_micro_batches) == (12, 128)
        for stage in timeline.stages:
            parts_s = stage.model_dump(exclude={"stage"}).values()
            assert sum(parts_s) == pytest.approx(timeline.step_time_s, rel=1e-9)
        assert 0 < timeline.warm_up_s < timeline.cool_down_s < timeline.step_time_s
        # At both ends one micro-batch passes through all stages and back, and hardly anything else happens.
        there_and_back_s = sum(stage.compute_s for stage in timeline.stages) / timeline.num_micro_batches
        for end_s in (timeline.warm_up_s, timeline.cool_down_s):
            assert there_and_back_s < end_s < 2.0 * there_and_back_s < timeline.step_time_s / 6

    @pytest.mark.parametrize(
        ("schedule", "lora"), [("1f1b", {"rank": 8}), ("gpipe", {"rank": 8}), ("zb_h1", None)]
    )
    def test_a_first_stage_whose_backwards_take_no_time_has_a_warm_up(
        self, schedule: str, lora: dict[str, int] | None
    ) -> None:
        """An embedding alone that is frozen, or all of whose backward is a weight gradient that comes later."""
        job = job_with(workload={"global_batch_size": 32, "stage_layers": [0, 11, 11, 10], "lora": lora})
        plan = {"tp": 8, "pp": 4, "dp": 1, "pipeline_schedule": schedule}
        timeline = simulate_plan(job, plan, with_sensitivities=False).timeline
        assert timeline is not None
        # Its first gradient has passed all stages there and back, while its forwards go on.
        first_s = sum(stage.compute_s for stage in timeline.stages) / timeline.num_micro_batches
        assert first_s < timeline.warm_up_s < timeline.step_time_s

    def test_a_plan_that_cannot_run_has_no_timeline_and_says_so(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        file = tmp_path / "step.json"
        assert cli.main(["simulate", BLOOM, "--plan", "tp=3,pp=35", "--timeline", str(file), "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["timeline"] is None
        assert "No timeline: the plan has no step to show." in err
        assert not file.exists()


class TestFile:
    def test_it_is_a_trace_with_one_row_a_stage_in_which_nothing_overlaps(self, tmp_path: Path) -> None:
        events = trace(tmp_path)["traceEvents"]
        rows: dict[int, list[tuple[float, float]]] = {}
        for event in events:
            if event["ph"] == "X" and event["pid"] == 0:
                start, duration = float(str(event["ts"])), float(str(event["dur"]))
                rows.setdefault(int(str(event["tid"])), []).append((start, start + duration))
        assert sorted(rows) == list(range(12))
        step_us = step_of(BLOOM, BLOOM_PLAN).step_time_s * 1e6
        for spans in rows.values():
            spans.sort()
            # Perfetto reads whole nanoseconds, and drops a span that overlaps another one by a single one.
            assert all(round(later[0] * 1e3) >= round(earlier[1] * 1e3) for earlier, later in pairwise(spans))
            assert spans[-1][1] == pytest.approx(step_us, abs=0.01)

    def test_it_has_every_kind_of_event_and_all_passes(self, tmp_path: Path) -> None:
        events = [event for event in trace(tmp_path)["traceEvents"] if event["ph"] == "X"]
        assert {event["name"] for event in events} == KINDS
        for name in ("forward", "backward"):
            assert sum(event["name"] == name for event in events) == 12 * 128
        optimizers = [event for event in events if event["name"] == "optimizer"]
        assert [event["tid"] for event in optimizers] == list(range(12))

    def test_only_what_concerns_one_micro_batch_names_it(self) -> None:
        entries = [entry for entry in step_entries(step_of(LARGE, FEW)) if entry["ph"] in ("X", "b")]
        named = {
            str(entry["name"]) for entry in entries if "micro_batch" in cast(dict[str, int], entry["args"])
        }
        assert named == {"forward", "backward", "send"}
        assert all(entry["args"] == {} for entry in entries if entry["name"] == "optimizer")

    def test_sends_that_overlap_are_asynchronous_pairs(self, tmp_path: Path) -> None:
        events = trace(tmp_path, LLAMA, INTERLEAVED)["traceEvents"]
        begins = {event["id"]: event for event in events if event["ph"] == "b"}
        ends = {event["id"]: event for event in events if event["ph"] == "e"}
        # 40 chunks hand over 39 times each way, for each of 16 micro-batches.
        assert len(begins) == len(ends) == 2 * 39 * 16
        assert all(float(str(ends[key]["ts"])) >= float(str(begins[key]["ts"])) for key in begins)

    def test_rows_have_names_for_people(self, tmp_path: Path) -> None:
        names = {
            str(event["args"])
            for event in trace(tmp_path)["traceEvents"]
            if event["ph"] == "M" and event["name"] in ("process_name", "thread_name")
        }
        assert {"{'name': 'stages'}", "{'name': 'stage 11'}"} <= names

    def test_an_older_timeline_is_replaced_by_the_same_bytes(self, tmp_path: Path) -> None:
        trace(tmp_path)
        first = (tmp_path / "step.json").read_bytes()
        trace(tmp_path, LLAMA, INTERLEAVED)
        assert (tmp_path / "step.json").read_bytes() != first
        trace(tmp_path)
        assert (tmp_path / "step.json").read_bytes() == first
        assert [path.name for path in tmp_path.iterdir()] == ["step.json"]

    @pytest.mark.parametrize("content", ["", "{}", '{"otherData": {"producer": "other"}}', "precious\n"])
    def test_another_file_is_never_overwritten(
        self, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "results.json"
        file.write_text(content, encoding="utf-8")
        assert cli.main(["simulate", BLOOM, "--plan", BLOOM_PLAN, "--timeline", str(file)]) == 2
        out, err = capsys.readouterr()
        assert (out, file.read_text(encoding="utf-8")) == ("", content)
        assert "--timeline = " in err
        assert "exists and is no timeline of capplan: choose another name" in err

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (".", "is a folder: name a file in it"),
            ("missing/step.json", "does not exist: make it first"),
            (os.devnull, "exists and is no timeline of capplan"),
            ("plain/step.json", "does not exist: make it first"),
            ("long" * 100, "cannot be written: File name too long"),
            ("/proc/step.json", "the folder /proc cannot be written to: "),
            ("/dev/zero", "exists and is no timeline of capplan"),
        ],
    )
    def test_a_place_where_nothing_can_be_written_is_named_before_anything_is_simulated(
        self, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "plain").write_text("a file", encoding="utf-8")
        place = str(tmp_path / name)
        assert cli.main(["simulate", BLOOM, "--plan", BLOOM_PLAN, "--timeline", place]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert "1 problem" in err
