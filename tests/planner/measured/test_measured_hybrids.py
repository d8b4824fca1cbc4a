"""Are measured hybrids of the catalogue read with all of their blocks, and refused where these do not come out whole?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.rows import Unmodelled
from planner.measured.runs import Row, job_of, remarks_of
from planner.validation.report import model_family
from simulator import catalog
from tests.planner.measured_rows import RUN, compared, modelled_row, network_of, the_row

# A vocabulary that no framework pads, so that shapes can be compared whole.
FRAMEWORK = {"framework": "torchtitan", "tp": 1, "pp": 1}


def read(folder: Path, model: str, **cells: object) -> Row:
    return modelled_row(folder, {**RUN, **FRAMEWORK, "model": model, **cells})


@pytest.mark.parametrize(
    "name", ["nemotron-h-8b", "nemotron-3-nano-30b-a3b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b"]
)
def test_a_hybrid_of_the_catalogue_has_the_blocks_that_it_has_there(tmp_path: Path, name: str) -> None:
    known = catalog.model(name)
    found = network_of(read(tmp_path, name))
    assert found.model_copy(update={"name": known.name, "source": known.source}) == known


def test_nothing_is_hidden_behind_shared_experts_where_the_others_read_a_latent(tmp_path: Path) -> None:
    notes = {"notes": "shared expert overlap", "framework": "Megatron-LM", "ep": 8}
    for model, is_hidden in (("nemotron-3-super-120b-a12b", False), ("qwen3-next-80b-a3b", True)):
        assert job_of(read(tmp_path, model, **notes)).workload.overlaps_shared_experts is is_hidden


def test_layers_that_count_every_block_are_those_of_the_model(tmp_path: Path) -> None:
    # 24 of Mamba-2, 24 feed-forward and 4 of attention (arXiv 2504.03624, table 1)
    row = read(tmp_path, "Nemotron-H-8B", layers=52)
    assert network_of(row).num_layers == 24
    assert "layers = '52': counts the blocks of every kind, 24 of them feed-forward" in remarks_of(row)
    assert not remarks_of(read(tmp_path, "Nemotron-H-8B", layers=24))


def test_a_cut_hybrid_keeps_the_share_of_its_blocks(tmp_path: Path) -> None:
    found = network_of(read(tmp_path, "Qwen3-Next (8 layers)"))
    assert found.linear_attention
    assert (found.num_layers, found.linear_attention.num_blocks) == (8, 6)
    assert found.linear_attention.num_attention_blocks == 2
    assert found.linear_share == catalog.model("qwen3-next-80b-a3b").linear_share


@pytest.mark.parametrize(
    ("model", "layers", "step"),
    [("Qwen3-Next-80B-A3B", 6, 4), ("Nemotron-H-8B", 10, 6), ("Kimi-Linear", 9, 27)],
)
def test_a_hybrid_whose_blocks_do_not_come_out_whole_is_left_out(
    tmp_path: Path, model: str, layers: int, step: int
) -> None:
    row = the_row(tmp_path, {**RUN, **FRAMEWORK, "model": model, "layers": layers})
    assert isinstance(row, Unmodelled)
    assert f"can only be cut to multiples of {step} layers" in row.reason


def test_a_hybrid_of_other_sizes_is_left_out(tmp_path: Path) -> None:
    row = the_row(tmp_path, {**RUN, "model": "Nemotron-H-8B", "hidden": 8192, "layers": 54})
    assert isinstance(row, Unmodelled)
    assert row.reason.startswith("model Nemotron-H-8B: layers with a state are known only of the catalogue's")


def test_errors_of_hybrids_are_told_apart_from_those_of_transformers() -> None:
    assert model_family(compared(1.0, 1.0)) == "dense"
    assert model_family(compared(1.0, 1.0, num_experts="8")) == "mixture of experts"
    assert model_family(compared(1.0, 1.0, linear_kind="mamba-2")) == "hybrid, dense"
    experts = compared(1.0, 1.0, linear_kind="kimi-delta", num_experts="8")
    assert model_family(experts) == "hybrid, mixture of experts"
