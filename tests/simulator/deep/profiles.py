"""What input do the readers of PyTorch's files get in tests? A step of three operators, as profile and as execution trace."""

from __future__ import annotations

import json
from pathlib import Path

Entry = dict[str, object]


def event(name: str, begin: float, length: float, **fields: object) -> Entry:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "ts": begin,
        "dur": length,
        "pid": 1,
        "tid": 1,
        **fields,
    }


def launched(number: int, begin: float, length: float, name: str = "gemm", tid: int = 1) -> list[Entry]:
    """A launch and its kernel."""
    about = {"correlation": number}
    return [
        event("cudaLaunchKernel", begin, 1.0, cat="cuda_runtime", tid=tid, args=about),
        event(name, begin + 100.0, length, cat="kernel", tid=7, args=about),
    ]


def tensor(number: int, elements: int = 8) -> list[object]:
    return [number, number + 100, 0, elements, 4, "cuda:0"]


def node(number: int, name: str, **fields: object) -> Entry:
    return {"id": number, "name": name, "rf_id": number, "parent": 1, "tid": 1, "scope": 0, **fields}


EVENTS = [
    event("aten::linear", 0.0, 10.0),
    event("aten::addmm", 1.0, 8.0),
    *launched(1, 2.0, 500.0),
    event("aten::view", 11.0, 2.0),
    event("autograd::engine::evaluate_function: AddmmBackward0", 20.0, 10.0, tid=2),
    *launched(2, 21.0, 700.0, tid=2),
    event("Optimizer.step#SGD.step", 40.0, 20.0, cat="user_annotation"),
    event("aten::_foreach_add_", 41.0, 5.0),
    *launched(3, 42.0, 30.0),
]
NODES = [
    node(1, "[pytorch|profiler|execution_trace|thread]", scope=7),
    node(
        2,
        "aten::linear",
        inputs=[tensor(1), tensor(2, 64), tensor(3)],
        outputs=[tensor(4)],
        input_shapes=[[1, 8], [8, 8], [8]],
        op_schema="aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    ),
    node(5, "autograd::engine::evaluate_function: AddmmBackward0"),
    node(6, "AddmmBackward0", parent=5, inputs=[tensor(5)]),
    node(7, "aten::mm", parent=6, inputs=[tensor(5), tensor(2, 64)], outputs=[tensor(6, 64)]),
    node(8, "Optimizer.step#SGD.step", scope=7),
    node(9, "aten::_foreach_add_", parent=8, inputs=[[tensor(2, 64), tensor(3)], [tensor(6, 64)]]),
]


def written(folder: Path, events: list[Entry], nodes: list[Entry], *, prefix: str = "") -> tuple[Path, Path]:
    profile, graph = folder / f"{prefix}profile.json", folder / f"{prefix}graph.json"
    profile.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    graph.write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
    return profile, graph
