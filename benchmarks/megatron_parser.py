"""Which command lines does Megatron-LM accept? Its own parser and checks, without an accelerator.

    PYTHON -m benchmarks.megatron_parser MEGATRON < requests > verdicts

`benchmarks.megatron_arguments` runs this with a Python that has PyTorch; nothing of capplan is imported. A request is a line of
JSON with `arguments`, `environment`, `num_gpus` and `architecture` (major and minor compute capability). A verdict has
`error`, empty if accepted with every flag still on, and what Megatron-LM derives: degrees, parameters, states of the first
stage, operations of a step.
Libraries that only matter for kernels and local checkpoints (Transformer Engine, FlashMLA, nvidia-resiliency-ext) are taken
as installed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import types
import typing
from importlib import import_module
from itertools import product
from typing import Any

PACKAGES = (
    "nvidia_resiliency_ext",
    "nvidia_resiliency_ext.checkpointing",
    "nvidia_resiliency_ext.checkpointing.local",
    "nvidia_resiliency_ext.checkpointing.local.ckpt_managers",
    "nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager",
)
"""What local checkpoints import."""
FUSED = {
    "models.common.embeddings.rope_utils": ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"),
    "transformer.moe.moe_utils": (
        "fused_permute",
        "fused_permute_with_probs",
        "fused_sort_chunks_by_index",
        "fused_sort_chunks_by_index_with_probs",
        "fused_unpermute",
    ),
}
"""Kernels of Transformer Engine, by the module of Megatron Core that asks for them."""


class Parser:
    """Megatron-LM's arguments, as a checkout has them."""

    def __init__(self, checkout: str) -> None:
        sys.path.insert(0, checkout)
        if not hasattr(typing, "override"):  # Python 3.11
            typing.override = lambda method: method  # type: ignore[attr-defined]
        for name in PACKAGES:
            module: Any = types.ModuleType(name)
            module.__path__, module.LocalCheckpointManager = [], object
            sys.modules[name] = module
        self.cuda = import_module("torch").cuda
        self.parser = import_module("megatron.training.arguments")
        self.memory = import_module("megatron.training.theoretical_memory_usage")
        self.loop = import_module("megatron.training.training")
        self.specs = import_module("megatron.core.models.gpt.experimental_attention_variant_module_specs")
        for name in ("megatron.core.transformer.transformer_config", "megatron.training.arguments"):
            vars(import_module(name))["is_te_min_version"] = lambda *_, **__: True
        config = import_module("megatron.core.transformer.transformer_config")
        vars(config)["_validate_dsa_kernel_backend_dependencies"] = lambda *_: None
        for name, kernels in FUSED.items():
            vars(import_module(f"megatron.core.{name}")).update(dict.fromkeys(kernels, object()))

    def verdict(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns what Megatron-LM makes of one command line."""
        major, minor = request["architecture"]
        self.cuda.get_device_capability = lambda *_: (major, minor)
        self.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=major, minor=minor)
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        os.environ |= {**request["environment"], "WORLD_SIZE": str(request["num_gpus"]), "RANK": "0"}
        sys.argv = ["pretrain_gpt.py", *request["arguments"]]
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                return self._accepted()
        except SystemExit:
            return {"error": said.getvalue().strip().splitlines()[-1]}
        except Exception as error:  # noqa: BLE001 (whatever a check raises is the verdict)
            return {"error": f"{type(error).__name__}: {error}"}

    def _accepted(self) -> dict[str, Any]:
        """What Megatron-LM derives from the arguments, if it accepts them."""
        arguments = self.parser.parse_args()
        asked = {name for name, value in vars(arguments).items() if value is True}
        self.parser.validate_args(arguments)
        given = {name.removeprefix("--").replace("-", "_") for name in sys.argv[1:]}
        # Muon shares out whole matrices in the place of that optimizer.
        replaced = {"use_distributed_optimizer"} if arguments.use_layer_wise_distributed_optimizer else set()
        ignored = sorted(name for name in asked & given - replaced if not getattr(arguments, name))
        self._check_stages(self.parser.core_transformer_config_from_args(arguments))
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            states_bytes = self.memory.compute_weight_and_optimizer_memory(arguments, verbose=True)
        billions = re.search(r"Total number of parameters in billions: ([\d.]+)", told.getvalue())
        return {
            "error": f"turns off {', '.join(ignored)}" if ignored else "",
            "data_parallel": arguments.data_parallel_size,
            "virtual_pipeline": arguments.virtual_pipeline_model_parallel_size or 1,
            "parameters": float(billions[1]) * 1e9 if billions else None,
            "states_bytes": states_bytes,
            "flop_per_step": self.loop.num_floating_point_operations(arguments, arguments.global_batch_size),
        }

    def _check_stages(self, config: types.SimpleNamespace) -> None:
        """Applies the check of layers that share what an indexer chooses, as each rank does when it builds its layers."""
        num_chunks = config.virtual_pipeline_model_parallel_size
        for rank, chunk in product(range(config.pipeline_model_parallel_size), range(num_chunks or 1)):
            place = {"vp_stage": chunk if num_chunks else None, "pp_rank": rank}
            if layout := config.pipeline_model_parallel_layout:
                layers = layout.get_layer_id_list(layer_type=self.specs.LayerType.decoder, **place)
            else:
                first = self.specs.get_transformer_layer_offset(config, **place)
                layers = range(first, first + self.specs.get_num_layers_to_build(config, **place))
            self.specs._validate_dsa_index_share_pipeline_split(config, layers)  # noqa: SLF001 (Megatron-LM's own)


def main() -> None:
    """Judges the requests on standard input."""
    parser = Parser(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(parser.verdict(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
