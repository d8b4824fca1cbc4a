"""How is Muon run with Megatron-LM?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from planner.launch.answer import Launch, launch_plan
from tests.support import job_with

PLAN = {"tp": 2, "pp": 2, "dp": 8, "checkpoint_scheme": "async"}
"""The plan of most tests: 32 accelerators on four nodes."""


def launched(muon: Mapping[str, object] | None, plan: Mapping[str, object], **workload: object) -> Launch:
    offer = {"accelerator": "h100-sxm5-80gb", "num_gpus": 32, "rent_usd_per_gpu_hour": 2}
    job = job_with(offer, workload={"muon": muon, **workload}, search={"memory_headroom_fraction": 0})
    return launch_plan(job, {**PLAN, **plan})


def values(launch: Launch) -> dict[str, str]:
    return {each.name: " ".join(each.values) for group in launch.arguments for each in group.arguments}


def test_muon_has_its_arguments() -> None:
    found = values(launched({"num_steps": 10, "tensor_mode": "distributed"}, {}))
    expected = {
        "--optimizer": "muon",
        "--muon-num-ns-steps": "10",
        "--muon-tp-mode": "distributed",
        "--use-distributed-optimizer": "",
        "--overlap-param-gather": "",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "--muon-tp-mode" not in values(launched({}, {"tp": 1, "dp": 16}))
    assert not any("muon" in name or name == "--optimizer" for name in values(launched(None, {})))


@pytest.mark.parametrize(
    ("muon", "plan", "is_dealt"),
    [
        ({"reduction": "all_reduce"}, {}, True),
        ({"reduction": "reduce_scatter"}, {}, False),
        ({}, {"dp": 2, "tp": 8}, False),
        ({}, {"pp": 8, "dp": 4, "tp": 1}, False),
        ({}, {"pp": 2, "vpp": 8, "tp": 1, "dp": 16}, True),  # two layers of a chunk on sixteen ranks
        ({"reduction": "all_reduce"}, {"zero_stage": 0, "tp": 4, "dp": 4}, False),
    ],
)
def test_tensors_are_dealt_where_that_is_simulated(
    muon: Mapping[str, object], plan: Mapping[str, object], is_dealt: bool
) -> None:
    assert ("--no-use-layer-wise-param-layout" in values(launched(muon, plan))) is is_dealt


def test_what_muon_cannot_have_is_replaced() -> None:
    launch = launched(
        {"state_bytes": 6},
        {"precision": "fp8"},
        precisions=["fp8"],
        gathers_cast_weights=True,
        optimizer_bytes=10,
    )
    replaced = {each.field: (each.value, each.runs) for each in launch.differences}
    assert replaced["workload.muon"][0].endswith("state_bytes 6")
    assert replaced["workload.muon"][1].endswith("state_bytes 8")
    assert replaced["workload.optimizer_bytes"] == ("10", "12")
    assert replaced["workload.gathers_cast_weights"] == ("true", "false")
    assert "--use-precision-aware-optimizer" not in values(launch)


def test_scripts_name_the_package_and_what_was_not_measured() -> None:
    remarks = " ".join(launched({}, {}).remarks)
    assert "emerging-optimizers" in remarks
    assert "No published step with Muon" in remarks
