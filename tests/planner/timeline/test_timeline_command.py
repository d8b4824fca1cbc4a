"""Does `capplan timeline` draw what the answer says, and write what trace viewers read?"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from planner import load_job, simulate_plan
from planner.cli import commands as cli
from planner.cli.terminal.output import WIDTH, rendered
from planner.input.plan_input import plan_of, read_plan
from planner.timeline.run import RunSummary, Stop, TimelineAnswer, timeline_answer
from planner.timeline.run_view import show_run
from planner.timeline.trace import NETWORK, RUN, SAVES_ROW, STAGES, TRAINING_ROW, run_entries
from planner.uncertain.uncertainty import NUM_REPLAYS
from simulator.run_timeline import RunEventKind, RunEvents, run_timeline

ROOT = Path(__file__).parents[3]
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
BLOOM_PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"
LLAMA = str(ROOT / "examples" / "llama-3.1-70b.yaml")
LARGE = str(ROOT / "examples" / "llama-3.1-405b.yaml")
INTERLEAVED = "offer=0,tp=2,pp=4,cp=2,dp=64,vpp=10,checkpoint_scheme=async"

Entry = dict[str, object]


@pytest.fixture(scope="module", params=[(BLOOM, BLOOM_PLAN), (LLAMA, INTERLEAVED)], ids=["bloom", "llama"])
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    job, plan = request.param
    return job, plan


def trace(folder: Path, job: str, plan: str) -> dict[str, object]:
    file = folder / "trace.json"
    assert cli.main(["timeline", job, "--plan", plan, "--output", str(file), "--what", "both"]) == 0
    found: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return found


def entries(folder: Path, job: str, plan: str) -> list[Entry]:
    found = trace(folder, job, plan)["traceEvents"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("options", "processes"), [([], {STAGES, NETWORK}), (["--what", "run"], {RUN})], ids=["default", "run"]
)
def test_a_step_of_seconds_and_a_run_of_days_have_files_of_their_own(
    options: list[str], processes: set[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.json"
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN, "--output", str(file), *options, "--json"]) == 0
    answer = TimelineAnswer.model_validate_json(capsys.readouterr().out)
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["pid"] for event in events} == processes
    # A viewer shows a file from end to end: what it opens on is as long as what was asked for.
    last_s = max(event.get("ts", 0.0) + event.get("dur", 0.0) for event in events) / 1e6
    assert answer.step is not None
    asked_s = answer.run.wall_time_s if options else answer.step.step_time_s
    assert last_s == pytest.approx(asked_s, rel=0.05)


def test_a_step_that_is_too_long_to_be_drawn_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.one_design.simulated_design.one_step", lambda *_: None)
    file = tmp_path / "trace.json"
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN, "--output", str(file)]) == 2
    assert "take --what run" in capsys.readouterr().err
    assert not file.exists()
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN, "--output", str(file), "--what", "run"]) == 0


def number(entry: Entry, name: str) -> float:
    value = entry[name]
    assert isinstance(value, (int, float))
    return float(value)


# The rules of the Trace Event Format: what its importers require of an event of each phase.
REQUIRED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "b": {"name", "cat", "ph", "ts", "id", "pid", "tid"},
    "e": {"name", "cat", "ph", "ts", "id", "pid", "tid"},
    "i": {"name", "cat", "ph", "ts", "s", "pid", "tid"},
    "M": {"name", "ph", "pid", "args"},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


@pytest.mark.short(1)
def test_the_file_keeps_the_rules_of_the_trace_event_format(case: tuple[str, str], tmp_path: Path) -> None:
    document = trace(tmp_path, *case)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    assert isinstance(events, list)
    for event in events:
        assert set(event) >= REQUIRED[event["ph"]], event
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}
        else:
            assert number(event, "ts") >= 0.0
            assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert number(event, "dur") >= 0.0
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    check_rows(events)
    check_pairs(events)


def check_rows(events: list[Entry]) -> None:
    """Spans of one row follow each other or lie within each other; here none lies within another.

    Perfetto reads times as whole nanoseconds (`llround` of a thousand times each number) and drops what overlaps.
    """
    rows: dict[tuple[object, object], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            start = round(number(event, "ts") * 1e3)
            end = start + round(number(event, "dur") * 1e3)
            rows.setdefault((event["pid"], event["tid"]), []).append((start, end))
    for spans in rows.values():
        for (_, ended), (begins, _) in pairwise(sorted(spans)):
            assert begins >= ended


def check_pairs(events: list[Entry]) -> None:
    """Asynchronous events begin and end once, under one id in their category, and in this order."""
    begun = {(e["cat"], e["id"], e["pid"], e["name"]): number(e, "ts") for e in events if e["ph"] == "b"}
    ended = {(e["cat"], e["id"], e["pid"], e["name"]): number(e, "ts") for e in events if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert all(ended[key] >= begun[key] for key in begun)
    num_begun = sum(event["ph"] == "b" for event in events)
    assert num_begun == len(begun) > 0


# Every example, and every schedule; with ZeRO 0 and 3, and with hardly more micro-batches than stages.
STEPS = {
    "bloom": (BLOOM, BLOOM_PLAN),
    "bloom, all forwards first": (BLOOM, "tp=8,pp=12,dp=4,mbs=4,recompute=full,pipeline_schedule=gpipe"),
    "bloom, late weight gradients": (BLOOM, "tp=8,pp=6,dp=8,pipeline_schedule=zb_h1"),
    "bloom, to and fro": (BLOOM, "tp=8,pp=5,dp=8,vpp=2,zero_stage=0,pipeline_schedule=zb_v"),
    "llama": (LLAMA, INTERLEAVED),
    "llama, sharded": (LLAMA, "offer=0,tp=8,dp=32,zero_stage=3"),
    "large": (LARGE, "tp=8,pp=16,dp=128,vpp=1,recompute=selective"),
    "large, few micro-batches": (LARGE, "tp=8,pp=4,dp=256,mbs=2"),
}
COMMUNICATION = ("tensor_comm", "expert_comm", "shard_comm", "host_copy")
BUCKETS = {
    "send": "pipeline_send_s",
    "parameter_gather": "gradient_sync_s",
    "gradient_sync": "gradient_sync_s",
    "bubble": "pipeline_bubble_s",
    "optimizer": "optimizer_s",
}


@pytest.mark.short(3)
@pytest.mark.parametrize(("job", "plan"), STEPS.values(), ids=list(STEPS))
def test_the_step_agrees_with_the_reported_breakdown_to_the_microsecond(
    job: str, plan: str, tmp_path: Path
) -> None:
    found = simulate_plan(load_job(job), read_plan(plan), with_sensitivities=False)
    design, step = found.design, found.timeline
    assert design is not None
    assert step is not None
    spans = [event for event in entries(tmp_path, job, plan) if event["ph"] == "X" and event["pid"] == STAGES]
    ends_us = [number(span, "ts") + number(span, "dur") for span in spans]
    assert max(ends_us) == pytest.approx(design.step_time_s * 1e6, abs=1.0)
    num_stages = design.plan.pipeline_parallel
    drawn_s = {name: total_us / 1e6 / num_stages for name, total_us in drawn_us(spans).items()}
    assert drawn_s == pytest.approx(design.step_seconds, abs=1e-6)
    listed_s = {
        name: sum(getattr(stage, name) for stage in step.stages) / num_stages for name in design.step_seconds
    }
    assert listed_s == pytest.approx(design.step_seconds, abs=1e-6)


def drawn_us(spans: list[Entry]) -> dict[str, float]:
    """The microseconds of all stages by the names of the breakdown."""
    sums = dict.fromkeys(["compute_s", *(f"{name}_s" for name in COMMUNICATION), *BUCKETS.values()], 0.0)
    for span in spans:
        within = span["args"]
        assert isinstance(within, dict)
        exposed = {f"{name}_s": float(within.get(f"{name}_us", 0.0)) for name in COMMUNICATION}
        for name, microseconds in exposed.items():
            sums[name] += microseconds
        bucket = BUCKETS.get(str(span["name"]), "compute_s")
        sums[bucket] += number(span, "dur") - sum(exposed.values())
    return sums


@pytest.mark.short(1)
def test_the_run_in_the_trace_is_the_replay_of_the_answer(case: tuple[str, str], tmp_path: Path) -> None:
    job, plan = case
    found = [event for event in entries(tmp_path, job, plan) if event["pid"] == RUN]
    spread = simulate_plan(load_job(job), read_plan(plan), with_sensitivities=False).spread
    assert spread is not None
    assert spread.time_to_train_days.p5 is not None
    assert spread.time_to_train_days.p95 is not None
    spans = [event for event in found if event["ph"] == "X"]
    assert {event["tid"] for event in spans} == {TRAINING_ROW}
    assert {event["tid"] for event in found if event["ph"] == "b"} == {SAVES_ROW}
    categories = {"X": "run", "b": "save", "e": "save", "i": "interruption"}
    for kind, category in categories.items():
        assert {event["cat"] for event in found if event["ph"] == kind} == {category}
    days = max(number(span, "ts") + number(span, "dur") for span in spans) / 1e6 / 86_400
    # One replay of 400: within the middle nine tenths or not far from them.
    low, high = spread.time_to_train_days.p5, spread.time_to_train_days.p95
    assert 0.9 * low < days < 1.1 * high
    assert {"initialization", "training", "save", "restart"} <= {str(event["name"]) for event in spans}


def test_the_json_is_the_run_in_numbers_and_reads_back(
    case: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    job, plan = case
    assert cli.main(["timeline", job, "--plan", plan, "--json", "--replay", "7", "--seed", "2"]) == 0
    answer = TimelineAnswer.model_validate(json.loads(capsys.readouterr().out))
    run = answer.run
    assert (answer.seed, run.replication) == (2, 7)
    assert sum(run.seconds.values()) == pytest.approx(run.wall_time_s, rel=1e-12)
    design = simulate_plan(load_job(job), read_plan(plan), with_sensitivities=False).design
    assert design is not None
    assert run.seconds["productive_s"] == pytest.approx(design.run_seconds["productive_s"], rel=1e-12)
    assert run.seconds["straggler_s"] > 0.0
    assert run.seconds["evaluation_s"] == 0.0  # these jobs have none
    assert set(design.run_seconds) <= set(run.seconds)
    assert sum(stop.lost_work_s for stop in run.stops) == pytest.approx(run.seconds["lost_work_s"], rel=1e-6)
    away_s = (
        run.seconds["restart_s"] + run.seconds["replacement_wait_s"] + run.seconds["checkpoint_restore_s"]
    )
    assert sum(stop.away_s for stop in run.stops) == pytest.approx(away_s, rel=1e-9)
    assert [stop.at_s for stop in run.stops] == sorted(stop.at_s for stop in run.stops)


def test_saves_that_an_interruption_cut_off_are_counted_apart() -> None:
    job = load_job(BLOOM)
    plan, _ = plan_of(job, read_plan(f"{BLOOM_PLAN},checkpoint_scheme=async"))
    run = run_timeline(job, plan)
    begun = np.flatnonzero(run.events.is_background)
    is_lost = np.isin(np.arange(len(run.events.kind)), begun[[3, 5]])
    cut_off = replace(run, events=replace(run.events, is_lost=is_lost))
    told = timeline_answer(job, plan, None, cut_off).run
    entries_of_saves = [entry for entry in run_entries(cut_off) if entry["ph"] == "b"]
    arguments = [cast(dict[str, object], entry["args"]) for entry in entries_of_saves]
    assert [number for number, each in enumerate(arguments) if each["is_lost"]] == [3, 5]
    assert [each["work_s"] for each in arguments] == run.events.value_s[begun].tolist()
    of_stops = [
        cast(dict[str, object], entry["args"]) for entry in run_entries(cut_off) if entry["ph"] == "i"
    ]
    assert [each["lost_work_s"] for each in of_stops] == [stop.lost_work_s for stop in told.stops]
    assert any(stop.lost_work_s > 0.0 for stop in told.stops)
    assert (told.num_lost_saves, told.num_saves) == (2, sum(run.events.kind == RunEventKind.SAVE.code))
    many = timeline_answer(job, plan, None, replace(cut_off, has_saves=False)).run
    assert (many.num_lost_saves, many.num_saves) == (None, None)


def test_whatever_happens_is_seen_in_the_picture_of_a_run() -> None:
    """A run of 72 hours on 72 columns, one an hour: saves in two of them, nine stops in one, ten in another, one at its end."""
    job = load_job(BLOOM)
    run = run_timeline(job, plan_of(job, read_plan(BLOOM_PLAN))[0])
    hour_s = 3600.0
    stops_s = [*[3.5 * hour_s] * 9, *[5.5 * hour_s] * 10, 72 * hour_s]
    saves_s = {7.0 * hour_s: 1.0, 9.0 * hour_s: 1000.0, 11.0 * hour_s: 500.0}
    saves = [RunEventKind.SAVE, RunEventKind.SAVE, RunEventKind.SAVE_AHEAD]
    kinds = [RunEventKind.NODE_FAULT] * len(stops_s) + saves
    start_s = np.array([*stops_s, *saves_s])
    lasting_s = np.array([*np.zeros(len(stops_s)), *saves_s.values()])
    order, never = np.argsort(start_s), np.zeros(len(kinds), dtype=np.bool_)
    events = RunEvents(
        kind=np.array([kind.code for kind in kinds])[order],
        start_s=start_s[order],
        end_s=(start_s + lasting_s)[order],
        value_s=np.zeros(len(kinds)),
        is_background=never,
        is_lost=never,
    )
    drawn = replace(run, wall_time_s=72 * hour_s, events=events)
    plan, _ = plan_of(job, read_plan(BLOOM_PLAN))
    assert timeline_answer(job, plan, None, drawn).run.num_saves == len(saves)
    summary = timeline_answer(job, plan, None, run).run
    text = rendered(lambda console: show_run(drawn, summary, console))
    assert "Each character is 1.00 h;" in text
    assert "too many saves" not in text
    lines = text.splitlines()
    (of_saves,) = (line for line in lines if line.startswith("  saves"))
    assert of_saves.split()[-2:] == ["0.6", "%"]  # 1,501 s of 72 hours
    rows = {line[:18].strip(): line[18:-10] for line in lines if line.startswith("  ")}
    assert {place: sign for place, sign in enumerate(rows["saves"]) if sign != " "} == {
        7: ".",
        9: "#",
        11: "=",
    }
    interruptions = {place: sign for place, sign in enumerate(rows["interruptions"]) if sign != " "}
    assert interruptions == {3: "9", 5: "+", len(rows["saves"]) - 1: "1"}


def test_what_a_run_spends_most_on_and_its_costliest_stops_are_told() -> None:
    job = load_job(BLOOM)
    run = run_timeline(job, plan_of(job, read_plan(BLOOM_PLAN))[0])
    hours = [
        (1.0, 4.0),
        (5.0, 1.0),
        (0.0, 3.0),
        (2.0, 2.0),
        (9.0, 1.0),
        (2.5, 0.0),
        (3.0, 3.0),
        (4.0, 4.0),
        (2.0, 3.0),
        (1.0, 9.0),
    ]
    stops = tuple(
        Stop(at_s=86_400.0 * (day + 1.5), kind="node_fault", lost_work_s=3600.0 * lost, away_s=3600.0 * away)
        for day, (lost, away) in enumerate(hours)
    )
    seconds = {"lost_work_s": 1e4, "productive_s": 9e4, "restart_s": 1e-3}
    summary = RunSummary(
        replication=0, wall_time_s=1e5, seconds=seconds, num_saves=None, num_lost_saves=None, stops=stops
    )
    many = replace(run, has_saves=False)
    lines = rendered(lambda console: show_run(many, summary, console)).splitlines()
    assert "  There are too many saves to show; their time counts as training." in lines
    start = lines.index("Breakdown of the wall time")
    assert [line.split()[-2:] for line in lines[start + 1 : start + 3]] == [["90.0", "%"], ["10.0", "%"]]
    assert lines[start + 3] == ""
    listed = [line.split() for line in lines if line.startswith("  day ")]
    # The third and the sixth cost the least: three hours and two and a half.
    assert [float(words[1]) for words in listed] == [1.5, 2.5, 4.5, 5.5, 7.5, 8.5, 9.5, 10.5]
    assert " ".join(listed[-1]) == "day 10.5 node fault 1.00 h of work lost 9.00 h until training resumes"


def test_evaluations_of_a_run_are_slowed_down_as_much_as_its_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluated = (
        "--set",
        "workload.evaluation_every_steps=100",
        "--set",
        "workload.evaluation_sequences=2048",
    )
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN, "--json", *evaluated]) == 0
    seconds = TimelineAnswer.model_validate(json.loads(capsys.readouterr().out)).run.seconds
    job = load_job(BLOOM, evaluated[1::2])
    design = simulate_plan(job, read_plan(BLOOM_PLAN), with_sensitivities=False).design
    assert design is not None
    parts = design.step_seconds
    step_s = design.step_time_s
    # A fourth of a step, whose layers are all computed again, without its optimizer and gradients, for 2,048 of its sequences.
    passes_s = (step_s - parts["optimizer_s"] - parts["gradient_sync_s"]) / 4.0
    share = passes_s * 2048 / job.workload.global_batch_size / 100 / step_s
    slow_down = 1.0 + seconds["straggler_s"] / seconds["productive_s"]
    assert slow_down > 1.0
    assert seconds["evaluation_s"] == pytest.approx(seconds["productive_s"] * slow_down * share, rel=1e-9)


def test_the_terminal_shows_the_step_the_run_and_the_costliest_interruptions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "bloom-176b: TP4 PP12 DP8"
    assert any(line.startswith("One step by stage: 12 stages, 128 micro-batches") for line in lines)
    (heading,) = [line for line in lines if line.startswith("One run (replay 0, seed 0)")]
    num_stops = int(heading.rpartition(",")[2].split()[0])
    (counts,) = [line for line in lines if line.startswith("  interruptions")]
    assert any(line.split()[0] == "stragglers" for line in lines if line.strip())
    drawn, total = counts[18:90], int(counts[90:])
    assert sum(int(sign) for sign in drawn if sign != " ") == total == num_stops
    assert max(len(line) for line in lines) <= WIDTH
    assert out.isascii()


def test_a_plan_without_room_is_shown_with_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["timeline", LLAMA, "--plan", "offer=0,tp=1,pp=2,dp=32"]) == 0
    assert "the most loaded accelerator needs more memory than it has" in capsys.readouterr().out


def test_a_plan_that_cannot_be_run_is_refused_with_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["timeline", BLOOM, "--plan", "tp=3,pp=12"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "tensor_parallel must divide num_heads" in err


def test_another_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.json"
    file.write_text("precious", encoding="utf-8")
    assert cli.main(["timeline", BLOOM, "--plan", BLOOM_PLAN, "--output", str(file)]) == 2
    assert "--output = " in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "precious"


def test_the_replays_that_can_be_shown_are_those_of_the_answer() -> None:
    from planner.cli.timeline import LAST_REPLAY

    assert LAST_REPLAY == NUM_REPLAYS - 1


def test_processes_have_names_for_people(tmp_path: Path) -> None:
    named = {
        event["pid"]: event["args"]
        for event in entries(tmp_path, BLOOM, BLOOM_PLAN)
        if event["name"] == "process_name"
    }
    assert named == {
        STAGES: {"name": "stages"},
        NETWORK: {"name": "network between replicas and stages"},
        RUN: {"name": "run (replication 0 of seed 0)"},
    }
