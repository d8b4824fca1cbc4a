"""Does a model's config.json become the model of a job, or give exactly one error?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.job.file import load_job, parse_job
from simulator.errors import InputError
from tests.planner.job_documents import CONFIG, WORKLOAD, changed, job_or_error

# Models from a config.json

MIXTRAL = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


def test_a_model_may_come_from_a_config_file_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(CONFIG))
    document = changed()
    document["workload"] = {**WORKLOAD, "model": {"config": "mine/config.json"}}
    (tmp_path / "job.json").write_text(json.dumps(document))
    model = load_job(tmp_path / "job.json").workload.model
    assert model.name == "mine"
    assert model.num_parameters == 8_030_261_248  # as the weights of Llama 3.1 8B are published
    named = load_job(tmp_path / "job.json", ["workload.model.name=other"]).workload.model
    assert named == model.model_copy(update={"name": "other"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[1, 2]", r"workload\.model\.config = 'config\.json': must name a file that holds one mapping"),
        ("{", r"workload\.model\.config = 'config\.json': .*line 1"),
        (json.dumps({**CONFIG, "hidden_size": float("nan")}), r"workload\.model\.config\.hidden_size = nan"),
        (
            json.dumps({**CONFIG, "vocab_size": 10**250}),
            r"workload\.model\.config\.vocabulary_size = 10+: must be at most 10000000$",
        ),
        (
            json.dumps({**CONFIG, "num_hidden_layers": 0}),
            r"workload\.model\.config\.num_layers = 0: must be greater than 0$",
        ),
        (
            json.dumps({**CONFIG, "num_key_value_heads": 5}),
            r"workload\.model\.config: num_kv_heads \(5\) must divide num_heads \(32\)$",
        ),
        (
            json.dumps({**CONFIG, **MIXTRAL, "num_experts_per_tok": 9}),
            r"workload\.model\.config\.experts: experts_per_token \(9\) must not exceed num_experts \(8\)$",
        ),
    ],
)
def test_a_config_file_that_is_unusable_is_named(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(content)
    document = changed()
    document["workload"] = {**WORKLOAD, "model": {"config": "config.json"}}
    with pytest.raises(InputError, match=expected):
        parse_job(document, folder=tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_config_file_is_a_job_or_an_input_error(tmp_path: Path, data: st.DataObject) -> None:
    kinds = st.sampled_from(["llama", "deepseek_v3", "mixtral", "falcon", "gpt2"])
    config: dict[str, object] = {**CONFIG, "model_type": data.draw(kinds)}
    numbers = st.one_of(st.integers(-1, 10**40), st.floats(), st.text(max_size=2), st.lists(st.integers()))
    keys = [*CONFIG, "n_routed_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"]
    config |= data.draw(st.dictionaries(st.sampled_from(keys), numbers, max_size=4))
    (tmp_path / "config.json").write_text(json.dumps(config))
    document = changed()
    document["workload"] = {**WORKLOAD, "model": {"config": "config.json"}}
    job_or_error(lambda: parse_job(document, folder=tmp_path))
