"""Does a job file become the job that it describes, and any other file one error that says what to change?"""

from __future__ import annotations

import contextlib
import copy
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docs.generate import PAGE, job_file_reference
from planner.job_file import load_job, parse_job
from planner.yaml_text import MAX_FILE_BYTES, parse_text
from simulator import catalog
from simulator.checkpointing import Checkpointing, SavePolicy
from simulator.errors import InputError
from simulator.hardware import Site
from simulator.job import Estimate, GpuRange, Job, Objective
from simulator.reliability import RELIABILITY_PRESETS
from simulator.stragglers import STRAGGLER_PRESETS, StragglerPrior, Stragglers

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    set((ROOT / "examples").glob("*.yaml")) - {ROOT / "examples" / "fleet.yaml"}
)  # jobs, not fleets
MALFORMED = Path(__file__).with_name("malformed")

WORKLOAD: dict[str, object] = {
    "model": "llama-3.1-8b",
    "tokens": 1e12,
    "sequence_length": 8192,
    "global_batch_tokens": 4e6,
}
DOCUMENT: dict[str, object] = {
    "workload": WORKLOAD,
    "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 64, "max": 256}}],
    "site": "us-iowa",
}

# Name of the file, and what its one error must say: field, value and rule.
REFUSED: dict[str, tuple[str, ...]] = {
    "batch-below-one-sequence.yaml": ("workload.global_batch_tokens = 4:", "sequence_length (8192)"),
    "billion-laughs.yaml": ("line 1, column 4", "aliases (*) are not supported"),
    "binary.yaml": ("is not UTF-8 text: byte 0x80 at position 0",),
    "both-batches.yaml": ("workload.global_batch_tokens = 4000000", "global_batch_size", "not both"),
    "both-prices.yaml": ("offers[0]", "exactly one of rent_usd_per_gpu_hour and purchase_usd_per_node"),
    "config-of-unknown-family.json": ("workload: is missing", "hidden_size = 64: unknown field"),
    "config-of-unknown-family.yaml": ("workload.model.config.model_type = 'perceptron'", "llama"),
    "config-that-is-not-there.yaml": ("workload.model.config", "no-such-folder/config.json", "No such file"),
    "date.toml": ("site = '2024-01-01'", "in quotes"),
    "deep.yaml": ("line 1, column 51", "more than 50 lists and mappings"),
    "duplicate-field.json": ("'site' stands twice",),
    "duplicate-field.yaml": ("line 10, column 1", "'site' stands twice"),
    "empty-offers.yaml": ("offers = []", "needs 1 or more entries"),
    "empty-search-list.yaml": ("search: tensor_parallel must not be empty",),
    "empty.yaml": ("is empty", "workload, offers and site"),
    "estimate-upside-down.yaml": ("offers[0].rent_usd_per_gpu_hour", "low (4) <= mid (2.6) <= high (2)"),
    "fewer-tokens-than-a-batch.yaml": ("workload", "tokens (1e+06)", "at least one global batch"),
    "format-nobody-has.yaml": ("workload.precisions = fp8", "not computed by any offered accelerator"),
    "fraction-of-a-gpu.yaml": ("offers[0].num_gpus = 64.5", "must be a whole number"),
    "heads-that-do-not-divide.yaml": ("workload.model", "num_kv_heads (3) must divide num_heads (8)"),
    "huge-integer.yaml": ("limits.num_gpus = '9999", "too large"),
    "huge-number.yaml": ("limits.budget_usd = inf", "must be a finite number"),
    "infinite.yaml": ("limits.budget_usd = inf", "must be a finite number"),
    "interval-given-twice.yaml": ("checkpointing", "give interval_s (600) or interval_steps (100), not both"),
    "limit-below-every-offer.yaml": ("limits.num_gpus = 32", "must be at least 64"),
    "list-at-the-top.yaml": ('["workload", "offers"]', "must be a mapping"),
    "merge-key.yaml": ("line 1, column 7", "anchors (&)"),
    "missing-batch.yaml": ("workload.global_batch_size: is missing", "global_batch_tokens"),
    "missing-offers.yaml": ("offers: is missing",),
    "missing-tokens.yaml": ("workload.tokens: is missing",),
    "nan.yaml": ("workload.tokens = nan", "must be a finite number"),
    "negative-budget.yaml": ("limits.budget_usd = -4000000", "must be greater than 0"),
    "no-bytes.yaml": ("is empty",),
    "no-format.yaml": ("workload.precisions", "at least one number format"),
    "node-of-another-accelerator.yaml": ("offers[0]", "dgx-a100-640 holds a100-sxm4-80gb", "h100-sxm5-80gb"),
    "not-toml.toml": ("not valid TOML", "line 1, column 8"),
    "null-bytes.yaml": ("not valid YAML", "#x0000"),
    "number-as-a-name.yaml": ("limits = 7", "in quotes"),
    "number-for-a-truth.yaml": ("workload.has_sequence_parallel = 7", "must be true or false"),
    "objective-twice.yaml": ("objectives must name at least one objective, each once",),
    "offers-not-a-list.yaml": ("offers = {", "must be a list"),
    "own-accelerator-without-node.yaml": ("offers[0].node: is missing", "of your own"),
    "preference-of-no-objective.yaml": ("preference", "carbon", "not among the objectives"),
    "prose.yaml": ("'Please train me a model.' must be a mapping",),
    "python-tag.yaml": ("line 1, column 7", "tags (!) are not supported"),
    "range-upside-down.yaml": ("offers[0].num_gpus", "min (256) must not exceed max (64)"),
    "range-without-a-whole-node.yaml": ("offers[0].num_gpus = 9..15", "multiple of", "nearest: 8, 16"),
    "section-not-a-mapping.yaml": ("limits = 'none at all'", "must be a mapping", "budget_usd"),
    "tab.yaml": ("line 2, column 1", "not tabs"),
    "trailing-comma.json": ("line 1, column 20", "not valid JSON"),
    "truth-for-a-number.yaml": ("workload.sequence_length = 'true'", "must be a whole number"),
    "unclosed.yaml": ("line 2, column 1", "expected ',' or '}'"),
    "unit-in-the-value.yaml": ("limits.power_w = '3 MW'", "must be a number"),
    "unknown-accelerator.yaml": ("offers[0].accelerator = 'h100-sxm5-81gb'", "nearest: h100-sxm5-80gb"),
    "unknown-fabric.yaml": ("fabric = 'infiniband-ndrr'", "infiniband-ndr,"),
    "unknown-field-in-offer.yaml": ("offers[0].rent_usd_per_hour = 2.5", "nearest: rent_usd_per_gpu_hour"),
    "unknown-field.yaml": ("limits.budget_eur = 4000000", "unknown field; nearest: budget_usd"),
    "unknown-model.yaml": ("workload.model = 'llama-3.1-9b'", "nearest: llama-3.1-8b"),
    "unknown-node.yaml": ("offers[0].node = 'dgx-h1000'", "nearest: dgx-h100"),
    "unknown-objective.yaml": ("objectives[1] = 'price'", "'cost'"),
    "unknown-preset.yaml": ("reliability = 'typicall'", "nearest: typical"),
    "unknown-scheme.yaml": ("search.checkpoint_schemes[1] = 'gockpt2'", "'none', 'sync',", "or 'replica_ft'"),
    "unknown-site.yaml": ("site = 'us-iovva'", "nearest: us-iowa"),
    "zero-stage-four.yaml": ("search", "zero_stages (1, 4) must lie in 0..3"),
}


