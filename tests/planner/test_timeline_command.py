"""Does `capplan timeline` draw what the answer says, and write what trace viewers read?"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from planner import cli, load_job, simulate_plan
from planner.plan_input import read_plan
from planner.timeline_run import TimelineAnswer
from planner.timeline_trace import NETWORK, RUN, SAVES_ROW, STAGES, TRAINING_ROW
from planner.uncertainty import NUM_REPLAYS

ROOT = Path(cli.__file__).parent.parent
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
BLOOM_PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"
LLAMA = str(ROOT / "examples" / "llama-3.1-70b.yaml")
INTERLEAVED = "offer=0,tp=2,pp=4,cp=2,dp=64,vpp=10,checkpoint_scheme=async"

Entry = dict[str, object]


@pytest.fixture(scope="module", params=[(BLOOM, BLOOM_PLAN), (LLAMA, INTERLEAVED)], ids=["bloom", "llama"])
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    job, plan = request.param
    return job, plan


def trace(folder: Path, job: str, plan: str) -> dict[str, object]:
    file = folder / "trace.json"
    assert cli.main(["timeline", job, "--plan", plan, "--output", str(file)]) == 0
    found: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return found


def entries(folder: Path, job: str, plan: str) -> list[Entry]:
    found = trace(folder, job, plan)["traceEvents"]
    assert isinstance(found, list)
    return found


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
    """Spans of one row follow each other or lie within each other; here none lies within another."""
    rows: dict[tuple[object, object], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            start = number(event, "ts")
            rows.setdefault((event["pid"], event["tid"]), []).append((start, start + number(event, "dur")))
    for spans in rows.values():
        for (_, ended), (begins, _) in pairwise(sorted(spans)):
            assert begins >= ended - 0.002 - ended * 1e-12  # three digits behind the microsecond


def check_pairs(events: list[Entry]) -> None:
    """Asynchronous events begin and end once, under one id in their category, and in this order."""
    begun = {(e["cat"], e["id"], e["pid"], e["name"]): number(e, "ts") for e in events if e["ph"] == "b"}
    ended = {(e["cat"], e["id"], e["pid"], e["name"]): number(e, "ts") for e in events if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert all(ended[key] >= begun[key] for key in begun)
    num_begun = sum(event["ph"] == "b" for event in events)
    assert num_begun == len(begun) > 0


def test_the_step_agrees_with_the_reported_breakdown_to_the_microsecond(
    case: tuple[str, str], tmp_path: Path
) -> None:
    job, plan = case
    design = simulate_plan(load_job(job), read_plan(plan), with_sensitivities=False).design
    assert design is not None
    spans = [event for event in entries(tmp_path, job, plan) if event["ph"] == "X" and event["pid"] == STAGES]
    num_stages = design.plan.pipeline_parallel
    # Each span is rounded to a nanosecond, and there are thousands of them.
    tolerance_us = 1.0 + 1e-3 * len(spans) / num_stages
    assert max(number(span, "ts") + number(span, "dur") for span in spans) == pytest.approx(
        design.step_time_s * 1e6, abs=1.0
    )

    def mean_us(names: set[str], *, exposed: bool) -> float:
        chosen = [span for span in spans if span["name"] in names]
        hidden = [number(dict(span["args"]), "exposed_communication_us") for span in chosen]  # type: ignore[call-overload]
        whole = [number(span, "dur") for span in chosen]
        return (sum(hidden) if exposed else sum(whole) - sum(hidden)) / num_stages

    reported_us = {name: value * 1e6 for name, value in design.step_seconds.items()}
    passes = {"forward", "backward"}
    assert mean_us(passes, exposed=False) == pytest.approx(reported_us["compute_s"], abs=tolerance_us)
    # Gathered parameters that arrive piece by piece hold passes up; the breakdown counts them with the replicas.
    exposed_us = reported_us["tensor_comm_s"] + reported_us["expert_comm_s"] + reported_us["shard_comm_s"]
    in_passes_us = mean_us(passes, exposed=True)
    assert in_passes_us >= exposed_us - tolerance_us
    assert in_passes_us <= exposed_us + reported_us["gradient_sync_s"] + tolerance_us
    # What stages neither work nor update weights is communication and waiting, in the trace and in the breakdown.
    known_us = mean_us(passes, exposed=False) + mean_us({"optimizer"}, exposed=False)
    rest = ("tensor_comm_s", "expert_comm_s", "shard_comm_s", "pipeline_send_s", "gradient_sync_s")
    rest_us = sum(reported_us[name] for name in (*rest, "pipeline_bubble_s"))
    assert design.step_time_s * 1e6 - known_us == pytest.approx(rest_us, abs=tolerance_us)
    assert mean_us({"send"}, exposed=True) == pytest.approx(reported_us["pipeline_send_s"], abs=tolerance_us)
    assert mean_us({"optimizer"}, exposed=False) == pytest.approx(reported_us["optimizer_s"], abs=1.0)


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
    check_buckets(answer, design.step_seconds)
    assert sum(stop.lost_work_s for stop in run.stops) == pytest.approx(run.seconds["lost_work_s"], rel=1e-6)
    away_s = (
        run.seconds["restart_s"] + run.seconds["replacement_wait_s"] + run.seconds["checkpoint_restore_s"]
    )
    assert sum(stop.away_s for stop in run.stops) == pytest.approx(away_s, rel=1e-9)
    assert [stop.at_s for stop in run.stops] == sorted(stop.at_s for stop in run.stops)


def check_buckets(answer: TimelineAnswer, reported: dict[str, float]) -> None:
    """The mean stage agrees with the breakdown to a microsecond: passes, the optimizer, and all else together."""
    assert answer.step is not None
    stages = answer.step.stages
    busy_s = sum(stage.busy_s for stage in stages) / len(stages)
    optimizer_s = sum(stage.optimizer_s for stage in stages) / len(stages)
    else_s = sum(stage.exposed_communication_s + stage.bubble_s for stage in stages) / len(stages)
    named = ("compute_s", "optimizer_s")
    assert busy_s == pytest.approx(reported["compute_s"], abs=1e-6)
    assert optimizer_s == pytest.approx(reported["optimizer_s"], abs=1e-6)
    assert else_s == pytest.approx(sum(s for name, s in reported.items() if name not in named), abs=1e-6)


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
    # A third of a step without its optimizer and gradients, for 2,048 of its sequences each hundred steps.
    passes_s = (step_s - parts["optimizer_s"] - parts["gradient_sync_s"]) / 3.0
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
    assert any(line.startswith("One step, stage by stage: 12 stages, 128 micro-batches") for line in lines)
    (heading,) = [line for line in lines if line.startswith("One run from start to end (replay 0, seed 0)")]
    num_stops = int(heading.rpartition(",")[2].split()[0])
    (counts,) = [line for line in lines if line.startswith("  interruptions")]
    assert any(line.split()[0] == "stragglers" for line in lines if line.strip())
    drawn, total = counts[18:90], int(counts[90:])
    assert sum(int(sign) for sign in drawn if sign != " ") == total == num_stops
    assert max(len(line) for line in lines) <= cli.WIDTH
    assert out.isascii()


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
    from planner.cli_timeline import LAST_REPLAY

    assert LAST_REPLAY == NUM_REPLAYS - 1


def test_processes_have_names_for_people(tmp_path: Path) -> None:
    named = {
        event["pid"]: dict(event["args"])["name"]  # type: ignore[call-overload]
        for event in entries(tmp_path, BLOOM, BLOOM_PLAN)
        if event["name"] == "process_name"
    }
    assert named == {
        STAGES: "stages",
        NETWORK: "network between replicas and stages",
        RUN: "run (replication 0 of seed 0)",
    }
