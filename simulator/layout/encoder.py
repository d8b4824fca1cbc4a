"""How is a vision encoder run? As a transformer of its own, whose sequences are images, on the ranks of the first stage.

Tensor-parallel ranks share its heads and its feed-forward blocks as they share those of the language model, but neither norms
nor residuals, unless each runs all of it; context-parallel ranks each encode all images of their sequences, since these are
placed among the text before it is cut (Megatron-LM, `pretrain_vlm.py` and `examples/multimodal/model.py` of August 2026:
`sequence_parallel = False`, `context_parallel_size = 1`). Its products stay in 16 bits, and no graph launches its kernels,
since images differ in size (Megatron-Bridge: `vision_cuda_graph_impl` is none). It is recomputed where the workload says so,
whatever a plan recomputes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable, Recompute
from simulator.domain.recompute_modules import CORE
from simulator.domain.vision import SEEN_FROM_BOTH_SIDES, VisionEncoder
from simulator.domain.workload import Workload
from simulator.table import Floats


def encoder_shape(vision: VisionEncoder) -> ModelShape:
    """Returns the layers of a vision encoder as those of a transformer; biases and what is at its ends are left out."""
    return ModelShape(
        name="vision encoder",
        num_layers=vision.num_layers,
        hidden_size=vision.hidden_size,
        num_heads=vision.num_heads,
        num_kv_heads=vision.num_heads,
        head_dim=vision.head_dim,
        ffn_hidden_size=vision.ffn_hidden_size,
        is_gated=vision.is_gated,
        vocabulary_size=1,
        sliding_window=vision.windows(SEEN_FROM_BOTH_SIDES),
    )


@lru_cache(maxsize=64)
def encoder_workload(workload: Workload) -> Workload:
    """Returns what a workload with images trains in its vision encoder: sequences of the patches of an image."""
    images, vision = workload.images, workload.model.vision
    assert images is not None
    assert vision is not None
    return workload.model_copy(
        update={
            "model": encoder_shape(vision),
            "sequence_length": images.tokens_per_image * vision.patches_per_token,
            "documents": None,
            "kernel_launch": "eager" if workload.kernel_launch == "graph" else workload.kernel_launch,
            "has_sequence_parallel": False,
            "overlaps_tensor_comm": False,
            "context_exchange": None,
            "copies_shared_heads": False,
            "selective_recompute": "attention",
            "recompute_modules": CORE,
            "mhc_recompute_layers": None,
            "activation_offload_fraction": 0.0,
            "lora": None,
        }
    )


def share_with_images(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the share of the micro-batches that have an image, `(n,)`: all, or, with less than one on average, so many."""
    images = workload.images
    assert images is not None
    return np.asarray(np.minimum(1.0, plans.micro_batch_size * images.most_per_sequence))


def encoder_plans(workload: Workload, plans: PlanTable) -> PlanTable:
    """Returns the plans of a workload as the layers of its vision encoder see them."""
    images, vision = workload.images, workload.model.vision
    assert images is not None
    assert vision is not None
    recompute = images.encoder_recompute if workload.trained_vision == "all" else Recompute.NONE
    return replace(
        plans,
        tensor_parallel=np.ones_like(plans.tensor_parallel)
        if vision.is_replicated
        else plans.tensor_parallel,
        context_parallel=np.ones_like(plans.context_parallel),
        data_parallel=plans.data_parallel * plans.context_parallel,  # ranks that share its weights
        precision=np.full_like(plans.precision, Precision.BF16.code),
        recompute=np.full_like(plans.recompute, recompute.code),
        recompute_num_layers=np.zeros_like(plans.recompute_num_layers),
    )