def changed(**sections: object) -> dict[str, object]:
    return {**copy.deepcopy(DOCUMENT), **sections}


def offered(**fields: object) -> dict[str, object]:
    return changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, **fields}])


def changed_offer(*, accelerator: object, **limits: float) -> dict[str, object]:
    return {**offered(accelerator=accelerator), "limits": limits}


def refusal(document: object, *overrides: str) -> str:
    with pytest.raises(InputError, match="problem") as caught:
        parse_job(document, overrides=overrides)  # type: ignore[arg-type] # some are not mappings on purpose
    return str(caught.value)


# Refused files


def test_every_malformed_file_has_an_expectation() -> None:
    assert sorted(path.name for path in MALFORMED.iterdir()) == sorted(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_file_is_one_error_with_field_value_and_rule(name: str) -> None:
    with pytest.raises(InputError, match="problem") as caught:
        load_job(MALFORMED / name)
    assert str(caught.value).startswith(str(MALFORMED / name))
    for words in REFUSED[name]:
        assert words in str(caught.value)


def test_all_problems_of_a_file_are_reported_together() -> None:
    document = changed(site="atlantis", reliability="perfect", limits={"budget": 1}, fabric="string")
    document["workload"] = {"model": "gpt-9", "tokens": "many", "sequence_length": 0}
    with pytest.raises(InputError, match="8 problems") as caught:
        parse_job(document, source="job.yaml")
    assert {problem.path for problem in caught.value.problems} == {
        "fabric",
        "limits.budget",
        "reliability",
        "site",
        "workload.global_batch_size",
        "workload.model",
        "workload.sequence_length",
        "workload.tokens",
    }


def test_a_problem_does_not_bring_its_consequences_with_it() -> None:
    with pytest.raises(InputError, match="1 problem\n") as caught:
        parse_job(offered(accelerator="h100"))
    assert caught.value.problems[0].path == "offers[0].accelerator"


@pytest.mark.parametrize("name", [".", "no-such-file.yaml", "null\0character.yaml"])
def test_what_cannot_be_opened_is_an_input_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_job(str(tmp_path / name))


def test_a_file_of_the_wrong_size_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(InputError, match=f"larger than {MAX_FILE_BYTES} bytes"):
        load_job(path)


# Any bytes, any values


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".yaml", ".json", ".toml"]))
def test_any_bytes_are_an_input_error_and_nothing_else(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"job{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="problem"):
        load_job(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_example_is_a_job_or_an_input_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(EXAMPLES)).read_bytes())
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)):
        content[place] = byte
    path = tmp_path / "job.yaml"
    path.write_bytes(bytes(content))
    job_or_error(lambda: load_job(path))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.sampled_from([0, 1, 8, 64, -1, 1e12, "8", "typical", "us-iowa", "h100-sxm5-80gb", "llama-3.1-8b"]),
    st.text(max_size=8),
    st.binary(max_size=3),
    st.dates(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=8), SCALARS), inner, max_size=3),
    ),
    max_leaves=6,
)


