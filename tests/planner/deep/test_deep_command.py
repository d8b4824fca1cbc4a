"""Does `capplan simulate --depth deep` explain one step in words, as JSON and as a timeline?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.deep.answer import DeepRequest, DeepStep, simulate_deep
from planner.deep.events import COMPUTE, NETWORK
from planner.deep.words import differences_in_words
from planner.job.file import load_job
from planner.one_design.simulated_design import SimulatedDesign
from planner.trace.play import PlayAnswer
from simulator.deep.plans.plan_cluster import Faults
from simulator.deep.playing.tasks import NONE
from simulator.domain.plan import Plan
from tests.simulator.deep.plan_cases import APART, FEW

JOB = """\
workload: {model: llama-3.1-8b, tokens: 1e11, sequence_length: 8192, global_batch_size: 64}
offers:
  - {accelerator: h100-sxm5-80gb, num_gpus: {min: 8, max: 256}, rent_usd_per_gpu_hour: 2.5}
site: us-iowa
"""
TWO_NODES = """\
network: {kind: nodes, num_nodes: 2, gpus_per_node: 4, scale_up_bytes_per_s: 450e9, scale_up_latency_s: 1e-6,
  card_bytes_per_s: 50e9, fabric_latency_s: 3e-6}
"""
PLAN = "tp=4,pp=2,dp=8"


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    return str(tmp_path / "job.yaml")


def answered(capsys: pytest.CaptureFixture[str], job: str, *options: str, plan: str = PLAN) -> DeepStep:
    assert main(["simulate", job, "--plan", plan, "--depth", "deep", "--json", *options]) == 0
    return DeepStep.model_validate_json(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], job: str, *options: str, plan: str = PLAN) -> str:
    assert main(["simulate", job, "--plan", plan, *options]) == 2
    return " ".join(capsys.readouterr().err.split())


class TestAnswer:
    def test_parts_of_both_depths_sum_to_their_steps(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(capsys, job)
        assert sum(part.deep_s for part in answer.parts) == pytest.approx(answer.step_time_s)
        assert sum(part.fast_s for part in answer.parts) == pytest.approx(answer.fast_step_time_s)
        for role in answer.roles:
            assert sum(role.seconds.values()) == pytest.approx(answer.step_time_s)

    def test_the_fast_step_is_that_of_the_fast_depth(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        deep = answered(capsys, job)
        assert main(["simulate", job, "--plan", PLAN, "--json", "--no-sensitivities"]) == 0
        fast = SimulatedDesign.model_validate_json(capsys.readouterr().out)
        assert fast.design is not None
        assert deep.fast_step_time_s == fast.design.step_time_s
        assert deep.plan == fast.plan

    def test_a_slow_accelerator_is_named_and_waited_for(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        usual, slow = answered(capsys, job), answered(capsys, job, "--speed", "5=0.5")
        assert slow.slow_parts_s == pytest.approx(slow.step_time_s - usual.step_time_s)
        assert slow.slow == ("accelerator 5 at 0.5 of the usual speed",)
        assert any(sentence.startswith("Slow parts make it") for sentence in slow.differences)
        # Accelerator 5 is played for the second block of four of stage 0: two roles of two stages, of 28 and 4 each.
        assert [(role.stage, role.accelerator, role.stands_for, role.speed) for role in slow.roles] == [
            (0, 0, 28, 1.0),
            (0, 5, 4, 0.5),
            (1, 32, 28, 1.0),
            (1, 36, 4, 1.0),
        ]
        assert "stage 0, accelerator 5" in slow.roles[3].waits_for_s

    def test_what_others_wait_together_is_what_each_waits_times_their_number(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Accelerator 5 stands for 4 of 64 (see above), so that 60 others wait.
        waits = " ".join(answered(capsys, job, "--speed", "5=0.5").waits)
        said = "All others wait longest for stage 0, accelerator 5 to compute: (.+?) each on average, (.+?) together"
        ((each, together),) = re.findall(said, waits)
        seconds = {"s": 1.0, "ms": 1e-3}
        together_s, each_s = (float(text.split()[0]) * seconds[text.split()[1]] for text in (together, each))
        assert together_s / each_s == pytest.approx(60.0, rel=0.01)  # three digits of each are written

    def test_gradients_of_weights_are_computed_also_where_they_are_left_for_later(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(capsys, job, plan="tp=4,pp=4,dp=4,pipeline_schedule=zb_h1")
        parts = {part.name: part for part in answer.parts}
        assert parts["compute_s"].deep_s == pytest.approx(parts["compute_s"].fast_s, rel=1e-6)

    def test_means_count_what_each_accelerator_stands_for(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # 15 of 16 wait for the second, which waits little: the mean of both roles would be near half of the longest wait.
        answer = answered(capsys, job, "--speed", "1=0.5", plan="tp=1,dp=16,zero_stage=3")
        assert [role.stands_for for role in answer.roles] == [15, 1]
        told = next(each for each in answer.waits if "gathering" in each)
        mean, longest = (float(number) for number in re.findall(r"([\d.]+) ms", told))
        assert 0.9 * longest < mean < longest

    def test_a_slow_card_is_the_hottest_link(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        answer = answered(capsys, job, "--slow-link", "card:3=0.1", plan="tp=1,pp=1,dp=64")
        # Both roles wait for it, and for nothing else; nobody computes longer for it.
        assert [link.link for link in answer.hot_links] == ["accelerator 3 -> leaf 3"]
        assert [role.waits_for_s for role in answer.roles] == [{}, {}]
        assert len(answer.waits) == 1
        assert answer.waits[0].startswith("Each accelerator waits")
        assert answer.waits[0].endswith("for traffic of gradient synchronisation.")

    def test_message_by_message_it_is_as_long(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        plan = "tp=4,pp=2,dp=2"
        folded, whole = answered(capsys, job, plan=plan), answered(capsys, job, "--unfolded", plan=plan)
        assert (len(folded.roles), len(whole.roles)) == (2, 16)
        assert whole.step_time_s == pytest.approx(folded.step_time_s, rel=1e-5)
        # No accelerator computes longer than others of its stage, so that stages wait for stages.
        assert [each for each in whole.waits if "to compute" in each] == [
            each for each in folded.waits if "to compute" in each
        ]

    def test_healthy_accelerators_are_not_blamed_for_a_slow_link(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "nodes.yaml").write_text(TWO_NODES, encoding="utf-8")
        options = ("--set", "workload.global_batch_size=2", "--network", str(tmp_path / "nodes.yaml"))
        answer = answered(capsys, job, *options, "--slow-link", "scale-up:2=0.25", plan="tp=4,dp=2")
        assert not [each for each in answer.waits if "to compute" in each]
        assert "gpu 2" in answer.hot_links[0].link
        # The other replica, whose links are whole, waits as long for tensor-parallel traffic, in part for that of the first.
        seconds = [role.seconds for role in answer.roles]
        longest = max(each["tensor_comm_s"] for each in seconds)
        assert [each["tensor_comm_s"] for each in seconds] == pytest.approx([longest] * 8, rel=0.01)
        assert max(each["pipeline_bubble_s"] for each in seconds) < 1e-3 * answer.step_time_s

    def test_limits_that_the_plan_breaks_are_told(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        answer = answered(capsys, job, "--set", "limits.deadline_days=1")
        (broken,) = answer.warnings
        assert "deadline_days" in broken
        plan = ("--plan", "tp=8,dp=8", "--depth", "deep")
        assert main(["simulate", job, *plan, "--set", "limits.deadline_days=1"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "1 of 64 accelerators was played" in told
        assert "The plan violates a limit: time to train above deadline_days = 1" in told

    def test_the_view_has_all_of_it(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["simulate", job, "--plan", PLAN, "--depth", "deep", "--speed", "5=0.5"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        for text in (
            "a step (",
            "at the fast depth)",
            "Time of an average accelerator: deep depth, fast depth",
            "Waits between accelerators",
            "for traffic of tensor parallelism on average",
            "for stage 0, accelerator 5 to compute",
            "Links with the longest waits, per average accelerator that was played",
            "Slower parts: accelerator 5 at 0.5 of the usual speed.",
            "4 of 64 accelerators were played",
        ):
            assert text in told

    @pytest.mark.short(2)
    @pytest.mark.parametrize(
        ("plan", "ranks"),
        [
            ("tp=4,pp=2,dp=2", "tensor"),
            ("tp=1,cp=4,pp=2,dp=2", "context"),
            ("tp=2,cp=2,pp=2,dp=2", "tensor and context"),
        ],
    )
    @pytest.mark.parametrize("depth", ["fast", "deep"])
    def test_traffic_within_layers_is_named_by_the_ranks_that_the_plan_has(
        self, job: str, plan: str, ranks: str, depth: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["simulate", job, "--plan", plan, "--depth", depth]) == 0
        told = set(re.findall(r"(?:tensor and |tensor |context )+parallelism", capsys.readouterr().out))
        assert told == {f"{ranks} parallelism"}

    def test_without_stages_waits_for_a_slow_accelerator_are_no_bubble(
        self, job: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--depth", "deep", "--speed", "5=0.8"]
        assert main(["simulate", job, "--plan", "tp=4,dp=2", *options]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"waiting for other accelerators +[1-9]", shown)
        assert "bubble" not in shown
        assert "other stages" not in shown


class TestDifferences:
    """Sentences on why the depths differ, by what is longer or shorter."""

    def test_collectives_are_those_of_the_ranks_that_the_plan_has(self) -> None:
        plan = Plan(offer=0, num_gpus=4, context_parallel=4)
        told = differences_in_words(
            {"tensor_comm_s": -1.0}, plan, step_s=(9.0, 10.0), shared_s=0.0, slow_s=0.0
        )
        assert [*told][1].startswith(
            "Context parallelism: 1.00 s shorter; here collectives between context-parallel"
        )

    @pytest.mark.parametrize(
        ("part", "traffic"),
        [
            ("expert_comm_s", "tokens on their way to experts"),
            ("pipeline_send_s", "messages between stages"),
            ("gradient_sync_s", None),
        ],
    )
    def test_what_passes_wait_for_is_named_by_what_travels(self, part: str, traffic: str | None) -> None:
        plan = Plan(offer=0, num_gpus=4, pipeline_parallel=4)
        told = differences_in_words({part: -1.0}, plan, step_s=(9.0, 10.0), shared_s=0.0, slow_s=0.0)
        why = [sentence.partition("; here ")[2] for sentence in [*told][1:]]
        ends = "count only while their rank waits for nothing that ends later."
        assert why == ([f"{traffic} {ends}"] if traffic else [])

    def told(self, name: str) -> tuple[str, ...]:
        case = (APART | FEW)[name]
        return simulate_deep(case.job, DeepRequest(plan=case.plan)).answer.differences

    def test_sharded_weights_are_longer_only_where_they_meet_other_traffic(self) -> None:
        assert len(self.told("sharded weights")) == 1
        shared = self.told("mixtral a100 sharded weights")
        # Traffic that meets other traffic cannot be shorter for it.
        assert not [each for each in shared if "shorter" in each and "meet other traffic" in each]

    def test_a_pipeline_that_reduces_once_has_no_traffic_in_its_passes(self) -> None:
        case = APART["70b sharded gradients in a pipeline"]
        parts = {
            part.name: part for part in simulate_deep(case.job, DeepRequest(plan=case.plan)).answer.parts
        }
        assert parts["shard_comm_s"].fast_s == parts["shard_comm_s"].deep_s == 0.0
        assert min(parts["gradient_sync_s"].fast_s, parts["gradient_sync_s"].deep_s) > 0.0

    def test_nothing_is_said_where_no_cause_is_known(self) -> None:
        # Replicas alone, on one node: no other traffic, no pipeline.
        assert len(self.told("data")) == 1

    def test_what_is_slow_is_the_cause_of_what_takes_longer(self) -> None:
        case = FEW["pipeline"]
        slow = DeepRequest(plan=case.plan, faults=Faults(speed={1: 0.5}))
        told = simulate_deep(case.job, slow).answer.differences
        assert "Slow parts make it" in told[1]
        assert not [sentence for sentence in told if "longer;" in sentence]

    @pytest.mark.parametrize("name", ["8b b200 sharded weights", "tensor and data"])
    def test_without_stages_there_is_no_bubble_at_either_depth(self, name: str) -> None:
        case = (APART | FEW)[name]
        answer = simulate_deep(case.job, DeepRequest(plan=case.plan)).answer
        bubble = next(part for part in answer.parts if part.name == "pipeline_bubble_s")
        assert (bubble.fast_s, bubble.deep_s) == (0.0, 0.0)


class TestTimeline:
    def test_every_operator_and_every_flow_is_in_the_file(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "step.json"
        answered(capsys, job, "--timeline", str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        run = simulate_deep(load_job(job), DeepRequest(plan={"tp": 4, "pp": 2, "dp": 8}))
        spans = [event for event in events if event["ph"] == "X"]
        begins = [event for event in events if event["ph"] == "b"]
        assert len(spans) == (run.graph.resource != NONE).sum()
        assert len(begins) == (run.graph.path != NONE).sum()
        assert {event["pid"] for event in spans} == {COMPUTE}
        assert {event["pid"] for event in begins} == {NETWORK}
        rows = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        assert rows == ["stage 0", "stage 1"] * 2
        assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(
            run.answer.step_time_s * 1e6, abs=1e-3
        )
        assert {"forward: attention core #0", "optimizer"} <= {event["name"] for event in spans}

    def test_another_file_is_left_alone(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "notes.json").write_text("mine", encoding="utf-8")
        told = refused(capsys, job, "--depth", "deep", "--timeline", str(tmp_path / "notes.json"))
        assert "is no timeline of capplan" in told
        assert (tmp_path / "notes.json").read_text(encoding="utf-8") == "mine"


class TestOwnNetwork:
    EIGHT = ("--set", "workload.global_batch_size=8")
    """As many micro-batches."""
    ONE_BY_ONE = ("--set", "workload.overlaps_input_gradients=false")
    """Nothing runs beside what tensor-parallel ranks exchange."""

    def network(self, folder: Path, text: str) -> tuple[str, str]:
        (folder / "own.yaml").write_text(f"network: {{{text}, latency_s: 0}}", encoding="utf-8")
        return "--network", str(folder / "own.yaml")

    def test_wide_links_leave_computing_only(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        net = self.network(tmp_path, "kind: switch, num_gpus: 8, bandwidth_bytes_per_s: 1e15")
        answer = answered(capsys, job, *net, *self.ONE_BY_ONE, plan="tp=4,dp=2")
        seconds = {part.name: part.deep_s for part in answer.parts}
        assert seconds["compute_s"] + seconds["optimizer_s"] == pytest.approx(answer.step_time_s, rel=1e-3)
        assert seconds["compute_s"] == pytest.approx(
            {part.name: part.fast_s for part in answer.parts}["compute_s"]
        )
        assert answer.network == "own"
        assert "it gives no ramp" in answer.differences[-1]
        assert not answer.is_folded

    def test_narrow_links_take_as_long_as_their_bytes(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        took_s = {}
        for rate in (1e9, 2e9):
            net = self.network(tmp_path, f"kind: switch, num_gpus: 8, bandwidth_bytes_per_s: {rate}")
            choices = (*self.EIGHT, *self.ONE_BY_ONE, "--collectives", "ring")
            answer = answered(capsys, job, *net, *choices, plan="tp=8,dp=1")
            took_s[rate] = {part.name: part.deep_s for part in answer.parts}["tensor_comm_s"]
        # A micro-batch of 8,192 tokens of 4,096 values of 2 bytes; each of 32 layers gathers or scatters it at two blocks,
        # four times forward and four times backward, the ends of the model as well: 7/8 of it leave a rank each time.
        least_s = 8 * 32 * 8 * 7 / 8 * 8192 * 4096 * 2 / 1e9
        assert took_s[1e9] == pytest.approx(2 * took_s[2e9])
        assert least_s <= took_s[1e9] < 1.05 * least_s

    @pytest.mark.long
    def test_a_slow_link_of_the_network_is_named(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        net = self.network(tmp_path, "kind: switch, num_gpus: 8, bandwidth_bytes_per_s: 1e10")
        slow = ("--slow-link", "gpu:3>switch:0=0.5")
        answer = answered(capsys, job, *net, *self.EIGHT, *slow, plan="tp=8,dp=1")
        assert answer.hot_links[0].link == "gpu 3 -> switch 0"
        assert answer.slow_parts_s > 0.0
        assert answer.slow == ("gpu:3>switch:0 at 0.5 of its bandwidth",)
        file = Path(net[1])
        file.write_text(file.read_text("utf-8") + '\nslow_links: {"gpu:3>switch:0": 0.5}\n', "utf-8")
        by_file = answered(capsys, job, *net, *self.EIGHT, plan="tp=8,dp=1")
        assert (by_file.slow, by_file.slow_parts_s) == (answer.slow, answer.slow_parts_s)

    def test_what_does_not_fit_is_named(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        net = self.network(tmp_path, "kind: switch, num_gpus: 8, bandwidth_bytes_per_s: 1e10")
        deep = ("--depth", "deep", *net)
        assert "must be at most 8 on network 'own'" in refused(capsys, job, *deep)
        link = refused(capsys, job, *deep, "--slow-link", "card:0=0.5", plan="tp=8,dp=1")
        assert "--slow-link = card:0: is no link of network 'own'" in link


class TestRefusals:
    @pytest.mark.parametrize(
        "option",
        [
            ("--speed", "3=0.5"),
            ("--slow-link", "card:3=0.5"),
            ("--unfolded",),
            ("--network", "own.yaml"),
            ("--collectives", "ring"),
        ],
    )
    def test_options_of_the_deep_depth_need_it(
        self, job: str, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert f"{option[0]} needs --depth deep" in refused(capsys, job, *option)

    @pytest.mark.parametrize(
        "option", [("--scheme", "async"), ("--interval", "600"), ("--no-sensitivities",), ("--seed", "0")]
    )
    def test_options_of_a_run_do_not_fit_it(
        self, job: str, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "--depth deep plays one step" in refused(capsys, job, "--depth", "deep", *option)

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            (("--speed", "3=0"), "must be an accelerator and its speed"),
            (("--speed", "3=0.5", "--speed", "3=1"), "gives accelerator 3 a second speed"),
            (
                ("--slow-link", "card:3=0.5", "--slow-link", "card:3=0.9"),
                "'card:3=0.9' gives card:3 a second share",
            ),
            (("--speed", "64=0.5"), "must be the number of an accelerator, 0 to 63"),
            (("--slow-link", "cable:3=0.5"), "must be scale-up, card, leaf with a number"),
            (("--slow-link", "card:3=2"), "'card:3=2' must be a link and the share that is left"),
            (("--slow-link", "gpu:3-leaf:0=0.5"), "other links are named with --network"),
            (("--collectives", "tree"), "--collectives needs --network"),
            (("--slow-link", "leaf:8=0.5"), "must be the number of a leaf, 0 to 7"),
        ],
    )
    def test_slow_parts_that_are_not_there_are_named(
        self, job: str, option: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert message in refused(capsys, job, "--depth", "deep", *option)

    def test_a_layout_that_cannot_run_says_why(self, job: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert "tensor_parallel" in refused(capsys, job, "--depth", "deep", plan="tp=7,dp=8")


class TestExport:
    @pytest.mark.short(1)
    @pytest.mark.parametrize("form", ["et", "json"])
    def test_a_plan_can_be_exported_and_played(
        self, job: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = str(tmp_path / "astra")
        arguments = [job, "--plan", "tp=4,pp=2,dp=1,recompute=full", "--set", "workload.global_batch_size=4"]
        assert main(["trace", "export-plan", *arguments, "--format", form, "--output", folder]) == 0
        told = capsys.readouterr().err
        assert "8 traces with" in told
        assert "violates" not in told
        wide = ("--network", "nodes", "--bandwidth", "450e9")
        assert main(["trace", "play", folder, *wide, "--json"]) == 0
        played = PlayAnswer.model_validate_json(capsys.readouterr().out)
        assert played.num_gpus == 8
        assert main(["simulate", *arguments, "--depth", "deep", "--json"]) == 0
        deep = DeepStep.model_validate_json(capsys.readouterr().out)
        # The network of the traces has no start-ups and the whole bandwidth of its links.
        assert 0.9 * deep.step_time_s < played.step_s < deep.step_time_s

    def test_limits_that_an_exported_plan_violates_are_told(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = [job, "--plan", "tp=4,pp=2,dp=1,recompute=full", "--set", "workload.global_batch_size=4"]
        arguments += [
            "--set",
            "limits.deadline_days=1",
            "--format",
            "json",
            "--output",
            str(tmp_path / "astra"),
        ]
        assert main(["trace", "export-plan", *arguments]) == 0
        assert re.search(r"The plan violates a limit: .*deadline_days = 1", capsys.readouterr().err)

    def test_a_plan_of_too_many_accelerators_is_refused(
        self, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = [job, "--plan", "tp=8,dp=1024", "--set", "workload.global_batch_size=1024"]
        assert main(["trace", "export-plan", *arguments, "--output", str(tmp_path / "astra")]) == 2
        assert "must be at most 4,096" in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "astra").exists()
