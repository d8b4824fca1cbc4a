"""Which variable makes Transformer Engine compute all experts of a rank in one kernel? Without one it computes each apart."""

from __future__ import annotations

from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan

_16_BITS = (Precision.BF16, Precision.FP16)


def grouped_kernel_variable(job: Job, plan: Plan) -> str | None:
    """Returns the variable that is set to 1 for `expert_products: grouped`; `None` where there is no such kernel.

    Transformer Engine has CUTLASS's kernel for 16 bits on Hopper since 2.8, one with the activation for MXFP8 on Blackwell
    since 2.14, and cuBLAS's for 16 bits on Blackwell since 2.17 (docs/model/experts.md). Experts with biases have none.
    """
    if job.workload.model.experts is None or job.workload.model.experts.has_biases:
        return None
    match job.offers[plan.offer].accelerator.kernel_family:
        case "hopper" if plan.precision in _16_BITS:
            return "NVTE_USE_CUTLASS_GROUPED_GEMM"
        case "blackwell" if plan.precision in _16_BITS:
            return "NVTE_GROUPED_LINEAR_USE_FUSED_GROUPED_GEMM"
        case "blackwell" if plan.precision is Precision.FP8 and job.workload.fp8_recipe == "mxfp8":
            return "NVTE_CUTEDSL_FUSED_GROUPED_MLP"
        case _:
            return None
