"""What does a run with Muon exclude, and how large are its saves?"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simulator import catalog
from simulator.checkpoints.sizes import saved_bytes_per_parameter
from simulator.domain.lora import Lora
from simulator.domain.muon import Muon
from simulator.domain.workload import Workload
from simulator.layout.matrices import num_matrix_weights
from tests.simulator.builders import changed, job_of, training
from tests.simulator.checkpoint_jobs import saving

RUN = training()


def validated(**fields: object) -> Workload:
    return Workload.model_validate({**dict(RUN), "muon": Muon(), **fields})


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        (
            "lora",
            Lora(rank=16),
            "lora excludes muon: adapters are not simulated with it; leave one of them out",
        ),
        (
            "optimizer_offload_fraction",
            0.5,
            r"optimizer_offload_fraction \(0.5\) excludes muon: its states stay",
        ),
        ("step_bytes", 82.0, r"step_bytes \(82\) excludes muon: what it moves is counted"),
    ],
)
def test_what_muon_excludes(field: str, value: object, rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        validated(**{field: value})
    assert validated().muon == Muon()


def test_experts_with_biases_are_all_reduced() -> None:
    model = catalog.model("gpt-oss-20b")
    with pytest.raises(
        ValidationError, match=r"muon.reduction \(reduce_scatter\) excludes experts with biases"
    ):
        validated(model=model, muon=Muon(reduction="reduce_scatter"))
    for reduction in (None, "all_reduce"):
        assert validated(model=model, muon={"reduction": reduction}).muon == Muon(reduction=reduction)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", 0),
        ("num_steps", 101),
        ("num_steps", 2.5),
        ("tensor_mode", "both"),
        ("reduction", "gather"),
        ("state_bytes", 1.0),
        ("state_bytes", float("nan")),
        ("momentum", 0.9),
    ],
)
def test_fields_have_ranges(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        validated(muon={field: value})


def test_saves_hold_the_states_of_both_optimizers() -> None:
    job = job_of(changed(RUN, muon=Muon()))
    matrices, weights = num_matrix_weights(RUN.model), RUN.model.num_parameters
    states = 8.0 * matrices + 12.0 * (weights - matrices)
    assert saved_bytes_per_parameter(job) == pytest.approx(2.0 + states / weights)
    assert saved_bytes_per_parameter(job_of(RUN)) == 14.0
    assert saved_bytes_per_parameter(saving(job, bytes_per_parameter=10.0)) == 10.0