def job_or_error(make: Callable[[], Job]) -> Job | None:
    """Returns the job, or `None` after an `InputError` that says something; anything else fails the test."""
    try:
        return make()
    except InputError as error:
        message = str(error)
    assert message.splitlines()[0].endswith(("problem", "problems"))
    assert message.replace("\n", "").isprintable()
    return None


def places(value: object, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the place of every value inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield (*here, step)
        yield from places(inner, (*here, step))


def put(document: object, place: tuple[str | int, ...], value: object) -> None:
    """Puts a value at a place, unless the way there was replaced before."""
    owner = document
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for step in place[:-1]:
            owner = operator.getitem(owner, step)  # type: ignore[call-overload]
        operator.setitem(owner, place[-1], value)  # type: ignore[call-overload]


LONG_DOCUMENT: dict[str, object] = json.loads(parse_job(DOCUMENT).model_dump_json())
PLACES = {
    "short": list(places(DOCUMENT)),
    "long": list(places(LONG_DOCUMENT)),
}


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_any_value_at_any_place_is_a_job_or_an_input_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["short", "long"]))
    document = copy.deepcopy(DOCUMENT if kind == "short" else LONG_DOCUMENT)
    for place in data.draw(st.lists(st.sampled_from(PLACES[kind]), min_size=1, max_size=3)):
        put(document, place, data.draw(VALUES))
    job_or_error(lambda: parse_job(document))


@settings(max_examples=200, deadline=None)
@given(document=st.dictionaries(st.sampled_from(list(Job.model_fields)), VALUES))
def test_any_sections_are_a_job_or_an_input_error(document: dict[str, object]) -> None:
    job_or_error(lambda: parse_job(document))


@settings(max_examples=200, deadline=None)
@given(
    overrides=st.lists(
        st.one_of(st.text(max_size=20), st.from_regex(r"[a-z_]+(\[[0-9]\])?\.[a-z_]+=.*")), max_size=3
    )
)
def test_any_overrides_are_a_job_or_an_input_error(overrides: list[str]) -> None:
    job_or_error(lambda: parse_job(DOCUMENT, overrides=overrides))


