"""Does every file that is not a valid job give one error that says what to change?"""

from __future__ import annotations

import contextlib
import copy
import json
import operator
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.input.schema import known_fields
from planner.input.yaml_text import MAX_FILE_BYTES
from planner.job.file import load_job, parse_job
from simulator.domain.job import Job
from simulator.domain.workload import Workload
from simulator.errors import InputError
from tests.planner.job_documents import DOCUMENT, EXAMPLES, changed, job_or_error, offered, refusal

MALFORMED = Path(__file__).parents[1] / "malformed"

# Name of the file, and what its one error must say: field, value and rule.
REFUSED: dict[str, tuple[str, ...]] = {
    "batch-below-one-sequence.yaml": ("workload.global_batch_tokens = 4:", "sequence_length (8192)"),
    "billion-laughs.yaml": ("line 1, column 4", "aliases (*) are not supported"),
    "binary.yaml": ("is not UTF-8 text: byte 0x80 at position 0",),
    "both-batches.yaml": ("workload.global_batch_tokens = 4000000", "global_batch_size", "not both"),
    "both-prices.yaml": ("offers[0]", "exactly one of rent_usd_per_gpu_hour and purchase_usd_per_node"),
    "commas-in-a-number.yaml": ("line 1, column 43", "no commas in it: write 1.5e6"),
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
    "huge-integer.yaml": ("limits.num_gpus = '9999", "must be a whole number greater than 0 and"),
    "huge-number.yaml": ("limits.budget_usd = inf", "must be a finite number"),
    "infinite.yaml": ("limits.budget_usd = inf", "must be a finite number"),
    "interval-given-twice.yaml": ("checkpointing", "give interval_s (600) or interval_steps (100), not both"),
    "limit-below-every-offer.yaml": ("limits.num_gpus = 32", "must be at least 64"),
    "list-at-the-top.yaml": ('["workload", "offers"]', "must be a mapping"),
    "merge-key.yaml": ("line 1, column 7", "anchors (&)"),
    "misspelt-kind-of-fabric.yaml": ("fabric.kind", "`infinband-ndr` would not count as InfiniBand"),
    "missing-batch.yaml": ("workload.global_batch_size: is missing", "global_batch_tokens"),
    "missing-offers.yaml": ("offers: is missing",),
    "missing-tokens.yaml": ("workload.tokens: is missing",),
    "more-than-there-are.yaml": ("offers[0]", "num_gpus.max (256)", "248 in max_nodes (31) nodes"),
    "nan.yaml": ("workload.tokens = nan", "must be a finite number"),
    "negative-budget.yaml": ("limits.budget_usd = -4000000", "must be greater than 0"),
    "no-bytes.yaml": ("is empty",),
    "no-format.yaml": ("workload.precisions", "at least one number format"),
    "node-of-another-accelerator.yaml": ("offers[0]", "dgx-a100-640 holds a100-sxm4-80gb", "h100-sxm5-80gb"),
    "not-toml.toml": ("not valid TOML", "line 1, column 8"),
    "null-bytes.yaml": ("is no text: it holds a NUL character (position 8)",),
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
    "utf-16.yaml": ("is not UTF-8 text: it looks like UTF-16",),
    "utf-16-with-mark.yaml": ("is not UTF-8 text: it looks like UTF-16; save it as UTF-8",),
    "zero-stage-four.yaml": ("search.zero_stages[1] = 4: must be at most 3",),
}


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


@pytest.mark.parametrize("code", ["UTF-16", "UTF-16-LE", "UTF-16-BE", "UTF-32", "UTF-32-LE", "UTF-32-BE"])
def test_a_file_in_another_code_is_told_which_one_it_looks_like(code: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("workload:\n", encoding=code)
    with pytest.raises(InputError, match=f"it looks like {code[:6]}; save it as UTF-8"):
        load_job(job)


def test_reliability_without_a_preset_says_what_else_it_takes() -> None:
    what_else = (
        "failures_per_1000_node_days: is missing: number, unless preset or gpu_hours_per_failure is given"
    )
    with pytest.raises(InputError, match=what_else):
        parse_job(changed(reliability={"repair_days": 1}))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (0, "= 0: must be at least 19.2, which is failures_per_1000_node_days of 10,000, the most"),
        ("50k", "= '50k': must be a number; write 50000"),
        ([5e4], "= [50000.0]: must be a number"),
    ],
)
def test_gpu_hours_between_failures_have_a_rule_of_their_own(given: object, rule: str) -> None:
    message = refusal(changed(reliability={"gpu_hours_per_failure": given}))
    assert f"1 problem\n  reliability.gpu_hours_per_failure {rule}" in message


def test_a_price_with_a_range_is_not_nothing_at_best() -> None:
    """Draws are factors of the middle: of 0 all are 0, whatever the range says."""
    rule = "offers[0].rent_usd_per_gpu_hour: mid must be above 0 where high (3) is"
    assert rule in refusal(offered(rent_usd_per_gpu_hour={"low": 0, "mid": 0, "high": 3}))
    parse_job(offered(rent_usd_per_gpu_hour=0))


def test_a_failure_rate_is_given_once() -> None:
    both = {"gpu_hours_per_failure": 5e4, "failures_per_1000_node_days": 4}
    rule = "give either failures_per_1000_node_days or gpu_hours_per_failure, not both"
    assert rule in refusal(changed(reliability=both))


