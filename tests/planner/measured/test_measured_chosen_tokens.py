"""Are measured models that attend to chosen tokens read with their indexer, and what excludes it replaced?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.reach import reach_of_row
from planner.measured.runs import Row, compare, job_of, remarks_of
from planner.validation.report import model_family
from simulator import catalog
from tests.planner.measured_rows import RUN, compared, modelled_row, network_of

CELLS = {**RUN, "n_gpus": 512, "tp": 2, "pp": 8, "ep": 32, "global_batch": 512, "framework": "Megatron-LM"}


def read(folder: Path, model: str, **cells: object) -> Row:
    return modelled_row(folder, {**CELLS, "model": model, **cells})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("DeepSeek-V3.2-Exp", "deepseek-v3.2"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("DSv3.2", "deepseek-v3.2"),
        ("GLM-5", "glm-5"),
        ("GLM 5.1", "glm-5"),
        ("zai-org/GLM-5.2-FP8", "glm-5.2"),
    ],
)
def test_models_of_the_catalogue_have_their_indexer(tmp_path: Path, model: str, name: str) -> None:
    row, known = read(tmp_path, model), catalog.model(name)
    assert network_of(row).latent_attention == known.latent_attention
    assert network_of(row).experts == known.experts
    assert not remarks_of(row)
    assert reach_of_row(row).has_indexer


def test_a_model_without_an_indexer_has_none(tmp_path: Path) -> None:
    row = read(tmp_path, "DeepSeek-V3")
    assert network_of(row).indexer is None
    assert not reach_of_row(row).has_indexer


def test_the_indexer_is_simulated(tmp_path: Path) -> None:
    trained, other = (compare([read(tmp_path, model)])[0] for model in ("GLM-5", "GLM-5.2"))
    # the same layers, of which all have an indexer, or 21 of 78
    assert trained.simulated_s > 1.03 * other.simulated_s


def test_a_cut_model_has_no_more_leading_layers_than_layers(tmp_path: Path) -> None:
    indexer = network_of(read(tmp_path, "GLM-5.2 (2 layers)", pp=1, dense_layers=1)).indexer
    assert indexer
    assert (indexer.num_leading_layers, indexer.num_among(2)) == (2, 2)


def test_models_of_other_sizes_attend_to_all_tokens_and_say_so(tmp_path: Path) -> None:
    sizes = {"layers": 20, "hidden": 2048, "heads": 16, "experts": 64, "topk": 8, "moe_ffn_hidden": 1024}
    row = read(tmp_path, "GLM-5 small", **sizes)
    assert network_of(row).indexer is None
    assert "an indexer chooses: its sizes are known only of the catalogue's models" in row["remarks"]


@pytest.mark.parametrize(
    ("cells", "field", "expected", "remark"),
    [
        ({"cp": 2}, "context_exchange", "all_gather", ""),
        (
            {"cp": 2, "cp_comm_type": "p2p"},
            "context_exchange",
            "all_gather",
            "cp_comm_type = 'p2p': ranks gather all",
        ),
        ({"cp": 2, "cp_comm_type": "all_gather"}, "context_exchange", "all_gather", ""),
        (
            {"attention": "unfused"},
            "attention",
            "flash",
            "attention = 'unfused': attention to chosen tokens is simulated",
        ),
        ({"attention": "flash-2"}, "attention", "flash", ""),
        (
            {"window": 4096},
            "window_tokens",
            "",
            "window = '4096': left out: attention sees the tokens that an indexer",
        ),
    ],
)
def test_what_chosen_tokens_exclude_is_replaced(
    tmp_path: Path, cells: dict[str, object], field: str, expected: str, remark: str
) -> None:
    row = read(tmp_path, "GLM-5", **cells)
    assert row[field] == expected
    assert remark in row["remarks"]
    assert bool(remark) == bool(row["remarks"])
    assert network_of(row).indexer == catalog.model("glm-5").indexer


@pytest.mark.parametrize(("recompute", "is_remarked"), [("selective", True), ("full", False)])
def test_the_core_is_what_is_computed_again(tmp_path: Path, recompute: str, *, is_remarked: bool) -> None:
    row = read(tmp_path, "GLM-5", framework="torchtitan", recompute=recompute)  # saves every other product
    assert job_of(row).workload.selective_recompute == "attention"
    assert ("with its core computed again" in row["remarks"]) is is_remarked


def test_errors_have_lines_of_their_own() -> None:
    found = compared(1.0, 1.0, indexer_num_heads="64", num_experts="8")
    assert model_family(found) == "chosen tokens, mixture of experts"


@pytest.mark.parametrize(
    ("notes", "has_indexer", "is_trained"),
    [
        ("", True, True),
        ("sparse attention with its indexer, indexer loss on", True, True),
        ("frozen indexer", True, False),
        ("no indexer loss", True, False),
        ("the indexer is frozen; TP overlap", True, False),
        ("trains_indexer=false", True, False),
        ("no DSA", False, True),
        ("without sparse attention", False, True),
        ("full attention instead of sparse", False, True),
        ("dense warm-up", False, True),
    ],
)
def test_notes_say_what_an_indexer_does(
    tmp_path: Path, notes: str, *, has_indexer: bool, is_trained: bool
) -> None:
    workload = job_of(read(tmp_path, "GLM-5", notes=notes)).workload
    assert (workload.model.indexer is not None) is has_indexer
    assert workload.trains_indexer is is_trained
