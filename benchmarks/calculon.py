"""How many designs per second does Calculon evaluate, given the same layouts as ours?

Calculon (Isaev et al., SC 2023; github.com/calculon-ai/calculon, Apache-2.0) is not part of this project. Its checkout is
given on the command line; it is imported, not copied.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, Recompute

MODEL, SYSTEM = Path("models") / "gpt3-175B.json", Path("systems") / "a100_80g.json"
RECOMPUTE = {Recompute.NONE: "none", Recompute.SELECTIVE: "attn_only", Recompute.FULL: "full"}


def load(checkout: Path) -> ModuleType:
    """Imports Calculon's model of a transformer from a checkout."""
    if not (checkout / MODEL).is_file():
        raise SystemExit(f"{checkout} is no checkout of Calculon: {MODEL} is missing")
    sys.path.insert(0, str(checkout))
    # Its command line asks psutil for the number of cores; nothing else does.
    sys.modules.setdefault("psutil", ModuleType("psutil"))
    return importlib.import_module("calculon.llm")


def comparable_rows(plans: PlanTable) -> NDArray[np.intp]:
    """Returns the designs that Calculon can express: no context parallelism, ZeRO up to stage 1, one per layout."""
    can = (plans.context_parallel == 1) & (plans.zero_stage <= 1) & (plans.expert_parallel == 1)
    rows = np.flatnonzero(can)
    names = ("tensor_parallel", "pipeline_parallel", "virtual_pipeline", "micro_batch_size", "recompute")
    layouts = np.column_stack([getattr(plans, name)[rows] for name in (*names, "zero_stage")])
    _, first = np.unique(layouts, axis=0, return_index=True)
    return rows[first]


def designs_per_s(module: ModuleType, checkout: Path, job: Job, plans: PlanTable) -> tuple[float, int]:
    """Returns how many designs Calculon evaluates per second of one core, and how many of these it finds feasible."""
    model = module.Llm.Application(json.loads((checkout / MODEL).read_text(encoding="utf-8")))
    system = module.System(json.loads((checkout / SYSTEM).read_text(encoding="utf-8")))
    settings = [_settings(job, plans, row) for row in range(len(plans))]
    num_feasible = 0
    started_s = time.process_time()
    for setting in settings:
        llm = module.Llm(model, logging.Logger("calculon"))  # noqa: LOG001  (as its own search makes them)
        try:
            llm.compile(system, module.Llm.Execution.from_json(setting))
            llm.run(system)
            llm.get_stats_json(False)  # noqa: FBT003
            num_feasible += 1
        except module.Llm.Error:
            pass
    return len(plans) / (time.process_time() - started_s), num_feasible


def _settings(job: Job, plans: PlanTable, row: int) -> dict[str, object]:
    """Returns one design in Calculon's terms."""
    plan = plans.plan(row)
    return {
        "num_procs": plan.num_gpus,
        "tensor_par": plan.tensor_parallel,
        "pipeline_par": plan.pipeline_parallel,
        "data_par": plan.data_parallel,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": job.workload.global_batch_size,
        "microbatch_size": plan.micro_batch_size,
        "datatype": "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTE[plan.recompute],
        "pipeline_interleaving": plan.virtual_pipeline,
        "optimizer_sharding": plan.zero_stage == 1 and plan.data_parallel > 1,
        "tensor_par_comm_type": "rs_ag" if plan.tensor_parallel > 1 else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": plan.data_parallel > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
