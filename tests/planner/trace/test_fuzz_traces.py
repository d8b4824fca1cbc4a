"""Does the fuzzer of trace readers start from readable files, and damage them as it claims?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.fuzz_mutations import CSV, JSON, JSON_LINES, PROTOBUF, Form, mutations
from benchmarks.fuzz_traces import cases, fuzzed, num_refused
from simulator.errors import InputError

DOCUMENT = {"nodes": [{"id": 1, "deps": [2, 3]}, {"id": 2, "name": "x"}], "more": {"a": None}}


def test_every_file_is_read_before_it_is_broken_and_when_its_form_gives_it_back(tmp_path: Path) -> None:
    found = list(cases(tmp_path))
    assert {case.form for case in found} == {CSV, JSON, JSON_LINES, PROTOBUF, None}
    for case in found:
        assert num_refused(case.read) == 0
        if case.form is not None:
            case.path.write_bytes(case.form.content(case.form.tree(case.path.read_bytes())))
            assert num_refused(case.read) == 0


@pytest.mark.parametrize("form", [None, JSON])
def test_mutations_differ_from_each_other_and_are_always_the_same(form: Form | None) -> None:
    content = json.dumps(DOCUMENT).encode()
    first = list(mutations(content, 200, form=form))
    assert first == list(mutations(content, 200, form=form))
    assert first != list(mutations(content, 200, form=form, seed=2))
    assert len(set(first)) > 150


def test_mutated_json_is_json_again_with_other_types_names_and_items() -> None:
    content = json.dumps(DOCUMENT).encode()
    documents = [json.loads(changed) for changed in mutations(content, 500, form=JSON)]
    plain = [each for each in documents if isinstance(each, dict)]
    nodes = [each["nodes"] for each in plain if isinstance(each.get("nodes"), list)]
    assert any(not isinstance(each, dict) for each in documents)
    assert any("nodes" not in each for each in plain)
    assert any("nodes_" in each for each in plain)
    assert {len(each) for each in nodes} > {1, 2, 3}


def test_another_error_than_ours_goes_through(tmp_path: Path) -> None:
    (case, *_) = cases(tmp_path)

    def raise_another() -> None:
        raise KeyError("key")

    with pytest.raises(KeyError, match="key"):
        num_refused(raise_another)
    told = fuzzed(case, None, 3)
    assert told.startswith("3 mutated, ")
    with pytest.raises(InputError, match="does not exist"):
        case.path.unlink()
        case.read()
