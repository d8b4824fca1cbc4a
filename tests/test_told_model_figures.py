"""Are the figures that the pages of the equations quote of steps, of what hides in them, and of late runs those of today?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.measured.frameworks.deepspeed_habits import DEEPSPEED, INTERN_EVO
from planner.measured.frameworks.habits import Habits
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_core_s, choice_s
from simulator.layers.compressed_costs import KNOWN_KEYS, OTHER_KEYS
from simulator.layers.indexer_costs import SPEED_HEAD_DIM, indexer_s
from simulator.layers.layer_costs import expert_layer
from simulator.layers.transferred_kernels import best_attention_flop_per_s
from simulator.layout.chunks import split_layers
from simulator.run.spread import miss_probability
from simulator.simulate import simulate
from simulator.step.step import simulate_step, step_parts
from simulator.traffic.expert_exchange import RATE_IN_TRAINING
from simulator.units import DAY
from tests.simulator.builders import H100, changed, plan_of, rank_of, table_of, training
from tests.simulator.compressed import FLASH, of_one_kind
from tests.simulator.sparse import DEEPSEEK_V3, DEEPSEEK_V3_2
from tests.support import H100_RENTED, job_with
from tests.test_told_figures import words_of

MODEL = Path(__file__).parents[1] / "docs" / "model"
COMPRESSED = MODEL / "compressed-attention.md"
EXPERTS, KERNELS, REPLICAS, RUN, SPARSE = (
    MODEL / f"{name}.md" for name in ("experts", "kernels", "replicas", "run", "sparse-attention")
)
A800, H800 = "a800-sxm4-80gb", "h800-sxm5-80gb"
ON_8 = plan_of(data=8)


def step_s(workload: Workload, plan: Plan, accelerator: str = H100) -> float:
    rank = rank_of(workload, plan, accelerator=accelerator)
    return float(simulate_step(rank, split_layers(workload.model, rank.plans)).step_time_s[0])


def longer(workload: Workload, plan: Plan, accelerator: str = H100, **without: object) -> float:
    """By how many per cent a step is longer than with other fields of its workload."""
    return 100 * (
        step_s(workload, plan, accelerator) / step_s(changed(workload, **without), plan, accelerator) - 1
    )


def of_habits(habits: Habits, model: str, plan: Plan, num_micro_batches: int) -> Workload:
    """A step of sequences of 4,096 tokens, one in each of some micro-batches, by what a framework does to gradients."""
    return changed(
        training(model, global_batch_size=num_micro_batches * plan.data_parallel),
        attention=habits.attention,
        has_sequence_parallel=habits.has_sequence_parallel,
        gathers_cast_inputs=habits.gathers_cast_inputs,
        overlaps_parameter_gather=habits.overlaps_parameter_gather,
        gradient_bytes=habits.gradient_bytes,
        sync_bytes=habits.sync_bytes,
        scatters_gradients_from=habits.scatters_gradients_from,
        bucket_weights=habits.bucket_weights,
        bucket_copy_bytes=float(habits.bucket_copy_bytes),
        added_gradient_bytes=habits.added_gradient_bytes,
        step_bytes=habits.step_bytes,
        logit_bytes=habits.logit_bytes,
        checkpoints_norms=habits.checkpoints_norms,
        measures_accuracy=habits.measures_accuracy,
    )


class TestAllReduces:
    def test_of_65b_and_7b(self) -> None:
        words = words_of(REPLICAS)
        assert "a step of 65B on 1,024 A800 is 8 % longer for it, in groups of 8, too" in words
        assert "is 0.4 % longer, and in groups of a node 0.4 % shorter than with sums between groups" in words
        for model, tensor, data, told, near in (
            ("llama-65b", 8, 128, (8.0, 8.0), 0.5),
            ("llama-2-7b", 1, 1024, (0.4, -0.4), 0.05),
        ):
            for shards, share in zip((None, 8), told, strict=True):
                plan = plan_of(tensor=tensor, data=data, shards=shards)
                workload = of_habits(INTERN_EVO, model, plan, 4)
                found = longer(workload, plan, A800, scatters_gradients_from=1)
                assert found == pytest.approx(share, abs=near)


class TestSumsAndCopies:
    @pytest.mark.parametrize(("accelerator", "added", "copied"), [(A800, 1.3, 0.8), (H800, 2.8, 1.3)])
    def test_of_internevo(self, accelerator: str, added: float, copied: float) -> None:
        words = words_of(REPLICAS)
        assert "A adds 1.3 % to a step and C of InternEvo 0.8 %, on H800 2.8 and 1.3 %" in words
        workload = of_habits(INTERN_EVO, "llama-2-7b", ON_8, 4)
        assert longer(workload, ON_8, accelerator, added_gradient_bytes=None) == pytest.approx(
            added, abs=0.05
        )
        assert longer(workload, ON_8, accelerator, bucket_copy_bytes=0.0) == pytest.approx(copied, abs=0.05)
        assert "with one micro-batch C adds 3 to 4 %" in words
        alone = of_habits(INTERN_EVO, "llama-2-7b", ON_8, 1)
        assert 2.9 < longer(alone, ON_8, accelerator, bucket_copy_bytes=0.0) < 4.5

    def test_of_deepspeed(self) -> None:
        words = words_of(REPLICAS)
        assert "takes 4.9 % more for its copies and 1.6 % for its all-reduces" in words
        plan = plan_of(data=64, zero=2)
        workload = changed(of_habits(DEEPSPEED, "llama-2-7b", plan, 1), gradient_bytes=2)
        assert longer(workload, plan, A800, bucket_copy_bytes=0.0) == pytest.approx(4.9, abs=0.05)
        assert longer(workload, plan, A800, scatters_gradients_from=1) == pytest.approx(1.6, abs=0.05)

    def test_of_fsdp_on_the_streams_of_its_collectives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        words = words_of(REPLICAS)
        assert "whose traffic is hidden, and 1.5 % without `weight_prefetch`; 0.04 and 0.2 % for 70B" in words
        for model, data, told in (("llama-3.1-8b", 8, (0.3, 1.5)), ("llama-3.1-70b", 64, (0.04, 0.2))):
            plan = plan_of(data=data, zero=3)
            workloads = [
                changed(
                    training(model, global_batch_size=data), sharded_copies="fsdp-2", weight_prefetch=prefetch
                )
                for prefetch in ("both", "none")
            ]
            with_s = [step_s(each, plan) for each in workloads]
            with monkeypatch.context() as patch:
                patch.setattr("simulator.replicas.replica_sync.stream_copies_s", lambda *_: (0.0, 0.0))
                without_s = [step_s(each, plan) for each in workloads]
            for found_s, least_s, share in zip(with_s, without_s, told, strict=True):
                assert 100 * (found_s / least_s - 1) == pytest.approx(share, rel=0.15)


def test_maps_of_the_routing_in_a_step() -> None:
    words = words_of(EXPERTS)
    assert "0.19 ms longer for them" in words
    assert "in a step, where ranks wait, 0.22" in words
    plain = changed(
        training("qwen3-30b-a3b", sequence_length=4096, global_batch_size=16), expert_dispatch="deduplicated"
    )
    ranks = [
        rank_of(changed(plain, gathers_routing_maps=maps), plan_of(expert=16, data=16))
        for maps in (True, False)
    ]
    with_maps, without = (expert_layer(rank) for rank in ranks)
    in_step_s = with_maps.forward_s + with_maps.backward_s - without.forward_s - without.backward_s
    waits_s = sum(
        getattr(with_maps, name) - getattr(without, name)
        for name in ("forward_expert_comm_s", "backward_expert_comm_s")
    )
    assert 1e3 * in_step_s == pytest.approx(0.22, abs=0.005)
    assert 1e3 * (in_step_s - (1.0 - RATE_IN_TRAINING) * waits_s) == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize(("accelerator", "of_7b", "of_65b"), [(A800, 2.2, 5.0), (H800, 3.5, 7.0)])
def test_norms_that_read_32_bits(accelerator: str, of_7b: float, of_65b: float) -> None:
    assert "2.2 % of a step of 7B on A800 and 3.5 % on H800" in words_of(KERNELS)
    assert "and 5 and 7 % of 65B with t = 8" in words_of(KERNELS)
    for model, plan, told, near in (
        ("llama-2-7b", ON_8, of_7b, 0.05),
        ("llama-65b", plan_of(tensor=8, data=16), of_65b, 0.5),
    ):
        more = longer(of_habits(INTERN_EVO, model, plan, 4), plan, accelerator, checkpoints_norms=False)
        assert 100 * more / (100 + more) == pytest.approx(told, abs=near)


def test_what_is_done_to_whole_gradients_once_per_step() -> None:
    words = words_of(REPLICAS)
    assert "are 12, 12 and 24 ms" in words
    assert "the last two are 9 %, with 16 micro-batches 0.6 %" in words
    one, many = (training(global_batch_size=8 * number) for number in (1, 16))
    checked_s, divided_s = (
        step_s(one, ON_8) - step_s(changed(one, **{name: False}), ON_8)
        for name in ("checks_gradients", "divides_gradients")
    )
    assert (checked_s, divided_s) == pytest.approx((0.012, 0.024), abs=0.0005)
    for workload, share in ((one, 9.0), (many, 0.6)):
        found = longer(workload, ON_8, checks_gradients=False, divides_gradients=False)
        assert found == pytest.approx(share, abs=0.5 if share > 1 else 0.05)


def test_sums_of_gradients_that_tensor_parallel_ranks_have_whole() -> None:
    words = words_of(REPLICAS)
    assert "23 ms a step for it without a pipeline and 1.6 ms on 16 stages, Mixtral 0.06 ms" in words
    for model, pipeline, told_ms in (
        ("deepseek-v3", 1, 23.0),
        ("deepseek-v3", 16, 1.6),
        ("mixtral-8x7b", 1, 0.06),
    ):
        workload = training(model, global_batch_size=1024)
        rank = rank_of(workload, plan_of(tensor=8, data=8, expert=8, pipeline=pipeline))
        found = 1e3 * float(step_parts(rank, split_layers(workload.model, rank.plans)).whole_gradient_s[0])
        assert found == pytest.approx(told_ms, rel=0.05)


def test_risks_of_late_runs() -> None:
    # The row below it, of a million replays, is that of the program that stands beside the table.
    days, risks, _ = (
        [float(number) for number in re.findall(r"[\d.]+", cells)]
        for cells in re.findall(
            r"^\| (?:deadline, days|risk, %|late replays, %) \|(.*)$", RUN.read_text("utf-8"), re.MULTILINE
        )
    )
    offer = {**H100_RENTED, "num_gpus": 64}
    job = job_with(offer, workload={"tokens": 1e11, "sequence_length": 8192, "global_batch_size": 512})
    plans = table_of(plan_of(data=64, zero=2))
    found = simulate(job, plans)
    for deadline_days, told in zip(days, risks, strict=True):
        risk = miss_probability(job, plans, found.steps, found.run, deadline_days * DAY)
        assert 100 * float(risk[0]) == pytest.approx(told, abs=0.0006)


def attention_ms(model: ModelShape, sequence_length: int, accelerator: str) -> float:
    """Attention core and indexer of one layer on one rank, forward and backward."""
    workload = training(model, sequence_length=sequence_length, global_batch_size=64)
    rank = rank_of(workload, plan_of(), accelerator=accelerator)
    return 1e3 * sum(float(way_s[0]) for way_s in (*attention_core_s(rank), *indexer_s(rank)))


def test_the_page_on_chosen_tokens_tells_the_times_of_today() -> None:
    table = SPARSE.read_text().partition("<!-- chosen-tokens -->\n")[2].partition("\n<!-- end -->")[0]
    lines = table.splitlines()[2:]
    accelerators, models = (
        {"H100": H100, "B200": "b200-sxm-180gb"},
        {"all": DEEPSEEK_V3, "chosen": DEEPSEEK_V3_2},
    )
    told = {
        tuple(cells[0].split(", ")): [float(cell.replace(",", "")) for cell in cells[1:]]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }
    assert len(told) == 4
    for (chip, tokens), figures in told.items():
        for length, figure in zip((4096, 16_384, 32_768, 65_536, 131_072), figures, strict=True):
            found = attention_ms(models[tokens], length, accelerators[chip])
            assert figure == pytest.approx(found, rel=0.03), (chip, tokens, length)


def told_rows(page: Path, name: str) -> dict[str, list[float]]:
    """Figures of a table of a page by the first cell of each line."""
    table = page.read_text().partition(f"<!-- {name} -->\n")[2].partition("\n<!-- end -->")[0]
    lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:])
    return {cells[0]: [float(cell.replace(",", "")) for cell in cells[1:]] for cells in lines}


def test_the_page_on_compressed_tokens_tells_the_times_of_today() -> None:
    told, chips = told_rows(COMPRESSED, "compressed-tokens"), {"H100": H100, "B200": "b200-sxm-180gb"}
    kinds = {
        "window": of_one_kind(FLASH),
        "chosen": of_one_kind(FLASH, chosen=True),
        "heavy": of_one_kind(FLASH, heavy=True),
    }
    assert len(told) == 6
    for line, figures in told.items():
        chip, kind = line.split(", ")
        for length, figure in zip((4096, 16_384, 65_536, 262_144), figures, strict=True):
            workload = training(kinds[kind], sequence_length=length, global_batch_size=8)
            rank = rank_of(workload, plan_of(), accelerator=chips[chip])
            found = 1e3 * sum(float(way_s[0]) for way_s in (*attention_core_s(rank), *choice_s(rank)))
            assert figure == pytest.approx(found, rel=0.03), (line, length)


def test_it_tells_backward_speeds_with_few_tokens() -> None:
    rank = rank_of(training(FLASH), plan_of(), accelerator="b200-sxm-180gb")
    speed = best_attention_flop_per_s(rank, SPEED_HEAD_DIM)[0] * rank.kernels.attention_backward_fraction[0]
    at_once = [
        f"{speed / 1e12 * (1 + OTHER_KEYS / KNOWN_KEYS) / (1 + OTHER_KEYS / keys):.0f}"
        for keys in (128, 512, 1024, 2048)
    ]
    assert f"| here | {' | '.join(at_once)} |" in COMPRESSED.read_text()


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
def test_it_tells_weights_and_operations(name: str) -> None:
    model = catalog.model(name)
    active = model.num_active_parameters - model.embedding_parameters
    flop = "; ".join(f"{model.model_flop_per_token(length) / 1e9:.1f}" for length in (4096, 65_536))
    (line,) = (line for line in COMPRESSED.read_text().splitlines() if line.startswith(f"| {model.name} |"))
    assert f"| {model.num_parameters / 1e9:,.1f} |" in line
    assert f"| {active / 1e9:.1f} |" in line
    assert line.endswith(f"| {flop} |")


@pytest.mark.parametrize(
    ("accelerator", "forward", "backward"),
    [(H800, 626, None), ("h200-sxm-141gb", None, 113), ("b200-sxm-180gb", 1268, 596)],
)
def test_it_tells_the_speeds_of_today(
    accelerator: str, forward: float | None, backward: float | None
) -> None:
    rank = rank_of(training(DEEPSEEK_V3_2), plan_of(), accelerator=accelerator)
    speed = best_attention_flop_per_s(rank, SPEED_HEAD_DIM)[0] / 1e12
    if forward:
        assert round(float(speed)) == forward
        assert f"{forward:,}" in SPARSE.read_text()
    if backward:
        assert round(float(speed * rank.kernels.attention_backward_fraction[0])) == backward
        assert f"{backward:,}" in SPARSE.read_text()
