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

WIDTH = 110
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
    return "\n".join([*_head(launch), *_differences(launch), *_body(launch)]) + "\n"


def _head(launch: Launch) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"#SBATCH --job-name={shlex.quote(launch.job)}"
    yield f"#SBATCH --nodes={launch.num_nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={launch.gpus_per_node}"
    yield "#SBATCH --exclusive"
    yield "#SBATCH --requeue"
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
    yield from _comment(
        "Data, tokenizer and learning rates are arguments of this script. To measure a step: --mock-data --tokenizer-type "
        f"NullTokenizer --vocab-size {launch.vocabulary_size} --lr 1e-4 --train-iters 20 --log-interval 1"
    )
    if launch.power_limit_w and not launch.power_command:
        yield from _comment(f"Limit the power of each accelerator to {human.power(launch.power_limit_w)}.")
    if launch.num_spare_nodes:
        spares = human.counted(launch.num_spare_nodes, "more node")
        yield from _comment(f"Keep {spares} free in the partition: when one fails, the job is requeued.")


def _figures(figures: RunFigures) -> str:
    ends = (
        "the run never ends" if figures.time_to_train_days is None else human.days(figures.time_to_train_days)
    )
    memory = human.memory(figures.peak_memory_bytes)
    return f"steps of {human.duration(figures.step_time_s)}, {ends}, {memory} of memory"


def _differences(launch: Launch) -> Iterator[str]:
    yield "#"
    if launch.differences:
        yield from _comment(f"Differs from the plan, which is simulated with {_figures(launch.asked)}:")
    for each in launch.differences:
        yield from _item(f"{each.field}: {each.runs} instead of {each.value}; {each.reason}")
    if launch.as_run.violations:
        yield from _comment("Breaks:")
    for sentence in launch.as_run.violations:
        yield from _item(sentence)
    if launch.remarks:
        yield from _comment("Notes:")
    for sentence in launch.remarks:
        yield from _item(sentence)


def _comment(text: str, *, indent: str = "") -> Iterator[str]:
    shape = textwrap.TextWrapper(WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    shape.subsequent_indent = indent
    yield from (f"# {line}" for line in shape.wrap(text))


def _item(text: str) -> Iterator[str]:
    return _comment(f"- {text}", indent="  ")


def _body(launch: Launch) -> Iterator[str]:
    yield "set -euo pipefail"
    taken = {value for group in launch.arguments for each in group.arguments for value in each.values}
    for name, meaning in _VARIABLES.items():
        if name == "MEGATRON" or f"${name}" in taken:
            yield f': "${{{name}:?must be {meaning}}}"'
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
        yield f"srun {launch.power_command}  # needs administrator rights"
    yield f"srun torchrun --nnodes={launch.num_nodes} --nproc-per-node={launch.gpus_per_node} \\"
    yield '  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head_node:29500" \\'
    yield '  "$MEGATRON/pretrain_gpt.py" "${arguments[@]}" "$@"'


def _written(argument: LaunchArgument) -> str:
    return " ".join([argument.name, *(_quoted(value) for value in argument.values)])


def _quoted(value: str) -> str:
    return f'"{value}"' if value.startswith("$") else shlex.quote(value)
