"""Are measured runs of DeepSeek-V4 read with compressed attention and its streams, and which are refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.reach import reach_of_row
from planner.measured.rows import Unmodelled
from planner.measured.runs import Row, compare, job_of, remarks_of
from simulator import catalog
from tests.planner.measured_rows import RUN, modelled_row, network_of, the_row

CELLS = {**RUN, "n_gpus": 512, "tp": 1, "pp": 8, "ep": 32, "global_batch": 512, "framework": "Megatron-LM"}


def read(folder: Path, model: str, **cells: object) -> Row:
    return modelled_row(folder, {**CELLS, "model": model, **cells})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("DeepSeek-V4-Flash", "deepseek-v4-flash"),
        ("deepseek-ai/DeepSeek-V4-Flash-Base", "deepseek-v4-flash"),
        ("DSv4 Flash", "deepseek-v4-flash"),
        ("DeepSeek-V4 284B", "deepseek-v4-flash"),
        ("deepseek4-284b", "deepseek-v4-flash"),
        ("DeepSeek-V4-Pro", "deepseek-v4-pro"),
        ("DeepSeek V4 1.6T", "deepseek-v4-pro"),
    ],
)
def test_models_of_the_catalogue_have_their_attention_and_streams(
    tmp_path: Path, model: str, name: str
) -> None:
    row, known = read(tmp_path, model), catalog.model(name)
    found = network_of(row)
    assert found.compressed_attention == known.compressed_attention
    assert found.hyper_connections == known.hyper_connections
    assert (found.experts, found.num_kv_heads, found.head_dim) == (known.experts, 1, 512)
    reach = reach_of_row(row)
    assert (reach.is_compressed, reach.has_streams) == (True, True)


def test_a_cut_model_has_kinds_of_layers_in_proportion(tmp_path: Path) -> None:
    found = network_of(read(tmp_path, "DeepSeek-V4-Flash", layers=16))
    assert found.num_layers == 16
    assert found.compressed_attention is not None
    assert found.compressed_attention.num_chosen_layers == 8  # of 7.8
    assert found.compressed_attention.num_heavy_layers == 7  # of 7.4


def test_an_indexer_that_learns_takes_longer(tmp_path: Path) -> None:
    (frozen,) = compare([read(tmp_path, "DeepSeek-V4-Flash", notes="frozen indexer")])
    (trained,) = compare([read(tmp_path, "DeepSeek-V4-Flash")])
    assert trained.simulated_s > frozen.simulated_s > 0.0


@pytest.mark.parametrize("cells", [{"tp": 2}, {"cp": 2}])
def test_ranks_that_share_heads_or_sequences_are_refused(tmp_path: Path, cells: dict[str, object]) -> None:
    row = the_row(tmp_path, {**CELLS, "model": "DeepSeek-V4-Flash", **cells})
    assert isinstance(row, Unmodelled)
    assert "all heads and whole sequences on every rank" in row.reason


@pytest.mark.parametrize("model", ["DeepSeek V4", "DeepSeek-V4.1-Flash", "DSv4-mini"])
def test_other_models_of_the_family_stay_unknown(tmp_path: Path, model: str) -> None:
    row = the_row(tmp_path, {**CELLS, "model": model})
    assert isinstance(row, Unmodelled)
    assert "compressed attention is known only of the catalogue's models" in row.reason


def test_recomputed_streams_and_norms_are_read(tmp_path: Path) -> None:
    row = read(tmp_path, "DeepSeek-V4-Flash", recompute="selective: mla_up_proj, mhc, layernorm")
    workload = job_of(row).workload
    assert workload.modules_again == {"mla_up_proj", "mhc", "layernorm"}
    assert not remarks_of(row)


def test_separate_kernels_are_replaced(tmp_path: Path) -> None:
    row = read(tmp_path, "DeepSeek-V4-Flash", attention="eager")
    assert job_of(row).workload.attention == "flash"
