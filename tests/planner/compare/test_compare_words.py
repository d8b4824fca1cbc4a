"""Are the names and values of a comparison words with units?"""

from __future__ import annotations

import pytest

from planner.compare.words import name_words, value_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mfu_fraction", "MFU"),
        ("zero_stage", "ZeRO stage"),
        ("offers[h100-sxm5-80gb].price", "price of h100-sxm5-80gb"),
        ("offers[h100-sxm5-80gb]", "offer of h100-sxm5-80gb"),
        ("storage.write_bytes_per_s", "storage: write"),
        ("limits.deadline_days", "limits: deadline"),
        ("goodput_fraction", "goodput"),
        ("another design", "another design"),
    ],
)
def test_names_are_words(name: str, words: str) -> None:
    assert name_words(name) == words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("checkpoint_interval_s", "123.5362", "2.06 min"),
        ("limits.budget_usd", "2100000", "$2.10 M"),
        ("limits.budget_usd", "not set", "not set"),
        ("storage.write_bytes_per_s", "5.7e10", "5.7e10 bytes/s"),
        ("reliability.failures_per_1000_node_days", "6.5", "6.5 per 1,000 node-days"),
        ("offers[a].other_rent_usd_per_gpu_hour", "2.08 (1.63 to 3.73)", "2.08 (1.63 to 3.73) USD/GPU-hour"),
        ("tensor_parallel", "8", "8"),
        ("num_gpus", "16384", "16,384"),
        ("workload.sequence_length", "131072", "131,072"),
        ("region", None, "-"),
    ],
)
def test_values_have_their_units(name: str, value: str | None, words: str) -> None:
    assert value_words(name, value) == words
