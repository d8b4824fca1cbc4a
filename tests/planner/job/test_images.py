"""Which encoder does a job with images mean, and what is said of jobs that have one half of it?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.job.file import load_job, parse_job
from planner.launch.answer import launch_plan
from planner.layout_figures import layout_figures
from simulator import catalog
from simulator.domain.job import Job
from simulator.errors import InputError
from tests.planner.job_documents import WORKLOAD, changed, refusal
from tests.simulator.builders import plan_of
from tests.simulator.catalog.test_vision_configs import CLIP, LLAMA
from tests.simulator.vision import TOWER
from tests.support import H100_RENTED, job_with

IMAGES = {"tokens_per_image": 256, "per_sequence": 2}


def of(model: object, images: object = IMAGES, *overrides: str) -> Job:
    workload = {**WORKLOAD, "model": model, **({"images": images} if images else {})}
    return parse_job(changed(workload=workload), overrides=overrides)


class TestCatalogue:
    def test_images_bring_the_encoder_of_a_model(self) -> None:
        job = of("qwen3-vl-8b")
        assert job.workload.model == catalog.model("qwen3-vl-8b", has_vision=True)
        assert job.workload.images is not None

    @pytest.mark.parametrize("model", ["qwen3-vl-8b", {"name": "qwen3-vl-8b"}])
    def test_without_images_the_language_model_is_trained(self, model: object) -> None:
        assert of(model, None).workload.model == catalog.model("qwen3-vl-8b")

    def test_images_on_the_command_line_bring_it_too(self) -> None:
        given = [f"workload.images.{name}={value}" for name, value in IMAGES.items()]
        assert of("qwen3-vl-8b", None, *given) == of("qwen3-vl-8b")

    def test_one_field_of_an_encoder_can_be_changed(self) -> None:
        override = "workload.model.vision.is_replicated=true"
        job = of("qwen3-vl-8b", IMAGES, override)
        assert (
            job.workload.model
            == of({"name": "qwen3-vl-8b", "vision": {"is_replicated": True}}).workload.model
        )
        assert job.workload.model.name.endswith("changed: vision.is_replicated true")

    def test_how_layers_are_cut_beside_it_is_no_change_of_the_model(self) -> None:
        job = of("qwen3-vl-8b", IMAGES, "workload.model.vision.counts_as_layers=4")
        assert job.workload.model.vision is not None
        assert job.workload.model.vision.counts_as_layers == 4
        assert job.workload.model.name == catalog.model("qwen3-vl-8b", has_vision=True).name

    def test_without_images_nothing_is_left_of_what_is_said_of_an_encoder(self) -> None:
        alone = of({"name": "qwen3-vl-8b", "vision": {"counts_as_layers": 2}}, None)
        assert alone == of("qwen3-vl-8b", None)

    def test_a_shape_that_is_written_out_is_called_that_of_text_without_images(self) -> None:
        shape = catalog.model("qwen3-vl-8b", has_vision=True).model_dump(mode="json", exclude_none=True)
        alone = of(shape, None).workload.model
        assert alone.vision is None
        assert alone.name == "Qwen3-VL 8B (text)"
        assert of(shape).workload.model == catalog.model("qwen3-vl-8b", has_vision=True)

    def test_any_model_can_get_an_encoder_of_its_own(self) -> None:
        job = of({"name": "llama-3.1-8b", "vision": TOWER.model_dump(mode="json")})
        assert job.workload.model.vision == TOWER


class TestConfigFile:
    def write(self, folder: Path, vision: object = CLIP) -> Path:
        config = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision}
        (folder / "config.json").write_text(json.dumps(config))
        path = folder / "job.yaml"
        workload = {**WORKLOAD, "model": {"config": "config.json"}, "images": IMAGES}
        path.write_text(json.dumps(changed(workload=workload)))
        return path

    def test_its_encoder_is_read_where_there_are_images(self, tmp_path: Path) -> None:
        path = self.write(tmp_path)
        assert load_job(path).workload.model.vision is not None
        assert load_job(path, ["workload.images=null"]).workload.model.vision is None

    def test_an_encoder_that_is_written_out_is_taken_instead_of_one_that_cannot_be_read(
        self, tmp_path: Path
    ) -> None:
        path = self.write(tmp_path, {"of another kind": True})
        overrides = [f"workload.model.vision={json.dumps(TOWER.model_dump(mode='json'))}"]
        assert load_job(path, overrides).workload.model.vision == TOWER

    def test_what_is_wrong_in_it_is_told_with_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            load_job(self.write(tmp_path, {**CLIP, "hidden_size": "wide"}))
        assert "vision_config.hidden_size" in str(caught.value)
        assert "must be a whole number" in str(caught.value)


class TestRefusals:
    @pytest.mark.parametrize(
        ("model", "images", "told"),
        [
            ("llama-3.1-8b", IMAGES, "images needs model.vision, which makes tokens of them"),
            ({"name": "qwen3-vl-8b", "vision": None}, IMAGES, "images needs model.vision"),
            ({"name": "qwen3-vl-8b", "vision": {"counts_as": 2}}, None, "model.vision.counts_as"),
            ({"name": "qwen3-vl-8b", "vision": 3}, None, "model.vision"),
            ("qwen3-vl-8b", {"tokens_per_image": 256}, "per_sequence"),
            ("qwen3-vl-8b", {**IMAGES, "per_sequence": -1}, "must be at least 1e-09"),
            ("qwen3-vl-8b", {**IMAGES, "per_sequence": 1e5}, "must not exceed sequence_length"),
            ("qwen3-vl-8b", {**IMAGES, "encoder_recompute": "some"}, "must be 'none', 'selective' or 'full'"),
            ("qwen3-vl-8b", 3, "images"),
        ],
    )
    def test_half_of_it_is_told_with_what_is_missing(self, model: object, images: object, told: str) -> None:
        workload = {**WORKLOAD, "model": model, **({"images": images} if images else {})}
        assert told in refusal(changed(workload=workload))

    def test_heads_of_an_encoder_are_told_where_ranks_cannot_share_them(self) -> None:
        job = job_with(H100_RENTED, workload={"model": "qwen3-vl-8b", "images": IMAGES})
        plan = plan_of(tensor=32)
        assert layout_figures(job, plan, "attention_heads")["vision.num_heads"] == 16
        assert layout_figures(job, plan, "feed_forward")["vision.ffn_hidden_size"] == 4304
        alone = job_with(H100_RENTED, workload={"model": "qwen2.5-vl-7b", "images": IMAGES})
        assert "vision.num_heads" not in layout_figures(alone, plan, "attention_heads")

    def test_megatron_lm_gets_no_script(self) -> None:
        job = job_with(H100_RENTED, workload={"model": "qwen3-vl-8b", "images": IMAGES})
        with pytest.raises(
            InputError, match=r"images.per_sequence = 2: Megatron-LM's pretrain_gpt.py trains on text"
        ):
            launch_plan(job, {"tp": 2, "dp": 4, "checkpoint_scheme": "async"})