def test_a_region_of_ones_own_that_lacks_a_figure_names_it() -> None:
    site = {"region": "hall 3", "grid_kgco2e_per_kwh": 0.1, "electricity_usd_per_kwh": 0.1}
    with pytest.raises(InputError, match="of your own needs power_usage_effectiveness, too") as caught:
        parse_job(changed(site=site))
    assert len(caught.value.problems) == 1
    with pytest.raises(InputError, match="is not among the catalogue's sites"):
        parse_job(changed(site={"region": "us-iovva"}))


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


@pytest.mark.parametrize("price", ["rent_usd_per_gpu_hour", "purchase_usd_per_node"])
def test_a_price_that_is_no_number_is_one_problem(price: str) -> None:
    with pytest.raises(
        InputError, match=rf"1 problem\n  offers\[0\]\.{price} = nan: must be a finite number"
    ) as caught:
        parse_job(changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, price: float("nan")}]))
    assert len(caught.value.problems) == 1


def test_hours_of_a_profile_that_are_negative_are_named_and_no_mean_of_them() -> None:
    site = {"region": "us-iowa", "electricity_profile": [0.1] * 23 + [-3.0]}
    with pytest.raises(InputError, match="1 problem") as caught:
        parse_job(changed(site=site))
    assert [problem.path for problem in caught.value.problems] == ["site.electricity_profile.per_hour[23]"]


@pytest.mark.parametrize("field", ["grid_profile", "electricity_profile"])
@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ([0.1] * 23 + [float("nan")], "[23] = nan: must be a finite number"),
        ([0.1] * 23 + [None], ".per_hour[23]: must be a number"),
        (
            {"mean": 0.3, "daily_amplitud": 0.1},
            ".daily_amplitud = 0.1: unknown field; nearest: daily_amplitude",
        ),
        ("", " = '': must be the path of a file"),
    ],
)
def test_a_broken_profile_is_one_problem(field: str, profile: object, told: str) -> None:
    found = refusal(changed(site={"region": "us-iowa", field: profile}))
    first, problem = found.splitlines()
    assert first.endswith("1 problem")
    assert problem.startswith(f"  site.{field}{told}")


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
    with pytest.raises(InputError, match=f"larger than {MAX_FILE_BYTES:,} bytes"):
        load_job(path)


# Any bytes, any values


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".yaml", ".json", ".toml"]))
def test_any_bytes_are_an_input_error_and_nothing_else(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"job{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="problem"):
        load_job(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@given(data=st.data())
def test_any_value_at_any_place_is_a_job_or_an_input_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["short", "long"]))
    document = copy.deepcopy(DOCUMENT if kind == "short" else LONG_DOCUMENT)
    for place in data.draw(st.lists(st.sampled_from(PLACES[kind]), min_size=1, max_size=3)):
        put(document, place, data.draw(VALUES))
    job_or_error(lambda: parse_job(document))


@given(document=st.dictionaries(st.sampled_from(list(Job.model_fields)), VALUES))
def test_any_sections_are_a_job_or_an_input_error(document: dict[str, object]) -> None:
    job_or_error(lambda: parse_job(document))


@given(
    overrides=st.lists(
        st.one_of(st.text(max_size=20), st.from_regex(r"[a-z_]+(\[[0-9]\])?\.[a-z_]+=.*")), max_size=3
    )
)
def test_any_overrides_are_a_job_or_an_input_error(overrides: list[str]) -> None:
    job_or_error(lambda: parse_job(DOCUMENT, overrides=overrides))


def test_a_misspelt_field_is_told_before_those_that_are_missing_for_it() -> None:
    document = changed(workload={"model": {"confg": "config.json"}})
    first = refusal(document).splitlines()[1]
    assert first == "  workload.model.confg = 'config.json': unknown field; nearest: config"


def test_of_many_fields_a_message_names_a_few() -> None:
    num_fields = len(known_fields(Workload))
    unlike = refusal(changed(workload={"qqq": 1})).splitlines()[1]
    assert re.fullmatch(
        rf"  workload\.qqq = 1: unknown field; nearest of {num_fields}: (\w+, ){{2}}\w+", unlike
    )
    shapeless = refusal({**DOCUMENT, "workload": 3}).splitlines()[1]
    assert shapeless.startswith(
        "  workload = 3: must be a mapping of fields: model, tokens, sequence_length, "
    )
    assert shapeless.endswith(f", ... ({num_fields})")
    assert "known: budget_usd, deadline_days," in refusal(changed(limits={"qqq": 1}))  # few enough to read


def test_a_document_of_python_is_no_deeper_than_a_file_may_be() -> None:
    deep: object = 4e6
    for _ in range(60):
        deep = [deep]
    assert "more than 50 lists and mappings inside each other" in refusal(
        changed(limits={"budget_usd": deep})
    )


def test_a_batch_in_tokens_is_not_judged_by_sequences_without_tokens() -> None:
    lines = refusal(DOCUMENT, "workload.sequence_length=0").splitlines()
    assert lines[1:] == ["  workload.sequence_length = 0: must be greater than 0"]


def test_an_unknown_region_of_a_case_is_refused_where_it_is_written() -> None:
    assert "  what_if.sites[1] = 'us-iovva': " in refusal(changed(what_if={"sites": ["norway", "us-iovva"]}))
    asked = {"sites": [{"region": "us-iovva"}]}
    assert "  what_if.sites[0].region = 'us-iovva': " in refusal(changed(what_if=asked))