# Accepted files


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_survives_being_written_out_and_read_again(path: Path) -> None:
    job = load_job(path)
    assert job.name == path.stem
    assert parse_job(job.model_dump()) == job
    assert parse_job(json.loads(job.model_dump_json())) == job


def test_the_same_job_in_yaml_json_and_toml_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "job.yaml").write_text(
        "workload:\n  model: llama-3.1-8b\n  tokens: 1e12\n  sequence_length: 8192\n"
        "  global_batch_tokens: 4_000_000\n"
        "offers: [{accelerator: h100-sxm5-80gb, num_gpus: {min: 64, max: 256}}]\n"
        "site: us-iowa\n"
    )
    (tmp_path / "job.toml").write_text(
        'site = "us-iowa"\n[workload]\nmodel = "llama-3.1-8b"\ntokens = 1e12\nsequence_length = 8192\n'
        'global_batch_tokens = 4e6\n[[offers]]\naccelerator = "h100-sxm5-80gb"\n'
        "num_gpus = {min = 64, max = 256}\n"
    )
    jobs = [load_job(tmp_path / f"job.{suffix}") for suffix in ("json", "yaml", "toml")]
    assert jobs[0] == jobs[1] == jobs[2] == parse_job(DOCUMENT)


def test_yaml_words_stay_words() -> None:
    assert parse_text("a: no\nb: 12:30\nc: 2024-01-01\nd: 2e12\ne: 0o17", source="") == {
        "a": "no",
        "b": "12:30",
        "c": "2024-01-01",
        "d": 2e12,
        "e": "0o17",
    }


# Batches: tokens / sequence length, to the nearest 64 sequences: 4e6 / 8192 = 488.3 -> 7.6 x 64 -> 512;
# 16e6 / 8192 = 1953.1 -> 30.5 x 64 -> 31 x 64 = 1984; 2e5 / 8192 = 24.4 has no such multiple but 0.
@pytest.mark.parametrize(
    ("tokens", "sequences"), [(4e6, 512), (16e6, 1984), (2e5, 24), (8192, 1), ("4e6", 512)]
)
def test_a_batch_in_tokens_becomes_whole_sequences(tokens: float | str, sequences: int) -> None:
    job = parse_job(DOCUMENT, overrides=[f"workload.global_batch_tokens={tokens}"])
    assert job.workload.global_batch_size == sequences


def test_what_is_left_out_comes_from_the_catalogue() -> None:
    offer = parse_job(DOCUMENT).offers[0]
    assert offer.accelerator == catalog.accelerator("h100-sxm5-80gb")
    assert offer.node == catalog.default_node("h100-sxm5-80gb")
    assert offer.fabric == catalog.default_fabric("h100-sxm5-80gb")
    assert (offer.rent_usd_per_gpu_hour, offer.price_source) == catalog.rent("h100-sxm5-80gb")


def test_single_values_stand_for_ranges() -> None:
    offer = parse_job(offered(rent_usd_per_gpu_hour=2.5)).offers[0]
    assert offer.num_gpus == GpuRange(min=64, max=64)
    assert offer.rent_usd_per_gpu_hour == Estimate(low=2.5, mid=2.5, high=2.5)
    assert offer.price_source == "user"


def test_an_offer_for_sale_has_no_rent() -> None:
    offer = parse_job(offered(purchase_usd_per_node={"low": 2e5, "mid": 3e5, "high": 4e5})).offers[0]
    assert offer.rent_usd_per_gpu_hour is None
    assert offer.purchase_usd_per_node == Estimate(low=2e5, mid=3e5, high=4e5)


def test_the_fabric_of_the_job_holds_for_offers_that_name_none() -> None:
    offers = [
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 64},
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "fabric": "infiniband-xdr"},
    ]
    job = parse_job(changed(offers=offers, fabric="ethernet-roce-400g"))
    assert [offer.fabric.kind for offer in job.offers] == ["ethernet-roce-400g", "infiniband-xdr"]


def test_a_problem_of_the_common_fabric_is_reported_once_where_it_was_written() -> None:
    offer = {"accelerator": "h100-sxm5-80gb", "num_gpus": 64}
    message = refusal(changed(offers=[offer, offer], fabric={"oversubscription": 0.5}))
    assert "1 problem\n  fabric.oversubscription = 0.5: must be at least 1" in message


