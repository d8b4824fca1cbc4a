"""Can one thing of a known model be changed, and does the job tell which model it then is?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.job.file import load_job, parse_job
from planner.job.named_model import told_changes
from simulator import catalog
from simulator.domain.model import ModelShape
from tests.planner.job_documents import CONFIG, DOCUMENT, WORKLOAD, changed, refusal


def of(model: object) -> dict[str, object]:
    return changed(workload={**WORKLOAD, "model": model})


def model_of(model: object, *overrides: str) -> ModelShape:
    return parse_job(of(model), overrides=overrides).workload.model


def figures(model: ModelShape) -> dict[str, object]:
    """Everything but what the model is called and where it comes from."""
    return model.model_dump(exclude={"name", "source"})


@pytest.mark.parametrize(
    ("known", "given", "overrides", "told"),
    [
        ("llama-3.1-8b", {"num_layers": 16}, ["num_layers=16"], "num_layers 16"),
        (
            "llama-3.1-8b",
            {"has_tied_embeddings": True},
            ["has_tied_embeddings=true"],
            "has_tied_embeddings true",
        ),
        (
            "deepseek-v3.2",
            {"latent_attention": {"indexer": None}},
            ["latent_attention.indexer=null"],
            "no latent_attention.indexer",
        ),
        (
            "deepseek-v3.2",
            {"experts": {"num_experts": 64}, "vocabulary_size": 64000},
            ["experts.num_experts=64", "vocabulary_size=64000"],
            "vocabulary_size 64000, experts.num_experts 64",
        ),
        ("mixtral-8x7b", {"experts": None}, ["experts=null"], "no experts"),
        ("deepseek-v3", {"num_mtp_layers": 1}, ["num_mtp_layers=1"], "num_mtp_layers 1"),
    ],
)
def test_a_file_and_the_command_line_change_the_same(
    known: str, given: dict[str, object], overrides: list[str], told: str
) -> None:
    model = model_of({"name": known, **given})
    assert model == model_of(known, *(f"workload.model.{override}" for override in overrides))
    assert model.name == f"{catalog.model(known).name}, changed: {told}"
    assert list(told_changes(model.source)) == [f"The model is {model.name}."]


def test_what_is_not_named_stays_as_it_is_known() -> None:
    known = catalog.model("deepseek-v3.2")
    fewer = model_of({"name": "deepseek-v3.2", "num_layers": 30, "experts": {"num_experts": 64}})
    assert known.experts
    experts = known.experts.model_copy(update={"num_experts": 64})
    assert figures(fewer) == figures(known.model_copy(update={"num_layers": 30, "experts": experts}))


def test_without_its_indexer_deepseek_v3_2_is_deepseek_v3() -> None:
    """The sparse model continues from the other one (arXiv 2512.02556, section 2): their shapes differ in nothing else."""
    full = model_of("deepseek-v3.2", "workload.model.latent_attention.indexer=null")
    assert figures(full) == figures(catalog.model("deepseek-v3"))


@pytest.mark.parametrize(
    "given", [{}, {"num_layers": 32}, {"num_layers": None}, {"experts": None}, {"num_mtp_layers": 0}]
)
def test_what_changes_nothing_leaves_the_model_its_name(given: dict[str, object]) -> None:
    model = model_of({"name": "llama-3.1-8b", **given})
    assert model == catalog.model("llama-3.1-8b")
    assert list(told_changes(model.source)) == []


def test_a_part_that_a_model_does_not_have_is_told_field_by_field() -> None:
    experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336}
    model = model_of({"name": "llama-3.1-8b", "experts": experts})
    assert model.source.endswith(
        "changed: experts.num_experts 8, experts.experts_per_token 2, experts.expert_ffn_hidden_size 14336"
    )


def test_a_name_has_room_for_some_changes_and_counts_the_others() -> None:
    fields = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_hidden_size")
    model = model_of("llama-3.1-8b", *(f"workload.model.{field}=64" for field in fields))
    assert model.name.endswith("and 2 more")
    assert len(model.name) <= 100
    assert all(f"{field} 64" in model.source for field in fields)


def test_fields_beside_a_config_change_it(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(CONFIG))
    file = tmp_path / "job.json"
    file.write_text(json.dumps(of({"config": "mine.json", "num_layers": 16})))
    model = load_job(file).workload.model
    assert (model.name, model.num_layers) == ("mine, changed: num_layers 16", 16)
    file.write_text(json.dumps(of({"config": "mine.json"})))
    assert load_job(file, ["workload.model.num_layers=16"]).workload.model == model
    named = load_job(file, ["workload.model.num_layers=16", "workload.model.name=small"]).workload.model
    assert named.name == "small"
    assert list(told_changes(named.source)) == ["The model is small, changed: num_layers 16."]


def test_a_job_with_a_changed_model_can_be_read_back() -> None:
    job = parse_job(of({"name": "deepseek-v3.2", "num_layers": 30, "latent_attention": {"indexer": None}}))
    assert parse_job(job.model_dump(mode="json")) == job


def kinds(model: ModelShape) -> tuple[int, ...]:
    """Layers, and how many of each kind there are."""
    linear, compressed = model.linear_attention, model.compressed_attention
    return (
        model.num_layers,
        *((linear.num_blocks, linear.num_attention_blocks) if linear else ()),
        *((compressed.num_chosen_layers, compressed.num_heavy_layers) if compressed else ()),
    )


QWEN, V4 = "qwen3-next-80b-a3b", "deepseek-v4-flash"
"""36 and 12 blocks in 48 layers; 21 and 20 of 43 layers, and two with a window alone."""


@pytest.mark.parametrize(
    ("known", "overrides", "expected"),
    [
        (QWEN, ["num_layers=24"], (24, 18, 6)),
        (QWEN, ["num_layers=96"], (96, 72, 24)),
        (QWEN, ["num_layers=24", "linear_attention.chunk_tokens=128"], (24, 18, 6)),
        (QWEN, ["num_layers=24", "linear_attention.num_blocks=20"], (24, 20, 6)),
        (
            QWEN,
            ["num_layers=30", "linear_attention.num_blocks=36", "linear_attention.num_attention_blocks=12"],
            (30, 36, 12),
        ),
        (QWEN, ["num_layers=30", "linear_attention=null"], (30,)),
        (QWEN, ["linear_attention.num_blocks=37"], (48, 37, 12)),
        ("nemotron-h-8b", ["num_layers=12"], (12, 12, 2)),
        (V4, ["num_layers=20"], (20, 10, 9)),
        (V4, ["num_layers=1"], (1, 0, 1)),
        (V4, ["num_layers=20", "compressed_attention.num_chosen_layers=1"], (20, 1, 9)),
        ("llama-3.1-8b", ["num_layers=7"], (7,)),
    ],
)
def test_kinds_of_layers_that_are_not_named_keep_their_share(
    known: str, overrides: list[str], expected: tuple[int, ...]
) -> None:
    paths = [f"workload.model.{override}" for override in overrides]
    assert kinds(model_of(known, *paths)) == expected
    written = parse_job(of(known)).model_dump(mode="json")
    assert kinds(parse_job(written, overrides=paths).workload.model) == expected


def test_the_numbers_that_keep_the_share_are_told_as_changes() -> None:
    model = model_of({"name": QWEN, "num_layers": 24})
    assert (
        model.name == "Qwen3-Next 80B-A3B, changed: num_layers 24, linear_attention.num_blocks 18 and 1 more"
    )
    assert parse_job(parse_job(of({"name": QWEN, "num_layers": 24})).model_dump()).workload.model == model


NOT_WHOLE = (
    "workload.model.num_layers = 30: must be a multiple of 4, so that num_blocks (36) and num_attention_blocks (12) of "
    "linear_attention keep their share of 48 layers; nearest: 28, 32; or give linear_attention its own, such as "
    "num_blocks 22 and num_attention_blocks 8"
)


@pytest.mark.parametrize(
    ("known", "num_layers", "told"),
    [
        (QWEN, 30, NOT_WHOLE),
        ("kimi-linear-48b-a3b", 20, "must be a multiple of 27, so that num_blocks (20) and "),
        (QWEN, "many", "num_layers = 'many': must be a whole number"),
        (QWEN, True, "num_layers = 'true': must be a whole number"),
        (QWEN, 24.5, "num_layers = 24.5: must be a whole number"),
        (QWEN, 10**12, "num_layers = 1000000000000: must be at most 10000"),
        (QWEN, 0, "num_layers = 0: must be greater than 0"),
    ],
)
def test_a_number_of_layers_in_which_blocks_are_not_whole_is_refused(
    known: str, num_layers: object, told: str
) -> None:
    message = refusal(of({"name": known, "num_layers": num_layers}))
    assert message.startswith("1 problem\n")
    assert told in message
    written = parse_job(of(known)).model_dump(mode="json")
    assert told.partition(" = ")[2] in refusal(written, f"workload.model.num_layers={json.dumps(num_layers)}")


def test_a_shape_that_is_written_out_is_not_filled_from_the_catalogue() -> None:
    fields = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_hidden_size")
    sizes = dict.fromkeys((*fields, "vocabulary_size"), 64)
    model = model_of({"name": "deepseek-v3.2", "is_gated": True, **sizes})
    assert (model.name, model.experts, model.source) == ("deepseek-v3.2", None, "user")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"name": "deepseek-v3.2", "num_layer": 61}, "workload.model.num_layer = 61: unknown field"),
        ({"name": "deepseek-v3.2", "num_layers": "many"}, "num_layers = 'many': must be a whole number"),
        ({"name": "deepseek-v3.2", "num_layers": 0}, "workload.model.num_layers = 0: must be greater than 0"),
        (
            {"name": "deepseek-v3.2", "num_layers": 2},
            "workload.model: num_dense_layers (3) must not exceed num_layers (2)",
        ),
        (
            {"name": "llama-3.1-8b", "num_heads": 60},
            "workload.model: num_kv_heads (8) must divide num_heads (60)",
        ),
        (
            {"name": "llama-3.1-8b", "latent_attention": {"indexer": None}},
            "workload.model.latent_attention.indexer = null: cannot be taken out: there is no latent_attention",
        ),
        (
            {"name": "deepseek-v3.2", "latent_attention": {"indxer": None}},
            "workload.model.latent_attention.indxer: unknown field; nearest: indexer",
        ),
        (
            {"name": "deepseek-v3.2", "experts": {"num_experts": 60}},
            "workload.model.experts: num_groups (8) must divide num_experts (60)",
        ),
        (
            {"name": "deepseek-v3.2", "experts": 60},
            "workload.model.experts = 60: must be a mapping of fields",
        ),
        ({"name": "deepsek-v3.2", "num_layers": 30}, "nearest: deepseek-v3.2"),
        ({"name": "mine", "num_layers": 30}, "a model of your own needs hidden_size, num_heads"),
        ({"name": 5, "num_layers": 30}, "name = 5: must be the name of a model; a model of your own needs"),
    ],
)
def test_a_change_that_cannot_be_made_is_one_error(model: object, expected: str) -> None:
    message = refusal(of(model))
    assert expected in message
    assert message.startswith("1 problem\n")


def test_an_empty_part_that_the_model_lacks_misses_its_fields() -> None:
    message = refusal(of({"name": "llama-3.1-8b", "experts": {}}))
    assert message.startswith("3 problems\n")
    assert "workload.model.experts.num_experts: is missing" in message


def test_an_override_changes_a_model_that_the_file_changes_already() -> None:
    model = model_of({"name": "llama-3.1-8b", "num_mtp_layers": 1}, "workload.model.num_layers=16")
    assert model.name == "Llama 3.1 8B, changed: num_layers 16, num_mtp_layers 1"
    assert parse_job(DOCUMENT, overrides=["workload.model.name=glm-5"]).workload.model == catalog.model(
        "glm-5"
    )


class TestSavedJobs:
    """Jobs as answers keep them: the shape is written out under the name that it then had."""

    def saved(self, model: object) -> dict[str, object]:
        return parse_job(of(model)).model_dump(mode="json")

    @pytest.mark.parametrize("model", ["llama-3.1-8b", {"name": "llama-3.1-8b", "num_layers": 30}])
    def test_an_override_is_told_in_the_name_as_for_the_model_itself(self, model: object) -> None:
        saved = self.saved(model)
        for overrides in (["num_layers=16"], ["num_layers=16", "vocabulary_size=64000"]):
            sets = [f"workload.model.{override}" for override in overrides]
            found = parse_job(saved, overrides=sets).workload.model
            assert found.name == model_of("llama-3.1-8b", *sets).name
            assert list(told_changes(found.source)) == [f"The model is {found.name}."]
            assert figures(found) == figures(model_of("llama-3.1-8b", *sets))

    def test_changes_of_other_fields_are_kept(self) -> None:
        saved = self.saved({"name": "deepseek-v3.2", "num_layers": 30, "latent_attention": {"indexer": None}})
        found = parse_job(saved, overrides=["workload.model.experts=null"]).workload.model
        assert found.name == (
            "DeepSeek-V3.2, changed: num_layers 30, no latent_attention.indexer, no experts"
        )

    @pytest.mark.parametrize(
        "override", ["workload.model.num_layers=32", "workload.tokens=2e12", "workload.model.name=mine"]
    )
    def test_what_changes_no_figure_of_the_model_changes_no_name(self, override: str) -> None:
        found = parse_job(self.saved("llama-3.1-8b"), overrides=[override]).workload.model
        assert found.name == ("mine" if "name" in override else "Llama 3.1 8B")

    def test_a_broken_value_is_told_as_it_is(self) -> None:
        message = refusal(self.saved("llama-3.1-8b"), "workload.model.num_layers=0")
        assert message == "1 problem\n  workload.model.num_layers = 0: must be greater than 0"
