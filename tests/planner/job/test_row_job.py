"""Does the job file of a measured row simulate the row's own step?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.input.plan_input import plan_of as planned
from planner.input.plan_input import read_plan
from planner.job.file import load_job, parse_job
from planner.job.row_job import row_document, simulate_command, write_row_job
from planner.measured.runs import Row, compare, plan_of
from simulator.domain.calibration import CalibratedConstant, ConstantName
from simulator.domain.plan import PlanTable
from simulator.errors import InputError
from simulator.simulate import steps_and_memory
from tests.planner.calibrations import calibration_with
from tests.planner.measured_rows import KORTHIKANTI_22B, LLAMA_8B, QWEN3_30B, simulated_row

NOT_DEFAULT: dict[str, Mapping[str, object]] = {
    "dense, recomputed, fp16": KORTHIKANTI_22B,
    "experts": QWEN3_30B,
    "adapters": {**LLAMA_8B, "notes": "LoRA rank 16"},
    "latent attention": {**QWEN3_30B, "model": "DeepSeek-V2-Lite", "n_gpus": 8, "ep": 8},
    "uneven stages": {
        **LLAMA_8B,
        "pp": 4,
        "notes": "num_layers_in_first_pipeline_stage 7, num_layers_in_last_pipeline_stage 7",
    },
    "chunks of stages": {**LLAMA_8B, "pp": 2, "vpp": 4, "micro_batch": 1},
    "packed documents": {**LLAMA_8B, "mean_document": 2048, "cp": 2},
    "other network cards": {**LLAMA_8B, "n_gpus": 32, "interconnect": "4x200G HDR InfiniBand"},
    "nodes of four": {**LLAMA_8B, "n_gpus": 32, "gpus_per_node": 4},
    "half of a node": {**LLAMA_8B, "n_gpus": 4, "tp": 2, "step_time_s": 50},
    "three of the eight of a node": {
        **LLAMA_8B,
        "n_gpus": 3,
        "tp": 1,
        "global_batch": 24,
        "zero_stage_or_fsdp": "FSDP",
        "framework": "FSDP2",
        "step_time_s": 50,
    },
    "half of a node with an offloaded optimizer": {
        **LLAMA_8B,
        "n_gpus": 4,
        "step_time_s": 50,
        "framework": "DeepSpeed",
        "zero_stage_or_fsdp": "ZeRO-Offload",
    },
    "two of the four of a node of a rack": {**LLAMA_8B, "gpu": "GB200", "n_gpus": 2, "step_time_s": 50},
    "images": {
        **LLAMA_8B,
        "model": "qwen3-vl-8b",
        "images_per_sequence": 2.5,
        "tokens_per_image": 256,
        "recompute": "full",
        "framework": "Megatron-Bridge",
    },
    "images for a frozen encoder": {
        **LLAMA_8B,
        "model": "qwen2.5-vl-7b",
        "images_per_sequence": 0.5,
        "tokens_per_image": 256,
        "freeze_vision_model": "yes",
    },
    "sharded weights": {**LLAMA_8B, "framework": "torchtitan", "zero_stage_or_fsdp": "FSDP2", "n_gpus": 16},
}


def parsed(row: Row) -> dict[str, Any]:
    """The job file of a row as it is read."""
    document: dict[str, Any] = yaml.safe_load(yaml.safe_dump(row_document(row)))
    return document


@pytest.fixture(params=NOT_DEFAULT)
def row(request: pytest.FixtureRequest, tmp_path: Path) -> Row:
    return simulated_row(tmp_path, NOT_DEFAULT[request.param])


def test_the_job_and_its_plan_give_the_step_and_the_memory_of_the_row(row: Row) -> None:
    job = parse_job(parsed(row))
    written = simulate_command(row, Path("row.yaml")).partition("--plan ")[2]
    plan, num_gpus = planned(job, read_plan(written))
    assert (plan, num_gpus) == (plan_of(row), int(row["num_gpus"]))
    steps, memory = steps_and_memory(job, PlanTable.from_plans([plan]))
    (known,) = compare([row])
    assert steps.step_time_s[0] == known.simulated_s
    assert memory.peak_on(known.capacity_bytes)[0] == known.simulated_memory_bytes


def test_constants_of_a_calibration_are_part_of_the_job(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, LLAMA_8B)
    slow = CalibratedConstant(
        name=ConstantName.SUSTAINED_FRACTION,
        accelerator="h100-sxm5-80gb",
        value=0.1,
        published=0.8,
        log_deviation=0.1,
    )
    calibration = calibration_with([slow])
    write_row_job(row, tmp_path / "row.yaml", calibration)
    job = load_job(tmp_path / "row.yaml")
    steps, _ = steps_and_memory(job, PlanTable.from_plans([plan_of(row)]))
    (fitted,), (published,) = compare([row], calibration), compare([row])
    assert steps.step_time_s[0] == fitted.simulated_s > 2 * published.simulated_s


def test_only_hardware_that_differs_from_the_catalogue_is_written_out(tmp_path: Path) -> None:
    usual = simulated_row(tmp_path, LLAMA_8B)
    small = simulated_row(tmp_path, {**LLAMA_8B, "n_gpus": 32, "gpus_per_node": 4})
    offer, of_four = (parsed(row)["offers"][0] for row in (usual, small))
    assert offer["node"] == "dgx-h100"
    assert of_four["node"]["num_accelerators"] == 4
    assert {offer["accelerator"], of_four["accelerator"]} == {"h100-sxm5-80gb"}
    # Nor are defaults, such as those of the search.
    assert "search" not in parsed(usual)
    assert "storage" not in parsed(usual)


def test_the_file_names_the_row_and_the_command_that_simulates_it(tmp_path: Path) -> None:
    row = simulated_row(tmp_path, {**LLAMA_8B, "tp": 4, "source": "our\nlogs"})
    file = tmp_path / "own job.yaml"
    write_row_job(row, file)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# A measured row as capplan reads it: a of our logs\n")
    assert re.search(r"^# capplan simulate '.*own job\.yaml' --plan offer=0,tp=4,dp=2", text, re.MULTILINE)
    assert load_job(file).offers[0].num_gpus.min == 8
    write_row_job(row, file)  # an older one is replaced


def test_any_other_file_stays(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n", encoding="utf-8")
    with pytest.raises(InputError, match="exists and is no measured row of capplan"):
        write_row_job(simulated_row(tmp_path, LLAMA_8B), own)
    assert own.read_text(encoding="utf-8") == "name: own\n"