def test_own_figures_go_over_those_of_a_region_or_a_preset() -> None:
    job = parse_job(
        changed(
            site={"region": "us-iowa", "power_usage_effectiveness": 1.1},
            reliability={"preset": "young", "repair_days": 7, "restart": {"detect_s": 5}},
        )
    )
    assert job.site == catalog.site("us-iowa").model_copy(update={"power_usage_effectiveness": 1.1})
    young = RELIABILITY_PRESETS["young"]
    assert job.reliability.failures_per_1000_node_days == young.failures_per_1000_node_days
    assert (job.reliability.repair_days, job.reliability.restart.detect_s) == (7, 5)
    assert job.reliability.restart.initialize_s == young.restart.initialize_s


def test_a_region_of_ones_own_needs_all_figures() -> None:
    own = {
        "region": "my hall",
        "grid_kgco2e_per_kwh": 0.1,
        "electricity_usd_per_kwh": 0.2,
        "power_usage_effectiveness": 1.3,
    }
    assert parse_job(changed(site=own)).site == Site(**own)  # type: ignore[arg-type]
    assert "site.region = 'my hall'" in refusal(changed(site={**own, "electricity_usd_per_kwh": None}))


def test_stragglers_are_named_by_a_preset_or_by_their_causes() -> None:
    named = parse_job(changed(reliability={"preset": "mature", "stragglers": "shared"})).reliability
    assert named.straggler_model == STRAGGLER_PRESETS["shared"]
    assert named.failures_per_1000_node_days == 2.34
    own = parse_job(changed(reliability={"preset": "mature", "stragglers": {"stage_imbalance": 1.4}}))
    assert own.reliability.straggler_model == Stragglers(stage_imbalance=1.4)
    assert parse_job(DOCUMENT).reliability.straggler_model == StragglerPrior()


def test_causes_and_a_distribution_of_stragglers_exclude_each_other() -> None:
    both = {"preset": "mature", "stragglers": "dedicated", "straggler_log_mean": -2.0}
    assert "give causes here, or straggler_log_mean, not both" in refusal(changed(reliability=both))
    unknown = refusal(changed(reliability={"preset": "mature", "stragglers": "sharde"}))
    assert "reliability.stragglers = 'sharde': must be a preset; nearest: shared" in unknown


def test_a_job_says_how_its_saves_are_made_and_names_schemes_by_their_systems() -> None:
    job = parse_job(
        changed(
            checkpointing={"slots": 4, "backpressure": "wait", "interval_steps": 500},
            search={"checkpoint_schemes": ["GoCkpt", "gemini", "async"]},
        ),
        overrides=["checkpointing.peer_copies=3", "search.checkpoint_schemes=[torchft, check-n-run]"],
    )
    assert job.checkpointing == Checkpointing(
        slots=4, backpressure=SavePolicy.WAIT, interval_steps=500, peer_copies=3
    )
    assert [scheme.value for scheme in job.search.checkpoint_schemes] == ["replica_ft", "differential"]
    assert parse_job(DOCUMENT).checkpointing == Checkpointing()


def test_null_leaves_a_field_out_but_turns_stragglers_off() -> None:
    job = parse_job(
        changed(
            limits=None,
            search={"micro_batch_sizes": None, "tensor_parallel": None},
            reliability={"preset": "typical", "straggler_log_mean": None},
        )
    )
    default = parse_job(DOCUMENT)
    assert (job.limits, job.search) == (default.limits, default.search)
    assert job.reliability.straggler_slowdown == 1.0
    assert "unknown field" in refusal(changed(limits={"budgt_usd": None}))


def test_domain_types_and_numpy_numbers_may_stand_for_their_fields() -> None:
    job = parse_job(
        changed(
            site=catalog.site("us-iowa"),
            offers=({"accelerator": catalog.accelerator("h100-sxm5-80gb"), "num_gpus": np.int64(64)},),
            limits={"deadline_days": np.float64(90.0)},
        )
    )
    assert job == parse_job(changed(offers=offered()["offers"], limits={"deadline_days": 90}))


