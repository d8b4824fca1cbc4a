"""How does a plan look as a batch script? Slurm, torchrun and Megatron-LM, with what differs from the plan on top."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from planner.launch.answer import Launch, RunFigures
from planner.launch.arguments import LaunchArgument
from planner.launch.run import FOLDER, LOCAL_FOLDER
from planner.recommended.design_words import layout
from planner.text import human
from simulator.units import MINUTE

WIDTH = 80
"""Most characters of a line of comments."""
_VARIABLES = {
    "MEGATRON": "the folder of Megatron-LM",
    FOLDER[1:]: "a folder for checkpoints on the file system",
    LOCAL_FOLDER[1:]: "a folder for checkpoints on each node",
}
"""Variables that whoever starts the script sets, and what they are."""


def launch_script(launch: Launch) -> str:
    """Returns a script for `sbatch`, with a line end.

    Arguments of the script are passed on, behind those of the plan: data, tokenizer, learning rates.
    """
    parts = (_head, _differences, _notes, _start, _body)
    return "".join(f"{line}\n" for part in parts for line in part(launch))


def _head(launch: Launch) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"#SBATCH --job-name={shlex.quote(_one_line(launch.job))}"
    yield f"#SBATCH --nodes={launch.num_nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={launch.gpus_per_node}"
    if launch.job_limit_s is not None:
        # Slurm takes 0 for no limit.
        yield f"#SBATCH --time={max(1.0, launch.job_limit_s / MINUTE):.0f}"
    yield "#SBATCH --exclusive"
    yield "#SBATCH --requeue"
    yield "#SBATCH --open-mode=append"
    yield "#"
    plan = launch.plan
    yield from _comment(
        f"{human.count(plan.num_gpus)} x {launch.accelerator}: {layout(plan)}, micro-batches of {plan.micro_batch_size}, "
        f"recomputation {plan.recompute.value}, ZeRO stage {plan.zero_stage}, {plan.precision.value}"
    )
    yield from _comment(
        f"By capplan {launch.capplan_version}, for {launch.framework}, {launch.arguments_of}."
    )
    yield from _comment(f"Simulated as it is run here: {_figures(launch.as_run)}.")
    if launch.as_run.violations:
        yield from _comment("Breaks:")
    for sentence in launch.as_run.violations:
        yield from _item(sentence)


def _one_line(text: str) -> str:
    """The text without control characters, which would end the line of a comment."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _figures(figures: RunFigures) -> str:
    ends = (
        "the run never ends" if figures.time_to_train_days is None else human.days(figures.time_to_train_days)
    )
    memory = human.memory(figures.peak_memory_bytes)
    return f"steps of {human.duration(figures.step_time_s)}, {ends}, {memory} of memory"


def _differences(launch: Launch) -> Iterator[str]:
    if launch.differences:
        yield "#"
        yield from _comment(f"Differs from the plan, which is simulated with {_figures(launch.asked)}:")
    for each in launch.differences:
        yield from _item(f"{each.field}: {each.runs} instead of {each.value}; {each.reason}")


def _notes(launch: Launch) -> Iterator[str]:
    notes = list(launch.remarks)
    if launch.power_command:
        notes.append("Limits of power need the rights of an administrator, and stay when the job ends.")
    elif launch.power_limit_w:
        notes.append(f"Limit the power of each accelerator to {human.power(launch.power_limit_w)}.")
    if launch.num_spare_nodes:
        spares = human.counted(launch.num_spare_nodes, "more node")
        notes.append(f"Keep {spares} free in the partition: when one fails, the job is requeued.")
    if notes:
        yield "#"
        yield from _comment("Notes:")
    for sentence in notes:
        yield from _item(sentence)


def _start(launch: Launch) -> Iterator[str]:
    """What to add to the script. A run that measures has other folders, or the real one would go on from its last step."""
    yield "#"
    yield "# Data, tokenizer and learning rates are arguments of this script."
    folders = " and ".join(name for name in _folders(launch) if name != "MEGATRON")
    others = f", with {folders} elsewhere, since the last step is saved" if folders else ""
    yield from _comment(f"To measure a step{others}:")
    yield f"#   --mock-data --tokenizer-type NullTokenizer --vocab-size {launch.vocabulary_size}"
    yield "#   --lr 1e-4 --train-iters 20 --log-interval 1"


def _folders(launch: Launch) -> list[str]:
    """Variables that the script needs."""
    taken = {value for group in launch.arguments for each in group.arguments for value in each.values}
    return [name for name in _VARIABLES if name == "MEGATRON" or f"${name}" in taken]


def _comment(text: str, *, indent: str = "") -> Iterator[str]:
    shape = textwrap.TextWrapper(WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    shape.subsequent_indent = indent
    yield from (f"# {line}" for line in shape.wrap(text))


def _item(text: str) -> Iterator[str]:
    return _comment(f"- {text}", indent="  ")


def _body(launch: Launch) -> Iterator[str]:
    yield "set -euo pipefail"
    for name in _folders(launch):
        yield f': "${{{name}:?must be {_VARIABLES[name]}}}"'
    for name, value in launch.environment.items():
        yield f"export {name}={value}"
    yield ""
    yield "arguments=("
    for group in launch.arguments:
        yield f"  # {group.title}"
        yield from (f"  {_written(each)}" for each in group.arguments)
    yield ")"
    yield ""
    yield 'head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
    if launch.power_command:
        yield f"srun {launch.power_command}"
    yield f"srun torchrun --nnodes={launch.num_nodes} --nproc-per-node={launch.gpus_per_node} \\"
    yield '  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head_node:29500" \\'
    yield '  "$MEGATRON/pretrain_gpt.py" "${arguments[@]}" "$@"'


def _written(argument: LaunchArgument) -> str:
    return " ".join([argument.name, *(_quoted(value) for value in argument.values)])


def _quoted(value: str) -> str:
    """A value as an element of an array; commas are quoted, since they look as if they separated elements."""
    if value.startswith("$"):
        return f'"{value}"'
    return f"'{value}'" if "," in value else shlex.quote(value)
