"""How do job files and measured runs say that more than one token is predicted?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.job.file import load_job, parse_job
from planner.measured.runs import Row, job_of, plan_of
from planner.validation.whole_run_jobs import KNOWN_RUNS
from simulator import catalog
from simulator.domain.job import Job
from simulator.errors import InputError
from tests.planner.job_documents import DOCUMENT, WORKLOAD
from tests.planner.measured_rows import simulated_row

CONFIG: Mapping[str, object] = {
    "model_type": "deepseek",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "vocab_size": 32_000,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "num_nextn_predict_layers": 1,
}
DEEPSEEK: Mapping[str, object] = {
    "id": "d",
    "model": "deepseek-v3",
    "seq_len": 4096,
    "gpu": "H100-80GB",
    "n_gpus": 1024,
    "global_batch": 8192,
    "micro_batch": 1,
    "tp": 2,
    "pp": 8,
    "vpp": 4,
    "ep": 64,
    "framework": "Megatron-Bridge",
    "step_time_s": 20,
}


def job_with(model: object, *overrides: str) -> Job:
    workload = {**WORKLOAD, "model": model}
    return parse_job({**DOCUMENT, "workload": workload}, overrides=overrides)


class TestJobFiles:
    def test_modules_stand_beside_the_name_of_a_model(self) -> None:
        known = catalog.model("llama-3.1-8b")
        asked = job_with({"name": "llama-3.1-8b", "num_mtp_layers": 2}).workload.model
        told = "Llama 3.1 8B, changed: num_mtp_layers 2"
        assert asked == known.model_copy(
            update={"num_mtp_layers": 2, "name": told, "source": f"{known.source}; {told}"}
        )
        assert job_with({"name": "llama-3.1-8b"}).workload.model == known

    def test_an_override_asks_for_them(self) -> None:
        job = job_with("llama-3.1-8b", "workload.model.num_mtp_layers=1")
        assert job.workload.model.num_mtp_layers == 1

    def test_a_config_trains_them_only_where_the_job_asks(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        found = []
        for model in ({"config": "config.json"}, {"config": "config.json", "num_mtp_layers": 1}):
            (tmp_path / "job.json").write_text(
                json.dumps({**DOCUMENT, "workload": {**WORKLOAD, "model": model}})
            )
            found.append(load_job(tmp_path / "job.json").workload.model)
        assert [model.num_mtp_layers for model in found] == [0, 1]
        assert "num_nextn_predict_layers 1" in found[0].source

    @pytest.mark.parametrize(
        ("model", "rule"),
        [
            ({"name": "llama-3.1-8x", "num_mtp_layers": 1}, "workload.model.name"),
            ({"name": "llama-3.1-8b", "num_mtp_layers": -1}, "num_mtp_layers"),
            ({"name": 5, "num_mtp_layers": 1}, "must be the name of a model"),
        ],
    )
    def test_what_cannot_be_is_refused(self, model: object, rule: str) -> None:
        with pytest.raises(InputError, match=rule):
            job_with(model)


class TestMeasuredRuns:
    @pytest.mark.parametrize(
        ("changes", "modules"),
        [
            ({}, 1),  # as the recipes of Megatron-Bridge
            ({"notes": "w/o MTP"}, 0),
            ({"model": "DeepSeekV3 (w/o MTP)"}, 0),
            ({"notes": "MTP layer excluded"}, 0),
            ({"mtp_num_layers": 0}, 0),
            ({"mtp_num_layers": "None"}, 0),
            ({"mtp_num_layers": 2}, 2),
            ({"notes": "mtp_num_layers=None"}, 0),
            ({"framework": "Megatron-LM"}, 0),
            ({"framework": "Megatron-LM", "notes": "mtp_num_layers=1"}, 1),
            ({"framework": "Megatron-LM", "notes": "MTP 2"}, 2),
            ({"framework": "Megatron-LM", "notes": "with multi-token prediction"}, 1),
        ],
    )
    def test_rows_say_how_many_there_are_or_have_the_habit_of_their_framework(
        self, tmp_path: Path, changes: Mapping[str, object], modules: int
    ) -> None:
        row = simulated_row(tmp_path, {**DEEPSEEK, **changes})
        assert job_of(row).workload.model.num_mtp_layers == modules
        is_told = bool(changes.keys() - {"framework"})
        assert ("mtp_num_layers" in row["assumed"].split()) == (modules > 0 and not is_told)

    @pytest.mark.parametrize(
        ("model", "modules"),
        [
            ("Nemotron_3_Super", 2),  # `mtp_num_layers` in `recipes`, August 2026
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 2),
            ("Qwen3-Next-80B-A3B", 1),
            ("Nemotron_3_Nano", 0),
        ],
    )
    def test_hybrids_have_the_modules_of_their_recipe(self, tmp_path: Path, model: str, modules: int) -> None:
        layout = {"tp": 1, "pp": 1, "vpp": 1, "ep": 64, "gpu": "GB300", "n_gpus": 256, "global_batch": 512}
        row = simulated_row(tmp_path, {**DEEPSEEK, "model": model, **layout, "seq_len": 8192})
        assert job_of(row).workload.model.num_mtp_layers == modules
        assert ("mtp_num_layers" in row["assumed"].split()) == (modules > 0)

    @pytest.mark.parametrize(
        ("pp", "vpp", "cut"),
        [
            (8, 4, [1] + [2] * 30 + [0]),
            (16, 1, [4] * 15 + [1]),
            (4, 4, [4] * 15 + [1]),
            (8, 1, [8] * 7 + [5]),
        ],
    )
    def test_layers_are_cut_around_them_as_megatron_bridge_does(
        self, tmp_path: Path, pp: int, vpp: int, cut: list[int]
    ) -> None:
        # `_get_deepseek_v3_pipeline_layout`, and `Et|(tt|)*30mL` of the recipes for 1,024 H100.
        row: Row = simulated_row(tmp_path, {**DEEPSEEK, "pp": pp, "vpp": vpp, "ep": 32})
        assert job_of(row).workload.stage_layers == tuple(cut)
        assert plan_of(row).pipeline_parallel * plan_of(row).virtual_pipeline == len(cut)
        assert row["num_layers"] == "61"

    def test_the_run_of_deepseek_v3_predicts_a_second_token(self) -> None:
        (run,) = [each for each in KNOWN_RUNS if each.framework == "HAI-LLM"]
        assert run.job().workload.model.num_mtp_layers == 1