@pytest.mark.parametrize("name", catalog.names(catalog.Kind.ACCELERATORS))
def test_every_accelerator_of_the_catalogue_can_be_offered(name: str) -> None:
    offer = {"accelerator": name, "num_gpus": {"min": 1, "max": 1024}, "rent_usd_per_gpu_hour": 2}
    document = {
        **changed(offers=[offer]),
        "workload": {**changed()["workload"], "precisions": ["fp16", "bf16"]},
    }
    assert parse_job(document).offers[0].node.accelerator == name
    del offer["rent_usd_per_gpu_hour"]
    if job := job_or_error(lambda: parse_job(document)):
        assert job.offers[0].price_source != "user"


# Models from a config.json

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


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
        (json.dumps({**CONFIG, "vocab_size": 10**250}), r"workload\.model\.config\.vocab"),
        (
            json.dumps({**CONFIG, "num_key_value_heads": 5}),
            r"num_kv_heads \(5\) must divide num_heads \(32\)",
        ),
    ],
)
def test_a_config_file_that_is_unusable_is_named(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(content)
    document = changed()
    document["workload"] = {**WORKLOAD, "model": {"config": "config.json"}}
    with pytest.raises(InputError, match=expected):
        parse_job(document, folder=tmp_path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


# Overrides


def test_overrides_replace_add_and_remove_values() -> None:
    job = parse_job(
        changed(limits={"budget_usd": 1e7, "num_gpus": 128}),
        overrides=[
            "limits.budget_usd=4e6",
            "limits.num_gpus=null",
            "offers[0].num_gpus.max=512",
            "objectives=[cost, energy]",
            "site.power_usage_effectiveness=1.05",
            "reliability=young",
            "workload.tokens = 2e12",
        ],
    )
    assert (job.limits.budget_usd, job.limits.num_gpus) == (4e6, None)
    assert job.offers[0].num_gpus == GpuRange(min=64, max=512)
    assert job.objectives == (Objective.COST, Objective.ENERGY)
    assert (job.site.region, job.site.power_usage_effectiveness) == ("us-iowa", 1.05)
    assert job.reliability == RELIABILITY_PRESETS["young"]
    assert job.workload.tokens == 2e12


def test_the_last_override_wins_and_the_document_stays_as_it_was() -> None:
    document = changed()
    job = parse_job(document, overrides=["limits.deadline_days=30", "limits.deadline_days=60"])
    assert job.limits.deadline_days == 60
    assert document == DOCUMENT


def test_an_override_replaces_a_broken_value() -> None:
    assert parse_job(changed(site=float("nan")), overrides=["site=us-iowa"]) == parse_job(DOCUMENT)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("limits.budget_usd", "override = 'limits.budget_usd': must be a path, = and a value"),
        ("=4", "override = '=4': must be a path"),
        ("limits.budgt_usd=4e6", "limits.budgt_usd = 4000000: unknown field; nearest: budget_usd"),
        ("offers[7].num_gpus=8", "offers[7]: cannot be replaced: there are 1 entries"),
        ("workload.model.num_layers=2", "workload.model = 'llama-3.1-8b': has no field num_layers"),
        ("site={", "site = '{': line 1, column 2"),
        ("site=!!python/name:os.system x", "tags (!) are not supported"),
        ("limits.budget_usd=cheap", "limits.budget_usd = 'cheap': must be a number"),
    ],
)
def test_an_override_that_cannot_be_used_is_named(override: str, expected: str) -> None:
    assert expected in refusal(DOCUMENT, override)


# Limits that shut everything out


@pytest.mark.parametrize("limits", [{"budget_usd": 1.0}, {"deadline_days": 1e-6}, {"power_w": 1e-3}])
def test_limits_that_are_too_tight_are_left_to_the_study_which_says_what_would_help(
    limits: dict[str, float],
) -> None:
    assert parse_job(changed(limits=limits)).limits.model_dump(exclude_none=True) == limits


@pytest.mark.parametrize(("least", "most", "near"), [(1, 7, "nearest: 8"), (65, 71, "nearest: 64, 72")])
def test_a_range_between_two_numbers_of_nodes_is_refused(least: int, most: int, near: str) -> None:
    message = refusal(
        changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": least, "max": most}}])
    )
    assert f"offers[0].num_gpus = {least}..{most}" in message
    assert message.endswith(near)


# The reference


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == job_file_reference(), "run: python -m docs.generate"
