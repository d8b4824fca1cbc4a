"""What is on the page on `capplan launch`? Its text, a real script, and the tables of its JSON, from the types."""

from __future__ import annotations

from pathlib import Path

from docs.answer_page import answer_sections
from planner.input.plan_input import read_plan
from planner.job.file import load_job
from planner.launch.answer import Launch, launch_plan
from planner.launch.script import launch_script

LAUNCH_PAGE = Path(__file__).with_name("launch.md")
JOB = "examples/llama-3.1-70b.yaml"
PLAN = "offer=0,tp=4,pp=4,vpp=10,cp=2,dp=64,checkpoint_scheme=gradient_assisted"
"""The plan of the example."""
_INTRODUCTION = f"""\
# Start a plan

`capplan launch` prints a batch script for Slurm that starts a plan with Megatron-LM:

```sh
capplan launch {JOB} --plan {PLAN}
```

The plan is written as for [capplan simulate](simulate.md#the-plan). Below *Configuration*, an answer prints the command that
simulates the recommended plan; with `launch` in the place of `simulate`, it prints the script. Write it to a file, and
start it with the rest, which capplan does not know:

```text
MEGATRON=~/Megatron-LM CHECKPOINTS=/fs/llama sbatch --account ACCOUNT --partition PARTITION --time 2-00:00:00 run.sh \\
  --data-path DATA --tokenizer-type HuggingFaceTokenizer --tokenizer-model MODEL --lr 3e-4 --min-lr 3e-5
```

What stands before `run.sh` is for Slurm, what follows is for Megatron-LM. Later arguments win, so they can also replace
those of the plan. If jobs may not last as long as the run, say so in the job (`reliability.queue_limit_days`): the script asks
Slurm for that time, and ends each job with a save before. Submit it several times with `--dependency=singleton`: each job
continues from the last save ([what the waits cost](how-to/own-cluster.md#a-queue-that-ends-jobs-after-a-day)).
Slurm starts a job again when a node fails, but not when a process does. Options of a container, such as `--container-image`
of Pyxis, belong behind the last `srun`. This is the script:

```text
SCRIPT```

## What differs from the plan

Megatron-LM does not have everything that capplan simulates. What it lacks is replaced by the nearest that it has, and both are
simulated. The script begins with the limits that are broken by what is run, such as memory (they are also told on stderr), and
a list of what differs: field, what is run, what the plan has, and the reason. *Notes* have the settings with which
`capplan recommend` finds a plan that runs as it is.

- *Sharding.* ZeRO-1 is the distributed optimizer; ZeRO-2 and 3 are Megatron-FSDP's `optim_grads` and `optim_grads_params`, with
  gradients in the format of the job. In a pipeline both become ZeRO-1. `shard_ranks` becomes
  `--num-distributed-optimizer-instances`, which must divide the replicas of experts, too.
- *Optimizer.* States have 6, 10 or 12 bytes a weight under ZeRO-1. Megatron-FSDP, and 8-bit products whose scales are not
  delayed, keep whole masters: 8 or 12. It is 12 in fp16, without sharding, where a share of them is offloaded, and beside
  [Muon](model/muon.md), whose matrices have 8 and are gathered in 16 bits. Muon needs the package emerging-optimizers.
- *Pipelines.* All schedules become 1F1B, interleaved if stages have several chunks. Stages that differ become a
  `--pipeline-model-parallel-layout`. Where layers share what an indexer chooses (GLM-5.2), each chunk begins with a layer that
  has one: the nearest such cut is run.
- *Experts* are one product each, as in Transformer Engine by default (`expert_products: separate`). With biases they are whole.
- *Network.* The vocabulary is filled up to equal parts for tensor-parallel ranks. Attention to chosen tokens runs in its fused
  kernels (`--dsa-kernel-backend cudnn`), with sequence parallelism; in 8 and 4 bits, `mla_up_proj` is not computed again.
- *Checkpoints.* The interval becomes whole steps. `sync`, `sync_sharded` and `async` save to the file system. From ZeRO-1 on
  `sync` becomes `sync_sharded`, because all ranks write their shards of the optimizer. `local_nvme`, `in_memory_peer` and
  `tiered` save to the nodes with nvidia-resiliency-ext, and one save in [`persist_every`](job-file.md#checkpointing) to the
  file system, or fewer if it [cannot write as many](model/checkpoints.md). All others become `async`.
- *Software.* Settings of the [workload](job-file.md#workload) that describe other frameworks become those of Megatron-LM.
  So do some defaults: 8-bit copies of weights, for example, are kept between micro-batches, since Transformer Engine does.
  [`expert_products: grouped`](model/experts.md) sets the variable that asks it for one kernel, where it has one.
- *Refused* (exit code 2) are [hybrid models](model/hybrids.md), since a job does not say in which order their blocks stand
  (`--hybrid-layer-pattern`); networks that its GPT models do not have ([hyper-connections](model/hyper-connections.md), for
  which `pretrain_gpt.py` builds no layers, [compressed attention](model/compressed-attention.md), blocks in parallel, windows
  that move in steps of their size, norms over all heads, shared experts beside experts with biases, fewer learned positions
  than tokens of a sequence, or any beside multi-token prediction), attention to chosen tokens where its fused kernels do not
  run (accelerators before Hopper, latents that are not 512 wide, biases, numbers of heads that neither fill nor divide a
  tile) or with more chunks than layers that have an indexer, adapters, packed documents under context parallelism, numbers of
  tokens that Transformer Engine cannot cast to 8 or 4 bits, and accelerators that are neither NVIDIA's nor AMD's.

Not set is what changes neither time nor memory: data, tokenizer, learning rates, base of rotary positions, loss of the router.

## How sure are the names?

Arguments are those of Megatron-LM's `main` of 22 August 2026 (commit d98e8a64, Megatron Core 0.20).
`python -m benchmarks.megatron_arguments --megatron CHECKOUT --python PYTHON` passes the arguments of plans drawn at random to
that version's own parser, checks and configuration of the model:

- 718 of 718 plans of 20 jobs were accepted (dense models and mixtures of experts, four number formats, A100 to GB200, with Adam
  and Muon), with as many replicas and chunks as in the plan, and no flag was turned off (but for that of the distributed
  optimizer, in whose place Muon has one of its own).
- Parameters as Megatron-LM counts them for these arguments are those of capplan within 0.07 %, and operations of a step within
  0.5 %: the router's, which it leaves out. It counts sliding windows and packed documents in full; for gpt-oss-120b capplan has
  9 % fewer operations, for Gemma 2 27B 0.7 %, for packed documents of 900 tokens 2 %. It leaves gates of the attention core out
  of its parameters, 2 % of those of one network with latents for 128 small experts, and indexers, 0.1 % of DeepSeek-V3.2. It
  counts attention to chosen tokens as attention to all: capplan has 0.6 % more operations for DeepSeek-V3.2 on sequences of
  4,096 tokens, 42 % fewer for GLM-5 on 32,768, and 62 % fewer for GLM-5.2 on 65,536.
- Weights, gradients and optimizer states on the first stage are the same within 0.01 % in all 41 plans that its calculator
  counts whole (dense, 32-bit gradients, equal stages, no context parallelism).

The tests compare every name that is printed with those that were accepted (`benchmarks/data/megatron_arguments.csv`).

Checks that only a model on accelerators reaches are followed from the source of Megatron-LM and from that of Transformer Engine
of the same day (commit d0067d0d). No script was run on accelerators. Megatron-Bridge and NeMo have the same names with
underscores.

In programs, `planner.launch_plan` returns what `--json` prints:

```python
from planner import launch_plan, load_job

launch = launch_plan(load_job("job.yaml"), {{"tp": 4, "pp": 4, "dp": 32}})
launch.differences, launch.as_run.peak_memory_bytes
```

This page is generated from the types: `python -m docs.generate`.
"""


def launch_reference() -> str:
    """Returns the page: text, the script of the example, and one section for every type of the answer."""
    script = launch_script(launch_plan(load_job(JOB), read_plan(PLAN)))
    return "\n".join([_INTRODUCTION.replace("SCRIPT", script), *answer_sections(Launch)])
