"""Is a rule that several rows break told once, with the figures of each row below it?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.validation.rule_groups import rule_groups, shown_lines

BATCH = "data_parallel x micro_batch_size must divide global_batch_size"
HEADS = "tensor_parallel must divide num_heads"
WIDTH = "tensor_parallel must divide ffn_hidden_size"


def lines(reasons: Mapping[str, tuple[str, ...]], most_figures: int = 4) -> list[tuple[str, list[str]]]:
    return [(text, list(rows)) for text, rows in shown_lines(rule_groups(reasons), most_figures)]


def test_a_rule_with_different_figures_is_told_once() -> None:
    found = lines({
        f"{BATCH}: data_parallel = 16, micro_batch_size = 3": ("a", "b"),
        "number of heads not published": ("x",),
        f"{BATCH}: data_parallel = 24, micro_batch_size = 1; nearest data_parallel: 16, 32": ("c",),
    })  # fmt: skip
    assert found == [
        (BATCH, ["a", "b", "c"]),
        ("  data_parallel = 16, micro_batch_size = 3", ["a", "b"]),
        ("  data_parallel = 24, micro_batch_size = 1; nearest data_parallel: 16, 32", ["c"]),
        ("number of heads not published", ["x"]),
    ]


def test_a_rule_that_is_broken_in_one_way_keeps_its_whole_reason() -> None:
    reason = f"{BATCH}: data_parallel = 16, micro_batch_size = 3"
    assert lines({reason: ("a", "b")}) == [(reason, ["a", "b"])]


def test_rules_that_are_broken_together_share_their_figures() -> None:
    def reason(degree: int, near: str) -> str:
        heads = f"{HEADS}: tensor_parallel = {degree}, num_heads = 32; nearest tensor_parallel: {near}"
        return f"{heads}; {WIDTH}: tensor_parallel = {degree}, ffn_hidden_size = 14,336"

    found = lines({reason(24, "16, 32"): ("a",), reason(12, "8, 16"): ("b",)})
    assert found == [
        (f"{HEADS}; {WIDTH}", ["a", "b"]),
        (
            "  tensor_parallel = 24, num_heads = 32, ffn_hidden_size = 14,336; nearest tensor_parallel: 16, 32",
            ["a"],
        ),
        (
            "  tensor_parallel = 12, num_heads = 32, ffn_hidden_size = 14,336; nearest tensor_parallel: 8, 16",
            ["b"],
        ),
    ]


def test_cells_and_brackets_are_figures_too() -> None:
    unknown = "is not among the catalogue's accelerators; `capplan catalog accelerators` lists all"
    product = "tensor_parallel x data_parallel ({}) must equal num_gpus ({})"
    found = lines({
        f"gpu = RTX 4090: {unknown}": ("a",),
        product.format("24", "8"): ("b",),
        f"gpu = foo: {unknown}": ("c",),
        product.format("1,024", "16"): ("d",),
    })  # fmt: skip
    assert found == [
        (f"gpu: {unknown}", ["a", "c"]),
        ("  gpu = RTX 4090", ["a"]),
        ("  gpu = foo", ["c"]),
        ("tensor_parallel x data_parallel must equal num_gpus", ["b", "d"]),
        ("  24 and 8", ["b"]),
        ("  1,024 and 16", ["d"]),
    ]


def test_many_figures_share_a_line() -> None:
    reasons = {f"{BATCH}: micro_batch_size = {size}": (f"row {size}",) for size in (3, 5, 7, 9)}
    assert lines(reasons, most_figures=2)[3:] == [("  2 other sets of figures", ["row 7", "row 9"])]
    assert lines(reasons, most_figures=3)[4:] == [("  1 other set of figures", ["row 9"])]


def test_the_command_tells_a_rule_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "id,model,gpu,n_gpus,precision,tp,pp,dp,micro_batch,global_batch,seq_len,recompute,framework,step_time_s"
    rows = [
        f"m{size},llama-3.1-8b,h100-sxm5-80gb,16,bf16,1,1,16,{size},128,4096,selective,Megatron-LM,7"
        for size in (3, 5, 7, 9, 11, 13)
    ]
    file = tmp_path / "steps.csv"
    file.write_text("\n".join([head, *rows]))
    assert main(["validate", "--measured", str(file)]) == 0
    told = " ".join(capsys.readouterr().out.partition("Rows not modelled")[2].split())
    assert told.count(BATCH) == 1
    assert f"{BATCH} 6 m3, m5, m7, ..." in told
    assert "micro_batch_size = 9, global_batch_size = 128 1 m9" in told
    assert "2 other sets of figures 2 m11, m13" in told
