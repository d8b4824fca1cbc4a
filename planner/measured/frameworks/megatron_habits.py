"""How do Megatron and the frameworks built on it train? Megatron-LM, Megatron-Core, NeMo, Megatron-Bridge, vTrain, nanotron."""

from __future__ import annotations

from dataclasses import replace

from planner.measured.frameworks import deepspeed_bytes
from planner.measured.frameworks.habits import Habits

EARLY_MEGATRON = Habits(
    name="Megatron of 2021-22",
    attention="unfused",
    kernel_launch="eager-2022",
    has_sequence_parallel=False,
    overlaps_gradient_sync=False,
    divides_gradients=True,
    zero_stage=0,
)
"""Gradients are divided ahead of their reduction (`allreduce_gradients` of `megatron/model/distributed.py`)."""
MEGATRON_2022 = replace(EARLY_MEGATRON, name="Megatron-LM of 2022", overlaps_input_gradients=True)
"""Sums of input gradients run beside a product since September 2021, behind v2.6 (`async_tensor_model_parallel_allreduce`, on
by default), which v3.0 and Korthikanti et al. (arXiv 2205.05198) had. DeepSpeed's fork of 2021 had not, and turns it off since
(`arguments.py`: "DeepSpeed seems to be incompatible"), but for sequence parallelism."""
VTRAIN = replace(
    EARLY_MEGATRON, name="vTrain", pads_vocabulary=False, divides_gradients=False, fuses_update=True
)
"""Its code splits GPT-2's 50,257 words without filling them up (`src/model/gpt_modeling.py`). Its steps of one node are sums of
profiled layers, all-reduces and Adam, with nothing that a framework does to gradients besides."""
VTRAIN_RUNS = replace(
    EARLY_MEGATRON, name="vTrain's runs (Megatron-DeepSpeed)", fp16_step_bytes=deepspeed_bytes.STEP
)
"""Its iterations on several nodes ran in DeepSpeed."""
MEGATRON_LM = Habits(
    name="Megatron-LM",
    overlaps_input_gradients=True,
    overlaps_gradient_sync=False,
    checks_gradients=True,
    divides_gradients=True,
    expert_products="separate",
)
"""Megatron-LM overlaps the synchronisation of gradients only on request (`--overlap-grad-reduce`); experts of Megatron are
those of Transformer Engine. Whole gradients are looked through for NaN since December 2023 unless it is told not to, and
divided unless it is told to average in the collective (`arguments.py`)."""
MEGATRON_CORE = replace(
    MEGATRON_LM, name="Megatron-Core", overlaps_tensor_comm=True, overlaps_gradient_sync=True
)
"""Its published runs overlap data-, tensor- and pipeline-parallel traffic (README of NVIDIA/Megatron-LM; MegaScale, arXiv
2402.15627)."""
PRIMUS = replace(MEGATRON_CORE, name="Primus", overlaps_tensor_comm=False, logit_bytes=2)
"""AMD's recipes of Megatron (`examples/megatron/configs`, August 2026): none of some 270 overlaps tensor-parallel traffic, most
overlap that of gradients, which are checked and divided (`trainer_base.yaml`), and their loss is that of Transformer Engine
(`cross_entropy_fusion_impl: "te"`)."""
NEMO = Habits(
    name="NeMo, Megatron-Bridge",
    overlaps_input_gradients=True,
    overlaps_tensor_comm=True,
    gradient_bytes=2,
    sync_bytes=2,
    gathers_cast_weights=True,
    expert_products="separate",
    pads_to_capacity=True,
    picks_chunks=True,
)
"""Most of NVIDIA's published recipes with pipelines interleave them, of 2 to 12 chunks a stage; some pages leave that out.
Those in fp8 gather weights in 8 bits (`fp8_param_gather` of `mixed_precision.py`, `fp8_params` before). The collective averages
gradients (`average_in_collective`), and recipes for measuring speed look for no NaN (`check_for_nan_in_grad = False` of
`perf_recipes` and of NeMo's `scripts/performance`)."""
BRIDGE = replace(
    NEMO,
    expert_dispatch="deduplicated",
    overlaps_far_experts=True,
    logit_bytes=2,
    predicting_models=(
        (r"deepseek[-_ ]?v3|\bdsv3|\bglm[-_ ]?4\.?5(?!v)|qwen[-_ ]?3[-_ ]?next", 1),
        (r"nemotron[-_ ]?3[-_ ](super|ultra)", 2),
    ),
)
"""Its recipes take DeepEP or Hybrid-EP, and overlap them on H100, where experts span several nodes; their loss is that of
Transformer Engine, which works in place on 16-bit logits (`cross_entropy_fusion_impl = "te"`). Those of DeepSeek-V3 and GLM-4.5
set `mtp_num_layers = 1` since its first release (`recipes/deepseek/h100/deepseek_v3.py`, `recipes/glm/h100/glm45.py`), on which
those of performance are built; pages say `w/o MTP` where a run left it out (25.11). That of Qwen3-Next does the same
(`recipes/qwen/h100/qwen3_next.py`); those of Nemotron 3 Super and Ultra run one module twice (`recipes/nemotronh/h100`:
`mtp_num_layers = 2`, `mtp_use_repeated_layer`), which is simulated as two."""
NEMO_APEX = replace(NEMO, optimizer_bytes=10.0, splits_masters=True, update_bytes=0.0, fuses_update=True)
"""Until 24.05 its optimizer was that of apex, which works on gradients as they are, clips them inside the update and keeps of
a bf16 weight's master only the other 16 bits (`store_param_remainders` in `megatron_gpt_model.py` and
`distributed_fused_adam.py`)."""
NEMO_2023 = Habits(
    name="NeMo 23 on A100",
    overlaps_input_gradients=True,
    attention="unfused",
    has_sequence_parallel=False,
    optimizer_bytes=NEMO_APEX.optimizer_bytes,
    splits_masters=NEMO_APEX.splits_masters,
    update_bytes=NEMO_APEX.update_bytes,
    fuses_update=NEMO_APEX.fuses_update,
)
NANOTRON = Habits(name="nanotron", pads_vocabulary=False, gathers_cast_inputs=False)
"""Megatron's layouts with gradients that are summed in 32 bits (`accumulate_grad_in_fp32`) and reduced behind the backward
pass; `make_vocab_size_divisible_by` is 1 by default."""
