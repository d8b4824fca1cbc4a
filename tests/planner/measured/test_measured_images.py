"""Are measured rows with images read with the encoder of the catalogue's model, and which are refused or read as text alone?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.cells import vision_notes
from planner.measured.fitting_choices import untold_designs
from planner.measured.reach import reach_of_row
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import DECIDING, compare, is_untold, job_of, plan_of, remarks_of
from planner.measured.workload.images import AGAIN, recomputed_alike
from simulator import catalog
from simulator.domain.images import Images
from simulator.domain.plan import Recompute
from tests.planner.measured_rows import RUN, modelled_row, network_of, simulated_row, the_row, written

TEXT: Mapping[str, object] = {
    **RUN,
    "model": "Qwen3-VL-8B",
    "framework": "Megatron-Bridge",
    "tp": 2,
    "pp": 1,
    "micro_batch": 1,
    "recompute": "full",
}
RUN_OF_IMAGES: Mapping[str, object] = {**TEXT, "images_per_sequence": 2.5, "tokens_per_image": 256}


def images_of(folder: Path, **cells: object) -> Images:
    images = job_of(simulated_row(folder, {**RUN_OF_IMAGES, **cells})).workload.images
    assert images is not None
    return images


def reason_of(folder: Path, **cells: object) -> str:
    row = the_row(folder, {**RUN_OF_IMAGES, **cells})
    assert isinstance(row, Unmodelled)
    return row.reason


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl-8b"),
        ("Qwen2.5-VL 7B", "qwen2.5-vl-7b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("Llama4-Scout-17B-16E", "llama-4-scout"),
        ("Llama 4 Maverick", "llama-4-maverick"),
        ("Qwen3.5-35B-A3B", "qwen3.5-35b-a3b"),
        ("Kimi K2.5", "kimi-k2.5"),
        ("Mistral-Small-3.1-24B", "mistral-small-3.1-24b"),
    ],
)
def test_models_of_the_catalogue_have_their_encoder(tmp_path: Path, model: str, name: str) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "model": model, "tp": 1, "n_gpus": 64, "ep": 1})
    known = catalog.model(name, has_vision=True)
    assert network_of(row).vision == known.vision is not None
    assert network_of(row).num_parameters == pytest.approx(
        known.num_parameters, rel=1e-3
    )  # padded vocabulary
    assert reach_of_row(row).has_images


def test_images_are_those_of_the_columns(tmp_path: Path) -> None:
    images = images_of(tmp_path)
    assert (images.per_sequence, images.tokens_per_image, images.imbalance) == (2.5, 256, 1.0)
    units = images_of(tmp_path, images_per_sequence="~3 images", tokens_per_image="1,024 tokens")
    assert (units.per_sequence, units.tokens_per_image) == (3.0, 1024)


@pytest.mark.parametrize("model", ["qwen3-vl-8b", "llama-3.1-8b"])
@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"images_per_sequence": "", "tokens_per_image": "n/a"},
        {"images_per_sequence": 0, "tokens_per_image": 256},
        {"images_per_sequence": "none", "tokens_per_image": 0},
    ],
)
def test_rows_without_images_are_their_language_model(
    tmp_path: Path, model: str, cells: Mapping[str, object]
) -> None:
    row = simulated_row(tmp_path, {**TEXT, "model": model, **cells})
    assert row == simulated_row(tmp_path, {**TEXT, "model": model})
    assert network_of(row).vision is None
    assert not reach_of_row(row).has_images


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (
            {"tokens_per_image": ""},
            "images_per_sequence = 2.5: images need tokens_per_image, too; give both, or neither",
        ),
        (
            {"images_per_sequence": ""},
            "tokens_per_image = 256: images need images_per_sequence, too; give both, or neither",
        ),
        ({"tokens_per_image": 0}, "images_per_sequence = 2.5: images need tokens_per_image, too"),
        (
            {"images_per_sequence": 17},
            "tokens_per_image (256), and this times images_per_sequence (17), must not exceed seq_len (4096), which counts",
        ),
        ({"images_per_sequence": 0.5, "tokens_per_image": 5000}, "must not exceed seq_len (4096)"),
        ({"images_per_sequence": -1}, "images_per_sequence = '-1': must be at least 0, or empty"),
        ({"images_per_sequence": "some"}, "images_per_sequence = 'some': must be a number, or empty"),
        ({"tokens_per_image": -3}, "tokens_per_image = '-3': must be at least 0, or empty"),
        ({"tokens_per_image": 25.5}, "tokens_per_image = '25.5': must be a whole number, or empty"),
        ({"tokens_per_image": "few"}, "tokens_per_image = 'few': must be a number, or empty"),
        (
            {"model": "llama-3.1-8b"},
            "vision encoder, which is known only of models of the catalogue, and Llama 3.1 8B of the catalogue has none",
        ),
        (
            {"model": "LLaVA-1.5 7B", "layers": 32, "hidden": 4096},
            "and this is none of them (`capplan catalog models`)",
        ),
        ({"model": "", "layers": 32, "hidden": 4096}, "model not named: images need a vision encoder"),
        ({"model": "Qwen3-VL-8B", "layers": 32, "hidden": 2048}, "and this is none of them"),
    ],
)
def test_rows_that_cannot_have_these_images_say_why(
    tmp_path: Path, cells: Mapping[str, object], told: str
) -> None:
    assert told in reason_of(tmp_path, **cells)


def test_what_is_not_simulated_beside_images_is_told(tmp_path: Path) -> None:
    row = modelled_row(tmp_path, {**RUN_OF_IMAGES, "notes": "offloads activations of 3 layers"})
    assert "excludes images: activations of vision encoders are not offloaded" in reason_against(row)


def test_decimal_commas_are_read_as_in_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    cells = {**RUN_OF_IMAGES, "images_per_sequence": "2,5"}
    path.write_text(f"{';'.join(cells)}\n{';'.join(map(str, cells.values()))}\n", encoding="utf-8")
    (row,) = read_measured(path)
    assert not isinstance(row, Unmodelled)
    assert row["images_per_sequence"] == "2.5"


@pytest.mark.parametrize(
    ("notes", "is_trained"),
    [
        ("frozen vision", False),
        ("freeze_vision_model", False),
        ("freeze_vision_model=True, freeze_language_model=False", False),
        ("--freeze-ViT", False),
        ("vision frozen", False),
        ("ViT is kept frozen", False),
        ("vision encoder and projector frozen", False),
        ("LM + ViT frozen", False),
        ("frozen LLM and vision tower", False),
        ("vision encoder not trained", False),
        ("trains_encoder=false", False),
        ("freeze_vision_model=False", True),
        ("freeze_vision_model: no", True),
        ("no frozen vision", True),
        ("nothing frozen", True),
        ("vision encoder trained", True),
        ("", None),
        ("freeze_vision_projection=True", None),
        ("vision projector frozen", None),
        ("frozen LM", None),
        ("freezing vision is 5 % faster", None),
    ],
)
def test_notes_say_what_is_trained_of_the_encoder(
    tmp_path: Path, notes: str, is_trained: bool | None
) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "notes": notes})
    assert is_untold(row, "images_trains_encoder") == (is_trained is None)
    images = job_of(row).workload.images
    assert images is not None
    assert images.trains_encoder == (is_trained is not False)


@pytest.mark.parametrize(
    ("cells", "is_trained"),
    [
        ({"freeze_vision_model": "yes"}, False),
        ({"freeze_vision_model": "True", "notes": "nothing frozen"}, False),
        ({"freeze_vision_model": "frozen"}, False),
        ({"freeze_vision_model": "no", "notes": "ViT frozen"}, True),
        ({"freeze_vision_model": "-", "notes": "ViT frozen"}, False),
        ({"framework": "LLaMA-Factory", "tp": 1}, False),
        ({"framework": "LLaMA-Factory", "tp": 1, "notes": "freeze_vision_tower: false"}, True),
    ],
)
def test_a_column_comes_before_notes_and_notes_before_habits(
    tmp_path: Path, cells: Mapping[str, object], is_trained: bool
) -> None:
    assert images_of(tmp_path, **cells).trains_encoder == is_trained


def test_words_that_are_not_understood_cost_a_row_only_without_a_time(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "freeze_vision_model": "partly"})
    assert "freeze_vision_model = 'partly': is not understood" in remarks_of(row)[0]
    told = reason_of(tmp_path, freeze_vision_model="partly", step_time_s="")
    assert "is neither yes nor no" in told


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ("frozen LM", "frozen LM: the language model is simulated as trained"),
        ("ViT and language model frozen", "the language model is simulated as trained"),
        ("freeze_vision_projection", "projectors are simulated as trained"),
    ],
)
def test_other_frozen_parts_are_remarked(tmp_path: Path, notes: str, told: str) -> None:
    remarks = remarks_of(simulated_row(tmp_path, {**RUN_OF_IMAGES, "notes": notes}))
    assert any(told in remark for remark in remarks)


@pytest.mark.parametrize(
    ("cells", "again"),
    [
        ({}, Recompute.FULL),
        ({"recompute": "none"}, Recompute.NONE),
        ({"recompute": "selective"}, Recompute.SELECTIVE),
        ({"recompute": "mlp"}, Recompute.SELECTIVE),
        ({"recompute": "full block 5 layers"}, Recompute.NONE),
        ({"recompute": "full block 20 layers"}, Recompute.FULL),
        ({"recompute": "full uniform 2 layers"}, Recompute.FULL),
        ({"model": "Qwen2.5-VL-7B"}, Recompute.NONE),
        ({"framework": "torchtitan"}, Recompute.FULL),
        ({"framework": "TRL", "tp": 1}, Recompute.FULL),
        ({"framework": "Megatron-LM"}, Recompute.NONE),
        ({"framework": ""}, Recompute.NONE),
    ],
)
def test_an_encoder_computes_again_what_its_framework_lets_it(
    tmp_path: Path, cells: Mapping[str, object], again: Recompute
) -> None:
    assert images_of(tmp_path, **cells).encoder_recompute is again
    assert is_untold(simulated_row(tmp_path, {**RUN_OF_IMAGES, **cells}), AGAIN)


@pytest.mark.parametrize(
    ("cells", "again"),
    [
        ({"notes": "--recompute-vision"}, Recompute.FULL),
        ({"notes": "--recompute-vision", "recompute": "selective"}, Recompute.SELECTIVE),
        ({"notes": "--recompute-vision", "recompute": "none"}, Recompute.FULL),
        ({"notes": "vision recomputed", "recompute": "none"}, Recompute.FULL),
        ({"notes": "ViT checkpointing"}, Recompute.FULL),
        ({"notes": "vision encoder is recomputed"}, Recompute.FULL),
        ({"recompute": "full, recompute_vision=True"}, Recompute.FULL),
        ({"notes": "pretrain_vlm.py"}, Recompute.FULL),
        ({"notes": "no recompute of the vision encoder", "framework": "Megatron-Bridge"}, Recompute.NONE),
        ({"notes": "recompute_vision=False", "framework": "Megatron-Bridge"}, Recompute.NONE),
        ({"notes": "recompute_vision_projection"}, Recompute.NONE),
    ],
)
def test_notes_say_what_an_encoder_computes_again(
    tmp_path: Path, cells: Mapping[str, object], again: Recompute
) -> None:
    row = {"framework": "Megatron-LM", **cells}
    assert images_of(tmp_path, **row).encoder_recompute is again
    kind = str(row.get("recompute", "full")).partition(",")[0]
    assert plan_of(simulated_row(tmp_path, {**RUN_OF_IMAGES, **row})).recompute.value == kind


def test_an_encoder_follows_what_is_chosen_for_the_language_model(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "recompute": ""})
    assert {design[AGAIN] for design in untold_designs(row)} == {"none", "selective", "full"}
    assert all(design[AGAIN] == recomputed_alike(design, 27) for design in untold_designs(row))
    alone = simulated_row(tmp_path, {**RUN_OF_IMAGES, "recompute": "", "framework": "Megatron-LM"})
    assert {design[AGAIN] for design in untold_designs(alone)} == {"none"}


def test_adapters_leave_the_encoder_as_it_is(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "metric_kind": "LoRA"})
    workload = job_of(row).workload
    assert (workload.trained_vision, workload.images) == (
        "nothing",
        Images(tokens_per_image=256, per_sequence=2.5),
    )


def test_muon_is_not_simulated_beside_images(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**RUN_OF_IMAGES, "optimizer": "Muon"})
    assert job_of(row).workload.muon is None
    (remark,) = remarks_of(row)
    assert "Muon: not simulated with images: the optimizer is simulated as Adam" in remark


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("one image a sample", "image"),
        ("frozen vision", "vision"),
        ("256x256 pixels", "pixels"),
        ("multimodal data", "multimodal"),
        ("mock data without images", ""),
        ("text only, no images", ""),
        ("container image nvcr.io/nvidia/nemo", ""),
        ("image: nvcr.io/nvidia/nemo:25.09", ""),
        ("supervision, division", ""),
    ],
)
def test_words_for_images_are_remarked_where_columns_say_nothing(
    tmp_path: Path, notes: str, said: str
) -> None:
    assert vision_notes.words_for_images(notes) == said
    remarks = remarks_of(simulated_row(tmp_path, {**TEXT, "notes": notes}))
    told = f"{said}: the language model is simulated alone; give images_per_sequence and tokens_per_image"
    assert [told in remark for remark in remarks] == ([True] if said else [])
    for other in ({"images_per_sequence": 0}, {"model": "llama-3.1-8b"}):
        assert not remarks_of(simulated_row(tmp_path, {**TEXT, **other, "notes": notes}))


def test_a_frozen_encoder_without_images_is_remarked(tmp_path: Path) -> None:
    (remark,) = remarks_of(simulated_row(tmp_path, {**TEXT, "freeze_vision_model": "yes"}))
    assert remark.startswith("freeze_vision_model = 'yes': the language model is simulated alone")
    assert not remarks_of(simulated_row(tmp_path, {**TEXT, "freeze_vision_model": "no"}))


def test_images_change_the_step_and_the_memory_of_their_row_alone(tmp_path: Path) -> None:
    cells = (TEXT, RUN_OF_IMAGES, {**RUN_OF_IMAGES, "freeze_vision_model": "yes"}, TEXT)
    rows = read_measured(written(tmp_path, *({**each, "id": place} for place, each in enumerate(cells))))
    text, trained, frozen, other = compare([row for row in rows if isinstance(row, Mapping)])
    assert (text.simulated_s, text.planned_memory_bytes) == (other.simulated_s, other.planned_memory_bytes)
    assert text.simulated_s < frozen.simulated_s < trained.simulated_s
    assert text.planned_memory_bytes < frozen.planned_memory_bytes < trained.planned_memory_bytes


def test_every_cell_of_images_decides(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, RUN_OF_IMAGES)
    cells = {name for name in row if name.startswith(("images_", "vision_"))}
    assert {"images_tokens_per_image", "images_trains_encoder", "vision_projector_sizes"} < cells < DECIDING
