"""Is a step less sure where its row leaves a choice open?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.measured.fitting_choices import FAR, fastest, untold_designs, with_room
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare
from planner.validation.comparison import Modelled, entries_of, unsure_log_ratios
from planner.validation.open_choices import open_log_ratios
from simulator.table import Floats
from tests.planner.measured_rows import LLAMA_8B, QWEN3_30B, written

EXPERTS = {**QWEN3_30B, "precision": "bf16", "recompute": "none"}
DENSE = {
    **LLAMA_8B,
    "precision": "bf16",
    "micro_batch": 1,
    "recompute": "none",
}
"""A row that says all."""
LONG_SEQUENCE = {
    "framework": "Megatron-DeepSpeed (2023)",
    "gpu": "A100-80GB",
    "n_gpus": 8,
    "cp": 8,
    "sp": "ulysses",
    "tp": 1,
    "pp": 1,
    "seq_len": 65536,
    "zero_stage_or_fsdp": "ZeRO-3",
    "global_batch": 1,
    "micro_batch": 1,
    "recompute": "full",
}
"""What makes scores of attention so long that they have no room."""


def row_of(folder: Path, cells: Mapping[str, object] = EXPERTS, **changes: object) -> Row:
    (row,) = read_measured(written(folder, {**cells, **changes}))
    assert not isinstance(row, Unmodelled), row
    return row


def ratios_of(row: Row) -> Floats:
    (ratios,) = open_log_ratios(compare([row]))
    return ratios


def test_a_dense_model_and_a_row_that_says_all_leave_nothing_open(tmp_path: Path) -> None:
    said = {**EXPERTS, "notes": "all-to-all dispatcher; EP overlap off"}
    rows = [row for row in read_measured(written(tmp_path, DENSE, said)) if not isinstance(row, Unmodelled)]
    assert [len(ratios) for ratios in open_log_ratios(compare(rows))] == [0, 0]


def test_each_open_choice_is_made_the_other_way(tmp_path: Path) -> None:
    # Bridge's habit across nodes is the fastest: one copy of a token to each node, and hidden.
    both = ratios_of(row_of(tmp_path))
    assert np.all(both > 0.0)
    overlap = ratios_of(row_of(tmp_path, notes="DeepEP"))
    dispatch = ratios_of(row_of(tmp_path, notes="EP overlap on"))
    assert sorted([*overlap, *dispatch]) == pytest.approx(sorted(both))
    hidden, exposed = (row_of(tmp_path, notes=f"DeepEP; EP overlap {switch}") for switch in ("on", "off"))
    times_s = [comparison.simulated_s for comparison in compare([hidden, exposed])]
    assert overlap == pytest.approx(np.log(times_s[1] / times_s[0]))


def test_traffic_hides_behind_shared_experts_or_behind_other_micro_batches(tmp_path: Path) -> None:
    shared = row_of(
        tmp_path, model="deepseek-v3", n_gpus=256, ep=64, dp=256, notes="shared-expert overlap; all-to-all"
    )
    row = {**shared, "overlaps_expert_exchange": "false", "overlaps_shared_experts": "true"}
    assert "expert_overlap" in row["assumed"].split()
    assert len(ratios_of(row)) == 1


def test_experts_on_one_rank_have_no_traffic_to_be_unsure_of(tmp_path: Path) -> None:
    assert ratios_of(row_of(tmp_path, ep=1)) == pytest.approx(0.0)


def of_dense(folder: Path, **changes: object) -> list[float]:
    return sorted(ratios_of(row_of(folder, DENSE, **changes)).tolist())


def between(folder: Path, **changes: tuple[object, object]) -> float:
    """How much longer, as a logarithm, a step of the dense model is with other cells than with some."""
    pairs = [{name: values[side] for name, values in changes.items()} for side in (0, 1)]
    usual, other = (compare([row_of(folder, DENSE, **cells)])[0].simulated_s for cells in pairs)
    return float(np.log(other / usual))


def test_what_is_computed_again_is_open_where_nobody_says_it(tmp_path: Path) -> None:
    # All activations have room, so that nobody computes everything again.
    selective = between(tmp_path, recompute=("none", "selective"), seq_len=(2048, 2048))
    assert of_dense(tmp_path, recompute="", seq_len=2048) == pytest.approx([selective])
    assert of_dense(tmp_path, recompute="full") == []


def test_a_row_whose_memory_is_not_judged_may_compute_everything_again(tmp_path: Path) -> None:
    row = row_of(tmp_path, DENSE, recompute="", seq_len=2048)
    full = between(tmp_path, recompute=("none", "full"), seq_len=(2048, 2048))
    assert ratios_of({**row, "has_memory_verdict": "false"}) == pytest.approx([full])


def test_where_activations_have_no_room_everything_may_be_computed_again(tmp_path: Path) -> None:
    large = {"micro_batch": 16}
    full = between(tmp_path, recompute=("none", "full"), micro_batch=(16, 16))
    assert of_dense(tmp_path, recompute="", **large) == pytest.approx([full])


def test_micro_batches_may_be_half_and_twice_as_large(tmp_path: Path) -> None:
    twice = between(tmp_path, micro_batch=(1, 2), seq_len=(2048, 2048))
    assert of_dense(tmp_path, micro_batch="", seq_len=2048) == pytest.approx([twice])


def test_single_sequences_are_open_where_the_whole_share_of_a_rank_is_supposed(tmp_path: Path) -> None:
    cells = {"framework": "PyTorch FSDP2", "notes": "FlashAttention-2", "seq_len": 512, "tier": "A"}
    row = row_of(tmp_path, DENSE, **cells, micro_batch="")
    assert row["micro_batch_size"] == "16"
    sizes = [row, {**row, "micro_batch_size": "1"}]
    usual, single = (comparison.simulated_s for comparison in compare(sizes))
    assert max(ratios_of(row)) == pytest.approx(np.log(single / usual))


def test_what_has_no_room_at_once_takes_the_largest_micro_batch_that_has(tmp_path: Path) -> None:
    cells = {"framework": "PyTorch FSDP2 2024, torch.compile", "recompute": "none", "tier": "A"}
    large, told = (row_of(tmp_path, DENSE, **cells, micro_batch=size) for size in ("", 16))
    assert compare([large])[0].is_too_large
    kept, found = [entry.comparison for entry in entries_of([told, large]) if isinstance(entry, Modelled)]
    size = int(found.row["micro_batch_size"])
    assert (int(kept.row["micro_batch_size"]), 16 % size, size < 16) == (16, 0, True)
    assert not found.is_too_large
    assert compare([{**large, "micro_batch_size": str(2 * size)}])[0].is_too_large
    assert f"micro-batch {size}" in found.row["remarks"]


def test_a_micro_batch_that_is_not_told_is_the_faster_of_one_and_two_that_fits(tmp_path: Path) -> None:
    cells = {"n_gpus": 16, "seq_len": 2048, "tp": 2, "pp": 2, "vpp": 1, "recompute": "selective"}
    sizes = [row_of(tmp_path, DENSE, **cells, micro_batch=size) for size in (1, 2)]
    (chosen,) = with_room(compare([row_of(tmp_path, DENSE, **cells, micro_batch="")]))
    assert chosen.simulated_s == min(size.simulated_s for size in compare(sizes) if not size.is_too_large)
    (told,) = with_room(compare(sizes[:1]))
    assert told.row == sizes[0]


def test_a_micro_batch_that_follows_from_other_cells_is_not_chosen(tmp_path: Path) -> None:
    # torchtitan of 2024 cut a local batch into as many micro-batches as stages.
    cells = {"framework": "torchtitan 2024", "n_gpus": 16, "tp": 2, "pp": 2, "seq_len": 1024}
    row = row_of(tmp_path, DENSE, **cells, micro_batch="")
    assert int(row["micro_batch_size"]) > 2
    assert with_room(compare([row]))[0].row == row
    assert len(ratios_of(row)) > 0


def test_chunks_that_are_not_told_are_as_many_as_are_fastest_where_users_pick_them(tmp_path: Path) -> None:
    cells = {
        "framework": "NeMo 25.02",
        "n_gpus": 16,
        "tp": 2,
        "pp": 4,
        "seq_len": 2048,
        "recompute": "selective",
    }
    told = compare([row_of(tmp_path, DENSE, **cells, vpp=chunks) for chunks in (1, 2, 4, 8)])
    (chosen,) = with_room(compare([row_of(tmp_path, DENSE, **cells, vpp="")]))
    assert chosen.simulated_s == min(each.simulated_s for each in told if not each.is_too_large)
    chunks = chosen.row["virtual_pipeline"]
    assert int(chunks) > 1
    assert f"{chunks} chunks a stage" in chosen.row["remarks"]
    assert max(ratios_of(chosen.row)) > 0.0
    for told_or_not in (
        {"framework": "Megatron-LM 2024"},
        {"schedule": "1f1b"},
        {"notes": "vpp=2"},
        {"notes": "non-interleaved"},
        {"recompute": "full 3 layers"},
    ):
        row = row_of(tmp_path, DENSE, **{**cells, "vpp": "", **told_or_not})
        assert with_room(compare([row]))[0].row == row, told_or_not


def test_attention_of_an_open_release_wrote_no_scores_without_room(tmp_path: Path) -> None:
    # Four heads a rank, 65,536 tokens: 4 x 65,536^2 x 2 bytes are 32 GiB of scores alone, and their softmax as much again.
    cells = {"gpu": "A100-80GB", "seq_len": 65536, "cp": 8, "sp": "ulysses", "n_gpus": 8, "tp": 1, "pp": 1}
    shared = {"zero_stage_or_fsdp": "ZeRO-3", "global_batch": 1, "micro_batch": 1, "recompute": "full"}
    row = row_of(tmp_path, DENSE, **cells, **shared, framework="Megatron-DeepSpeed (2023)")
    assert row["attention"] == "eager"
    (chosen,) = with_room(compare([row]))
    assert (chosen.row["attention"], chosen.is_too_large, chosen.has_memory_verdict) == (
        "flash-2",
        False,
        False,
    )
    assert chosen.row["remarks"].endswith(
        "scores of eager attention have no room: taken as flash-2; memory is not judged"
    )
    for told in ({"seq_len": 8192}, {"attention": "eager"}, {"framework": "Megatron-DeepSpeed (2022)"}):
        kept = row_of(
            tmp_path, DENSE, **{**cells, **shared, "framework": "Megatron-DeepSpeed (2023)", **told}
        )
        assert with_room(compare([kept]))[0].row["attention"] == "eager", told


@pytest.mark.parametrize(("seq_len", "attention"), [(32768, "eager"), (131072, "flash-2")])
def test_scores_are_what_has_no_room_only_where_there_is_room_without_them_or_none_for_them_alone(
    tmp_path: Path, seq_len: int, attention: str
) -> None:
    # Weights, gradients and optimizer of 8 billion parameters, 16 bytes each, are too large for 80 GB by themselves.
    row = row_of(tmp_path, {**DENSE, **LONG_SEQUENCE}, zero_stage_or_fsdp="0", seq_len=seq_len)
    assert row["attention"] == "eager"
    assert compare([{**row, "attention": "flash-2"}])[0].is_too_large
    assert with_room(compare([row]))[0].row["attention"] == attention


@pytest.mark.parametrize(
    "cells",
    [
        {"framework": "Megatron-LM 2021", "tp": 4, "seq_len": 2048, "micro_batch": 8, "recompute": ""},
        LONG_SEQUENCE,
    ],
    ids=["activations", "scores"],
)
def test_nothing_is_chosen_for_a_run_that_had_no_room(tmp_path: Path, cells: Mapping[str, object]) -> None:
    (ran,) = compare([row_of(tmp_path, {**DENSE, **cells})])
    assert with_room([ran])[0].row != ran.row
    row = row_of(tmp_path, {**DENSE, **cells}, step_time_s="OOM")
    assert with_room(compare([row]))[0].row == row


def test_scores_have_no_room_where_they_are_too_large_by_more_than_simulations_err(tmp_path: Path) -> None:
    (known,) = compare([row_of(tmp_path, {**DENSE, **LONG_SEQUENCE})])
    sizes = (
        replace(known, simulated_memory_bytes=share * known.capacity_bytes)
        for share in (0.999 * FAR, 1.001 * FAR)
    )
    assert [each.row["attention"] for each in with_room([*sizes])] == ["eager", "flash-2"]


@pytest.mark.parametrize(
    ("framework", "size"), [("PyTorch FSDP2 2024, torch.compile", "4"), ("NeMo 25.02", "2")]
)
def test_the_largest_micro_batch_is_taken_only_where_a_rank_passes_its_whole_share(
    tmp_path: Path, framework: str, size: str
) -> None:
    rows = [row_of(tmp_path, DENSE, framework=framework, micro_batch=size) for size in (2, 4)]
    fast, slow = (
        replace(each, simulated_s=time_s) for each, time_s in zip(compare(rows), (1.0, 2.0), strict=True)
    )
    assert fastest([slow, fast]).row["micro_batch_size"] == size


def test_what_is_too_large_by_less_than_simulations_err_computes_nothing_again(tmp_path: Path) -> None:
    cells = {"framework": "Megatron-LM 2021", "tp": 4, "seq_len": 2048, "micro_batch": 8}
    row = row_of(tmp_path, {**DENSE, **cells}, recompute="")
    (known,) = compare([row])
    assert known.is_too_large
    near, far = (
        replace(known, simulated_memory_bytes=share * known.capacity_bytes)
        for share in (0.999 * FAR, 1.001 * FAR)
    )
    assert [each.row["recompute"] for each in with_room([near, far])] == [row["recompute"], "full"]


@pytest.mark.parametrize(
    ("cells", "least", "most"),
    [
        ({"framework": "NeMo 25.02", "micro_batch": 2}, 1, 31),
        # Before arXiv 2205.05198 it was all or nothing.
        ({"framework": "Megatron-LM 2021", "tp": 4, "seq_len": 2048, "micro_batch": 8}, 32, 32),
    ],
)
def test_what_has_no_room_computes_as_little_again_as_makes_room(
    tmp_path: Path, cells: Mapping[str, object], least: int, most: int
) -> None:
    row = row_of(tmp_path, {**DENSE, **cells}, recompute="")
    assert compare([row])[0].is_too_large
    (chosen,) = with_room(compare([row]))
    num_layers = int(chosen.row["recompute_num_layers"] or 32)
    assert chosen.row["recompute"] == "full"
    assert least <= num_layers <= most
    assert not chosen.is_too_large
    assert not chosen.has_memory_verdict
    if num_layers < 32:
        less = {**chosen.row, "recompute_num_layers": str(num_layers - 2)}
        assert compare([less])[0].is_too_large
    assert len(ratios_of(chosen.row)) > 0


@pytest.mark.parametrize(("schedule", "kind"), [("zbv", "selective"), ("1F1B", "full")])
def test_what_keeps_inputs_of_products_has_modules_computed_again(
    tmp_path: Path, schedule: str, kind: str
) -> None:
    deepseek = {
        "model": "DeepSeek-V2",
        "layers": 60,
        "hidden": 5120,
        "heads": 128,
        "kv_heads": "",
        "head_dim": "",
    }
    experts = {
        "experts": 160,
        "topk": 6,
        "moe_ffn_hidden": 1536,
        "shared_expert_ffn": 3072,
        "dense_layers": 1,
    }
    sizes = {"ffn_hidden": 12288, "vocab": 102400, "seq_len": 4096, "global_batch": 9216, "micro_batch": 1}
    layout = {"gpu": "H800", "n_gpus": 1024, "tp": 1, "pp": 16, "dp": 64, "ep": 8, "zero_stage_or_fsdp": "1"}
    row = row_of(tmp_path, {**deepseek, **experts, **sizes, **layout, "schedule": schedule, "recompute": ""})
    assert compare([row])[0].is_too_large
    (chosen,) = with_room(compare([row]))
    assert not chosen.is_too_large
    modules = "mla_up_proj layernorm moe_act" if kind == "selective" else ""
    assert (chosen.row["recompute"], chosen.row.get("recompute_modules", "")) == (kind, modules)
    assert (f"recomputation selective of {modules}" in chosen.row["remarks"]) == bool(modules)


def test_what_fits_or_tells_what_it_computes_again_stays(tmp_path: Path) -> None:
    small = {"micro_batch": 1, "seq_len": 1024, "recompute": ""}
    for changes in (small, {"micro_batch": 8, "recompute": "none"}):
        row = row_of(tmp_path, DENSE, **changes)
        assert with_room(compare([row]))[0].row == row


def test_a_format_that_nobody_says_may_be_8_bits_where_there_are_any(tmp_path: Path) -> None:
    fp8 = between(tmp_path, precision=("bf16", "fp8"))
    assert of_dense(tmp_path, precision="") == pytest.approx([fp8])
    assert len(of_dense(tmp_path, precision="", gpu="A100-80GB")) == 0


def test_exchange_and_chunks_are_open_where_nobody_says_them(tmp_path: Path) -> None:
    cells = {"n_gpus": 16, "cp": 2}
    gathered = between(tmp_path, cp_comm_type=("p2p", "all_gather"), cp=(2, 2), n_gpus=(16, 16))
    heads = between(tmp_path, cp_comm_type=("p2p", "a2a"), cp=(2, 2), n_gpus=(16, 16))
    span = [min(0.0, gathered, heads), max(0.0, gathered, heads)]
    assert of_dense(tmp_path, **cells) == pytest.approx([end for end in span if end])
    single = between(tmp_path, vpp=(1, 16), pp=(2, 2), n_gpus=(16, 16))
    assert single < between(tmp_path, vpp=(1, 2), pp=(2, 2), n_gpus=(16, 16)) < 0.0
    assert of_dense(tmp_path, n_gpus=16, pp=2) == pytest.approx([single])


def test_attention_of_an_unknown_framework_may_be_that_of_the_release_before(tmp_path: Path) -> None:
    row = row_of(tmp_path, DENSE, framework="our own")
    assert row["attention"] == "flash"
    usual, other = compare([row, {**row, "attention": "flash-2"}])
    assert ratios_of(row) == pytest.approx(np.log(other.simulated_s / usual.simulated_s))


@pytest.mark.parametrize(
    ("cells", "other", "is_open"),
    [
        ({"gpu": "H100"}, {"gpu": "H100 96GB HBM2e"}, True),
        ({"gpu": "NVIDIA H100"}, {"gpu": "H100 96GB HBM2e"}, True),
        ({"gpu": "H100 80GB"}, {}, False),
        ({"gpu": "H100", "framework": "NeMo 25.02"}, {}, False),
        ({"precision": "float8 rowwise"}, {"precision": "fp8 blockwise"}, True),
        ({"precision": "float8 tensorwise"}, {}, False),
    ],
)
def test_cards_of_torchtitan_and_scales_of_rows_are_open(
    tmp_path: Path, cells: Mapping[str, object], other: Mapping[str, object], *, is_open: bool
) -> None:
    said = {
        **DENSE,
        "framework": "torchtitan (2025) + torch.compile",
        "zero_stage_or_fsdp": "FSDP2",
        "seq_len": 8192,
    }
    row, changed = (row_of(tmp_path, said, **each) for each in (cells, {**cells, **other}))
    assert ({"gpu", "fp8_recipe"} & set(row["assumed"].split()) != set()) == is_open
    usual, otherwise = (comparison.simulated_s for comparison in compare([row, changed]))
    assert ratios_of(row) == pytest.approx([np.log(otherwise / usual)] if is_open else [], rel=1e-6)
    assert otherwise >= usual


def test_averages_of_production_runs_may_hold_stops(tmp_path: Path) -> None:
    rows = [row_of(tmp_path, DENSE, tier="A", metric_kind=kind) for kind in ("iteration time", "production")]
    steady, average = compare(rows)
    plain, stopped = unsure_log_ratios([steady, average])
    assert stopped == pytest.approx(
        [*plain, np.log(30.84 / 26.4)], abs=0.11
    )  # Llama 3.1 405B; OLMo 3: 1 / 0.77
    assert stopped[-1] > 0.0


def test_where_all_memory_is_taken_everything_may_be_computed_again(tmp_path: Path) -> None:
    (known,) = compare([row_of(tmp_path, DENSE, recompute="", seq_len=2048)])
    pressed = replace(known, simulated_memory_bytes=known.capacity_bytes)
    assert not pressed.is_too_large
    full = between(tmp_path, recompute=("none", "full"), seq_len=(2048, 2048))
    assert max(open_log_ratios([pressed])[0]) == pytest.approx(full)


def test_intervals_are_wider_where_a_row_does_not_say(tmp_path: Path) -> None:
    said = {**EXPERTS, "id": "said", "notes": "DeepEP; EP overlap on"}
    entries = entries_of(read_measured(written(tmp_path, {**EXPERTS, "notes": ""}, said)))
    silent, told = [entry for entry in entries if isinstance(entry, Modelled)]
    assert silent.comparison.simulated_s == told.comparison.simulated_s
    assert silent.interval.high_s > told.interval.high_s
    assert silent.interval.low_s == pytest.approx(told.interval.low_s)  # neither choice is faster


@pytest.mark.parametrize(
    ("cells", "is_judged"),
    [
        ({"zero_stage_or_fsdp": "HSDP"}, False),
        ({"zero_stage_or_fsdp": "HSDP (shard 8)"}, True),
        ({"zero_stage_or_fsdp": "FSDP", "tp": "", "n_gpus": 16}, False),
        ({"zero_stage_or_fsdp": "FSDP", "n_gpus": 16}, True),
        ({"zero_stage_or_fsdp": "FSDP", "tp": "", "n_gpus": 8}, True),
        ({"zero_stage_or_fsdp": "FSDP", "tp": "", "n_gpus": 16, "metric_kind": "out of memory"}, True),
    ],
)
def test_a_split_of_weights_that_is_not_told_is_not_called_too_large(
    tmp_path: Path, cells: Mapping[str, object], *, is_judged: bool
) -> None:
    # 70.6e9 weights with 16 bytes each are 1,130 GB: more than 8 or 16 GPUs of 80 GB have.
    llama = {"id": "l", "model": "llama-3.1-70b", "gpu": "H100-80GB", "seq_len": 4096, "framework": "PyTorch"}
    run = {
        "n_gpus": 64,
        "tp": 1,
        "global_batch": 64,
        "micro_batch": 1,
        "recompute": "full",
        "step_time_s": 60,
    }
    (comparison,) = with_room(compare([row_of(tmp_path, {**llama, **run, **cells})]))
    assert comparison.is_too_large
    assert comparison.has_memory_verdict is is_judged
    assert ("memory is not judged" in comparison.row["remarks"]) is not is_judged


@pytest.mark.parametrize(
    ("recompute", "is_judged"), [("partial", False), ("partial (mlp)", True), ("none", True)]
)
@pytest.mark.parametrize("n_gpus", [8, 64])
def test_a_part_that_is_not_told_is_not_judged_as_none(
    tmp_path: Path, recompute: str, n_gpus: int, *, is_judged: bool
) -> None:
    cells = {"n_gpus": n_gpus, "recompute": recompute}
    (known,) = with_room(compare([row_of(tmp_path, DENSE, **cells)]))
    assert known.has_memory_verdict is is_judged


def test_some_layers_are_computed_again_only_where_a_framework_can(tmp_path: Path) -> None:
    def ways(framework: str) -> set[str]:
        row = row_of(tmp_path, DENSE, framework=framework, recompute="", micro_batch="")
        return {f"{design['recompute']} {design['recompute_num_layers']}" for design in untold_designs(row)}

    assert ways("NeMo AutoModel 26.02") == {"none ", "full "}
    assert {"none ", "selective ", "full ", "full 16"} <= ways("Megatron-LM 2024")


@pytest.mark.parametrize(
    ("framework", "notes", "is_spread"),
    [
        ("NeMo AutoModel 26.02", "", True),
        ("torchtitan", "DeepEP", True),
        ("torchtitan", "", False),
    ],
)
def test_what_sends_tokens_to_other_ranks_has_some(
    tmp_path: Path, framework: str, notes: str, *, is_spread: bool
) -> None:
    cells = {**EXPERTS, "framework": framework, "notes": notes, "ep": "", "zero_stage_or_fsdp": "FSDP"}
    (row,) = read_measured(written(tmp_path, cells))
    if is_spread:
        assert isinstance(row, Unmodelled)
        assert {int(each["expert_parallel"]) for each in row.possible or ()} >= {2, 8}
        assert all(int(each["expert_parallel"]) > 1 for each in row.possible or ())
    else:
        assert not isinstance(row, Unmodelled)
        assert row["expert_parallel"] == "1"
