"""Are blocks with a state shown where a user looks at heads and models?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import commands as cli
from planner.job.file import load_job
from planner.layout_figures import layout_figures
from tests.simulator.builders import job_of, plan_of, training
from tests.simulator.published_hybrids import NEMOTRON_H_8B, NEMOTRON_NANO_9B


def test_a_rule_about_heads_tells_those_of_both_kinds_of_blocks() -> None:
    # Qwen3-Next: 16 heads of attention on 2 of keys and values; 32 with a state on 16 of keys.
    job = job_of(training("qwen3-next-80b-a3b"))
    assert layout_figures(job, plan_of(tensor=64), "attention_heads") == {
        "tensor_parallel": 64,
        "num_heads": 16,
        "num_kv_heads": 2,
        "linear_attention.num_heads": 32,
        "linear_attention.num_key_heads": 16,
    }


def test_a_rule_about_heads_of_a_transformer_tells_no_others() -> None:
    figures = layout_figures(job_of(), plan_of(tensor=64), "attention_heads")
    assert figures.keys() == {"tensor_parallel", "num_heads", "num_kv_heads"}


def test_the_list_of_models_says_which_have_blocks_with_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalog", "models"]) == 0
    rows = {row[0]: row[-1] for row in map(str.split, capsys.readouterr().out.splitlines()) if row}
    assert (rows["nemotron-h-8b"], rows["kimi-linear-48b-a3b"]) == ("mamba-2", "kimi-delta")
    assert rows["llama-3.1-8b"] == "8,030,261,248"  # the active parameters, and nothing behind them


def test_a_job_is_made_for_the_config_of_a_hybrid(tmp_path: Path) -> None:
    (tmp_path / "nano-9b").mkdir()
    config, file = tmp_path / "nano-9b" / "config.json", tmp_path / "job.yaml"
    config.write_text(json.dumps(NEMOTRON_NANO_9B), encoding="utf-8")
    assert cli.main(["init", str(file), "--model", str(config), "--yes", "--no-schema"]) == 0
    model = load_job(file).workload.model
    assert (model.name, model.num_parameters) == ("nano-9b", 8_888_227_328)


def test_a_job_is_not_made_for_a_pattern_that_contradicts_the_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(NEMOTRON_H_8B | {"num_hidden_layers": 51}), encoding="utf-8")
    assert cli.main(["init", str(tmp_path / "job.yaml"), "--model", str(config), "--yes"]) == 2
    assert "num_hidden_layers = 51: must be 52, the number of blocks in" in capsys.readouterr().err
