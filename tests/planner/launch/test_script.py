"""Does the script of a plan do what it says? It is run with stand-ins for Slurm, torchrun and Megatron-LM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner import schemas
from planner.cli import commands as cli
from planner.launch.answer import Launch, launch_plan
from planner.launch.script import WIDTH, launch_script
from tests.json_schema import problems
from tests.support import job_with

PLAN = {"tp": 2, "pp": 2, "dp": 8, "checkpoint_scheme": "in_memory_peer", "zero_stage": 2}
BASH = shutil.which("bash") or "bash"
STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames node[1-4]" && printf "node%d\\n" {1..10000}',
    "srun": '"$@"',
    "nvidia-smi": 'echo "$*" > "$SEEN/limit"',
    "torchrun": 'printf "%s\\0" "$@" > "$SEEN/arguments"; echo "${CUDA_DEVICE_MAX_CONNECTIONS-}" > "$SEEN/connections"',
}


def run(script: str, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with stand-ins; what they were given is in files of the folder."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    file = folder / "run.sh"
    file.write_text(script, encoding="utf-8")
    slurm = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_ID": "17", "SEEN": str(folder)}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [BASH, str(file), *arguments],
        env={"PATH": path, **slurm, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


FOLDERS = {"MEGATRON": "/sw/megatron lm", "CHECKPOINTS": "/fs/runs $1", "LOCAL_CHECKPOINTS": "/local/saves"}


def launched(plan: Mapping[str, object] = PLAN, **sections: object) -> Launch:
    return launch_plan(job_with(**sections), plan)


def test_the_script_gives_torchrun_the_arguments_of_the_plan_and_then_its_own(tmp_path: Path) -> None:
    launch = launched()
    done = run(launch_script(launch), tmp_path, "--data-path", "my data", "--lr", "3e-4", **FOLDERS)
    assert (done.returncode, done.stderr) == (0, "")
    given = (tmp_path / "arguments").read_text(encoding="utf-8").split("\0")[:-1]
    start = given.index("/sw/megatron lm/pretrain_gpt.py")
    assert given[:start] == [
        "--nnodes=4",
        "--nproc-per-node=8",
        "--rdzv-id=17",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=node1:29500",
    ]
    variables = {f"${name}": folder for name, folder in FOLDERS.items()}
    wanted = [
        variables.get(part, part)
        for group in launch.arguments
        for each in group.arguments
        for part in (each.name, *each.values)
    ]
    assert given[start + 1 :] == [*wanted, "--data-path", "my data", "--lr", "3e-4"]
    assert (tmp_path / "connections").read_text(encoding="utf-8") == "1\n"
    assert not (tmp_path / "limit").exists()


@pytest.mark.parametrize("missing", FOLDERS)
def test_the_script_asks_for_each_folder_that_it_needs(missing: str, tmp_path: Path) -> None:
    given = {name: folder for name, folder in FOLDERS.items() if name != missing}
    done = run(launch_script(launched()), tmp_path, **given)
    assert done.returncode != 0
    assert f"{missing}: must be" in done.stderr
    assert not (tmp_path / "arguments").exists()


def test_folders_without_use_are_not_asked_for() -> None:
    script = launch_script(launched({**PLAN, "checkpoint_scheme": "none"}))
    assert "MEGATRON:?" in script
    assert "CHECKPOINTS" not in script


def test_slurm_ends_the_job_at_the_limit_of_the_queue() -> None:
    script = launch_script(launched(reliability={"preset": "typical", "queue_limit_days": 0.5}))
    assert "\n#SBATCH --time=720\n" in script
    short = launch_script(launched(reliability={"preset": "typical", "queue_limit_days": 1e-4}))
    assert "\n#SBATCH --time=1\n" in short  # 0 is no limit
    assert "--time" not in launch_script(launched())


def test_a_power_cap_is_set_on_every_node(tmp_path: Path) -> None:
    launch = launched({**PLAN, "power_cap_fraction": 0.8})
    assert launch.power_limit_w == pytest.approx(560.0)
    assert run(launch_script(launch), tmp_path, **FOLDERS).returncode == 0
    assert (tmp_path / "limit").read_text(encoding="utf-8") == "--power-limit=560\n"
    assert "# - Limits of power need the rights of an administrator" in launch_script(launch)


def test_a_power_cap_without_a_known_command_is_a_note() -> None:
    amd = job_with({"accelerator": "mi300x", "num_gpus": 32})  # 750 W
    script = launch_script(launch_plan(amd, {**PLAN, "power_cap_fraction": 0.8}))
    assert "# - Limit the power of each accelerator to 600 W.\n" in script
    assert "srun torchrun" in script
    assert script.count("srun") == 1


def test_a_run_that_never_ends_says_so() -> None:
    """Four nodes fail 40 times a day: without a save no run of days comes through."""
    failing = job_with(reliability={"preset": "typical", "failures_per_1000_node_days": 1e4})
    launch = launch_plan(failing, {**PLAN, "checkpoint_scheme": "none"})
    assert launch.as_run.time_to_train_days is None
    assert launch.save_every_steps is None
    assert "the run never ends" in launch_script(launch)


def test_values_with_commas_are_quoted() -> None:
    windows = job_with(workload={"model": "mistral-7b"})
    assert "  --window-size '4095,0'\n" in launch_script(launch_plan(windows, PLAN))


def test_slurm_gets_nodes_and_accelerators() -> None:
    lines = launch_script(launched()).splitlines()
    assert lines[0] == "#!/bin/bash"
    assert {"#SBATCH --nodes=4", "#SBATCH --gpus-per-node=8", "#SBATCH --ntasks-per-node=1"} <= set(lines)
    rack = launch_script(launch_plan(job_with({"accelerator": "gb200", "num_gpus": 64}), {"dp": 64}))
    assert {"#SBATCH --nodes=16", "#SBATCH --gpus-per-node=4"} <= set(rack.splitlines())


def test_comments_say_what_differs_and_what_it_costs() -> None:
    launch = launched({**PLAN, "num_spare_nodes": 2})
    comments = " ".join(line[2:] for line in launch_script(launch).splitlines() if line.startswith("# "))
    assert "zero_stage: 1 instead of 2" in comments
    assert "Keep 2 more nodes free in the partition" in comments
    assert f"Simulated as it is run here: steps of {launch.as_run.step_time_s:.3g}" in comments
    assert f"which is simulated with steps of {launch.asked.step_time_s:.3g}" in comments
    assert "Breaks:" not in comments
    assert max(len(line) for line in launch_script(launch).splitlines() if line.startswith("#")) <= WIDTH


def test_comments_say_first_what_the_run_breaks_and_last_how_to_measure_it_apart() -> None:
    launch = launched({**PLAN, "dp": 4})
    violation = "needs more memory than it has"
    broken = launch.model_copy(
        update={"as_run": launch.as_run.model_copy(update={"violations": (violation,)})}
    )
    comments = " ".join(line[2:] for line in launch_script(broken).splitlines() if line.startswith("# "))
    order = [
        f"Breaks: - {violation}",
        "Differs from the plan",
        "Notes:",
        "To measure a step",
        "  --mock-data",
    ]
    assert sorted(order, key=comments.index) == order
    assert "with CHECKPOINTS and LOCAL_CHECKPOINTS elsewhere, since the last step is saved:" in comments
    unsaved = launch_script(launched({**PLAN, "checkpoint_scheme": "none"}))
    assert "# To measure a step:\n" in unsaved


def test_names_of_jobs_are_quoted_and_stay_on_their_line(tmp_path: Path) -> None:
    launch = launched().model_copy(update={"job": "it's;\nrm\u2028-rf \x1b$HOME"})
    done = run(launch_script(launch), tmp_path, **FOLDERS)
    assert done.returncode == 0
    lines = launch_script(launch).splitlines()
    assert lines[1] == "#SBATCH --job-name='it'\"'\"'s; rm -rf $HOME'"
    assert lines[2] == "#SBATCH --nodes=4"


LLAMA = "examples/llama-3.1-70b.yaml"
LLAMA_PLAN = "offer=0,tp=8,pp=2,dp=16,checkpoint_scheme=async"


def test_the_command_prints_the_script_and_says_on_stderr_what_is_violated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["launch", LLAMA, "--plan", LLAMA_PLAN]) == 0
    script, errors = capsys.readouterr()
    assert script.startswith("#!/bin/bash\n")
    assert script.endswith('"$MEGATRON/pretrain_gpt.py" "${arguments[@]}" "$@"\n')
    assert "The plan violates a limit" in errors  # 256 GPUs miss the deadline
    assert cli.main(["launch", LLAMA, "--plan", LLAMA_PLAN, "--scheme", "differential"]) == 0
    assert "The plan as Megatron-LM runs it violates a limit" in capsys.readouterr().err
    assert cli.main(["launch", LLAMA, "--plan", LLAMA_PLAN, "--set", "limits={}"]) == 0
    assert capsys.readouterr().err == ""


def test_the_command_prints_json_by_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", LLAMA, "--plan", LLAMA_PLAN, "--json", "--interval", "100steps"]) == 0
    document = json.loads(capsys.readouterr().out)
    schema = json.loads(schemas.schema_text("launch"))
    assert list(problems(document, schema, schema)) == []
    assert document["save_every_steps"] == 100
    assert Launch.model_validate(document).runs.tensor_parallel == 8


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("tp=3,pp=2,dp=16,offer=0", "tensor_parallel"),
        ("offer=0,tp=8,dp=16,nonsense=1", "nonsense"),
        ("offer=9,tp=8,dp=16", "offer"),
    ],
)
def test_broken_plans_end_with_two(plan: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", LLAMA, "--plan", plan]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert message in errors
