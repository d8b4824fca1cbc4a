"""How is a plan started? The arguments with which Megatron-LM runs it, and what it runs otherwise.

    refused       what it cannot run at all
    as_run        the plan as Megatron-LM can run it: what it does not have is replaced, and reported
    model, run    the arguments, group by group: the network; how it is split, computed and saved; `grouped_kernels`
    answer        both plans simulated, and the arguments, as values
    script        the same as a batch script of Slurm

Names of arguments are those of Megatron-LM's `main` of 22 August 2026 (commit d98e8a64, Megatron Core 0.20).
`benchmarks.megatron_arguments` passes the arguments of many plans to the parser and the checks of a checkout of it.
"""
