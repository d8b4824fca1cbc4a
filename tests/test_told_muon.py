"""Are the figures that the page on Muon quotes those of today?"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from simulator.domain.muon import Muon
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.matrices import num_matrix_weights
from simulator.layout.owned_matrices import MatrixKinds
from simulator.memory.peak import MemoryTable, peak_memory
from simulator.step.muon_update import OPERATOR_S, matrix_s
from simulator.units import GIB
from tests.simulator.builders import changed, plan_of, rank_of, step_of, table_of, training

TEXT = (Path(__file__).parents[1] / "docs" / "model" / "muon.md").read_text()
PLAIN = " ".join(TEXT.split())
RUNS = {
    "Llama 3.1 70B, t = 4, p = 4, D = 16": ("llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=16), 256),
    "the same with D = 128": ("llama-3.1-70b", plan_of(tensor=4, pipeline=4, data=128), 2048),
    "Qwen3 235B-A22B, p = 8, e = 8, D = 64": (
        "qwen3-235b-a22b",
        plan_of(pipeline=8, expert=8, data=64),
        4096,
    ),
    "DeepSeek-V3, p = 16, e = 64, D = 128": (
        "deepseek-v3",
        plan_of(pipeline=16, expert=64, data=128),
        15_360,
    ),
}
"""What the table of the page simulates: model, plan on H100, sequences of 4,096 tokens in a step."""


def memory(workload: Workload, plan: Plan) -> MemoryTable:
    plans = table_of(plan)
    return peak_memory(workload, plans, split_layers(workload.model, plans))


@pytest.mark.parametrize("name", RUNS)
def test_the_table_has_what_is_simulated(name: str) -> None:
    model, plan, batch = RUNS[name]
    (line,) = (line for line in TEXT.splitlines() if line.startswith(f"| {name} |"))
    told = [float(re.sub(r"[^\d.]", "", cell)) for cell in line.strip("|").split("|")[1:]]
    adam = training(model, sequence_length=4096, global_batch_size=batch)
    muon = changed(adam, muon=Muon())
    split = changed(adam, muon=Muon(tensor_mode="distributed"))
    times = [1e3 * step_of(each, plan).optimizer_s[0] for each in (adam, muon, split)]
    of_adam, of_muon = memory(adam, plan), memory(muon, plan)
    sizes = [
        getattr(each, kind)[0] / GIB
        for kind in ("optimizer_bytes", "gradients_bytes")
        for each in (of_adam, of_muon)
    ]
    assert told[:3] == pytest.approx(times, abs=0.6)
    assert told[3:] == pytest.approx(sizes, abs=0.06)


def test_buffers_that_are_hopelessly_long() -> None:
    model, plan, batch = RUNS["the same with D = 128"]
    adam = training(model, sequence_length=4096, global_batch_size=batch)
    padded = changed(adam, muon=Muon(reduction="reduce_scatter"))
    padded_gib, gib = (memory(each, plan).gradients_bytes[0] / GIB for each in (padded, adam))
    assert f"take {padded_gib:.0f} GiB instead of {gib:.0f}" in PLAIN


def test_shares_of_the_weights() -> None:
    told = {"Llama 3.1 70B": "llama-3.1-70b", "DeepSeek-V3": "deepseek-v3"}
    found = re.search(r"([\d.]+) % of the weights of Llama 3.1 70B, ([\d.]+) % of DeepSeek-V3", PLAIN)
    assert found
    for figure, name in zip(found.groups(), told.values(), strict=True):
        model = training(name).model
        assert float(figure) == pytest.approx(
            100 * num_matrix_weights(model) / model.num_parameters, abs=0.06 if "." in figure else 0.6
        )


def test_small_experts_wait_for_the_host() -> None:
    found = re.search(r"64 matrices of 768 x 2,048 take (\d+) ms, their kernels on an H100 (\d+) ms", PLAIN)
    assert found
    rank = rank_of(changed(training("qwen3-30b-a3b"), muon=Muon()), plan_of(data=8, expert=8))
    kinds = MatrixKinds.routed(rank.workload, rank.plans)
    (matrix,) = (each for each in kinds.matrices if each.columns == 768)
    device_s, host_s = matrix_s(rank, kinds, matrix)
    assert host_s[0] == (10 + 5 * 5) * OPERATOR_S
    assert [float(each) for each in found.groups()] == [
        pytest.approx(64e3 * np.max([device_s, host_s]), abs=0.5),
        pytest.approx(64e3 * device_s[0], abs=0.5),
    ]
