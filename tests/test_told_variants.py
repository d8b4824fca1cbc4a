"""Are the comparisons of rules and settings that pages quote of `benchmarks.rule_variants` those of today?"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rule_variants import sheet
from planner.measured.runs import read_rows
from tests.test_told_figures import words_of

DOCS = Path(__file__).parents[1] / "docs"
EXPERTS = {
    "mbr-0050+2": "Qwen3-30B-A3B, 16 H100, fp8, e = 16 (mbr-0050)",
    "mbr-0191": "the same, e = 8, two stages (mbr-0191), whose host launches for longer",
    "card-0048": "the same, e = 16, bf16, nothing hidden (card-0048)",
    "card-0024": "the same, e = 16, bf16, exchange hidden, attention computed again (card-0024)",
    "nemo-0087": "Mixtral 8x7B, 64 B200, fp8, an expert a rank (nemo-0087)",
}
"""Rows as the page of experts names them."""

Cells = dict[str, list[float]]


@pytest.fixture(scope="module")
def variants() -> Cells:
    """Mean, lowest and highest error as shipped and in each variant, in per cent, as the program prints them."""
    lines = sheet([row for row in read_rows() if not row["left_out_because"]]).lines
    return {line[0]: [float(cell.rstrip("%")) for cell in line[2:]] for line in lines}


def test_nemo_of_2022(variants: Cells) -> None:
    words = words_of(DOCS / "validation.md")
    shipped, _, _, fused, _, _ = variants["NeMo 23.08, fused attention"]
    assert f"mean error is {fused:.0f} % with `flash` and {shipped:.1f} % with `unfused`" in words
    _, lowest, highest, *_ = variants["the same, full recomputation"]
    assert f"{-highest:.0f} to {-lowest:.0f} % too fast with any number of replicas" in words
    selective = variants["NeMo 23.08, GPT-3 175B, layout of 2022, selective recomputation"]
    assert f"the five sizes come out {-selective[5]:.0f} to {-selective[4]:.0f} % too fast" in words
    full = variants["the same, full recomputation"]
    assert f"with full recomputation {-full[5]:.1f} to {-full[4]:.1f} % too fast" in words


def test_gathers_in_16_bits(variants: Cells) -> None:
    words = words_of(DOCS / "model" / "kernels.md")
    found = [variants[f"fp8, tensor parallelism {ranks}, gathers in 16 bits"] for ranks in (2, 4, 8)]
    for mean, tail in ((0, "in the mean"), (3, "(`python -m benchmarks.rule_variants`)")):
        two, four, eight = (cells[mean] for cells in found)
        assert f"by {two:+.1f}, {four:+.1f} and {eight:+.1f} % {tail}" in words


def test_sums_of_input_gradients(variants: Cells) -> None:
    shipped, _, _, without, _, _ = variants["Korthikanti et al., sums of input gradients beside nothing"]
    told = f"are off by {shipped:+.1f} % in the mean with it and by {without:+.1f} % without"
    assert told in words_of(DOCS / "model" / "layers.md")


@pytest.mark.parametrize(("row_id", "told"), EXPERTS.items())
def test_experts_in_one_kernel(variants: Cells, row_id: str, told: str) -> None:
    streams, _, _, one_kernel, _, _ = variants[f"{row_id}, experts in one kernel"]
    assert f"| {told} | {one_kernel:+.1f} % | {streams:+.1f} % |" in words_of(DOCS / "model" / "experts.md")
