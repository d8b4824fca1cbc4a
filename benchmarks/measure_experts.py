"""How long do experts take if PyTorch launches each operator on its own, and what does the simulator predict?

    python -m benchmarks.measure_experts --output FILE.csv
    python -m benchmarks.measure_experts --write

The first command needs PyTorch. It times the experts of seven models on this machine's GPU, forward and backward, with tokens
routed evenly over all experts. The second simulates the times in `benchmarks/data/experts.csv`, to which nothing was fitted,
and puts the table into docs/model/kernels.md.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from benchmarks.sheets import Sheet
from benchmarks.validate_steps import print_sheet, with_tables
from planner.calibration.layers import job_on_one
from planner.calibration.torch import torch_device
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.workload import Workload
from simulator.errors import CapplanError
from simulator.layers.host_time import BACKWARD_RATIO
from simulator.layers.layer_costs import ROUTED_EXPERTS, feed_forward_operators
from simulator.layers.moved_operators import (
    activation_bytes,
    activation_kernels,
    routed_values,
    shared_values,
)
from simulator.layers.recomputed_modules import SHARED_EXPERTS
from simulator.machine.rank import Rank
from simulator.table import total

Tensor = Any
MEASURED_FILE = Path(__file__).parent / "data" / "experts.csv"
PAGE = Path(__file__).parents[1] / "docs" / "model" / "kernels.md"
MODELS = (
    "mixtral-8x7b",
    "mixtral-8x22b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "deepseek-v2-lite",
    "dbrx-132b",
    "deepseek-v3",
)
NUM_TOKENS = (4096, 16384)
SEQUENCE = 4096
WEIGHT_SCALE = 0.02
WARM_UP_S = LOAD_S = 1.0
"""Of a loaded GPU, before what is timed and while it is."""
LEAST_REPEATS = 5
PRODUCTS = ("gemm", "cutlass", "nvjet", "xmma")
"""What names of kernels of products contain."""
_PRODUCTS = (ROUTED_EXPERTS, SHARED_EXPERTS, "router")


@dataclass(frozen=True, kw_only=True)
class MeasuredExperts:
    """Experts of one layer, router and shared ones with them, on one GPU."""

    device: str
    software: str
    date: str
    model: str
    num_tokens: int
    forward_s: float
    backward_s: float
    products_s: float
    """Matrix products of both passes, by their kernels."""
    others_s: float
    """All other kernels of both passes."""
    num_kernels: int


def read_experts(path: Path = MEASURED_FILE) -> list[MeasuredExperts]:
    """Returns the experts of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            MeasuredExperts(
                **{field.name: _TYPES[str(field.type)](row[field.name]) for field in fields(MeasuredExperts)}
            )
            for row in csv.DictReader(file)
        ]


_TYPES: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


def experts_of(
    torch: ModuleType, shape: ModelShape, num_tokens: int, device: str
) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """Returns the experts of a layer of tokens `(num_tokens, h)`, and their weights.

    The router computes its choice, as in training, but tokens go to all experts in turn.
    """
    experts, hidden = shape.experts, shape.hidden_size
    assert experts is not None
    functional, top = torch.nn.functional, experts.experts_per_token
    number, width, shared = (
        experts.num_experts,
        experts.expert_ffn_hidden_size,
        experts.shared_ffn_hidden_size,
    )

    def matrix(*size: int) -> Tensor:
        return (WEIGHT_SCALE * torch.randn(size, device=device, dtype=torch.bfloat16)).requires_grad_()

    weights = [
        matrix(number, hidden),
        *(matrix(number, hidden, width) for _ in range(2)),
        matrix(number, width, hidden),
    ]
    if shared:
        weights += [matrix(shared, hidden), matrix(shared, hidden), matrix(hidden, shared)]
    in_turn = torch.arange(num_tokens * top, device=device) % number
    chosen = in_turn.view(num_tokens, top)[torch.randperm(num_tokens, device=device)]

    def layer(inputs: Tensor) -> Tensor:
        router, gate, up, down = weights[:4]
        scores = functional.linear(inputs, router).float().softmax(-1)
        choice, _ = torch.topk(scores, top)
        weighing = torch.gather(scores, 1, chosen).flatten()
        order = torch.argsort(chosen.flatten(), stable=True)
        tokens = order // top
        ends = torch.cumsum(torch.bincount(chosen.flatten(), minlength=number), 0).to(torch.int32)

        def product(rows: Tensor, matrices: Tensor) -> Tensor:
            return functional.grouped_mm(rows, matrices, offs=ends)

        rows = inputs[tokens]
        returned = product(functional.silu(product(rows, gate)) * product(rows, up), down)
        weighed = (returned.float() * weighing[order][:, None]).to(inputs.dtype)
        outputs = torch.zeros_like(inputs).index_add(0, tokens, weighed)
        if shared:
            gate, up, down = weights[4:]
            linear = functional.linear
            outputs = outputs + linear(functional.silu(linear(inputs, gate)) * linear(inputs, up), down)
        return outputs + 0 * choice.sum().to(inputs.dtype)

    return layer, weights


def measure(torch: ModuleType, model: str, num_tokens: int) -> MeasuredExperts:
    """Returns the times of the experts of a model on the GPU."""
    shape = catalog.model(model)
    layer, weights = experts_of(torch, shape, num_tokens, "cuda")
    size = (num_tokens, shape.hidden_size)
    inputs, gradient = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    inputs.requires_grad_()

    def both_passes() -> list[Any]:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        outputs = layer(inputs)
        marks[1].record()
        torch.autograd.grad(outputs, [inputs, *weights], gradient)
        marks[2].record()
        return marks

    both_passes()
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    both_passes()
    torch.cuda.synchronize()
    once_s = time.perf_counter() - start_s
    for _ in range(int(WARM_UP_S / once_s) + 1):
        both_passes()
    marks = [both_passes() for _ in range(max(LEAST_REPEATS, int(LOAD_S / once_s)))]
    torch.cuda.synchronize()
    kernels = _kernels(torch, both_passes)
    products_s = sum(seconds for name, seconds in kernels if _is_product(name))
    return MeasuredExperts(
        device=torch.cuda.get_device_name(),
        software=f"PyTorch {torch.__version__}",
        date=datetime.now(UTC).date().isoformat(),
        model=model,
        num_tokens=num_tokens,
        forward_s=float(np.mean([first.elapsed_time(second) for first, second, _ in marks])) / 1e3,
        backward_s=float(np.mean([second.elapsed_time(third) for _, second, third in marks])) / 1e3,
        products_s=products_s,
        others_s=sum(seconds for _, seconds in kernels) - products_s,
        num_kernels=len(kernels),
    )


def _kernels(torch: ModuleType, both_passes: Callable[[], object]) -> list[tuple[str, float]]:
    """Returns names and seconds of the kernels of both passes."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
        both_passes()
        torch.cuda.synchronize()
    is_cuda = torch.autograd.DeviceType.CUDA
    events = [event for event in profile.events() if event.device_type == is_cuda and event.device_time > 0]
    return [(event.name, event.device_time / 1e6) for event in events]


def _is_product(name: str) -> bool:
    return any(word in name.lower() for word in PRODUCTS)


def simulated_s(model: str, num_tokens: int, accelerator: str) -> tuple[float, float]:
    """Returns what products and all other operators of the experts of a model take as simulated, both passes together."""
    workload = Workload(
        model=catalog.model(model),
        tokens=1e9,
        sequence_length=SEQUENCE,
        global_batch_size=num_tokens // SEQUENCE,
        has_fused_operators=False,
        gradient_bytes=2,
        added_gradient_bytes=0.0,
    )
    plan = Plan(offer=0, num_gpus=1, micro_batch_size=num_tokens // SEQUENCE)
    rank = Rank.of(job_on_one(accelerator, workload), PlanTable.from_plans([plan]))
    operators = {
        name: float(total(both)[0]) for name, both in feed_forward_operators(rank, is_expert=True).items()
    }
    activated_s = rank.memory_bound_s(
        activation_bytes(rank, routed_values(rank) + shared_values(rank)), activation_kernels(rank)
    )
    products_s = sum(operators.pop(name, 0.0) for name in _PRODUCTS)
    return products_s, sum(operators.values()) + (1.0 + BACKWARD_RATIO) * float(activated_s[0])


def experts_sheet(measured: Sequence[MeasuredExperts], accelerator: str) -> Sheet:
    """Returns measured times beside simulated ones."""
    lines = []
    for row in measured:
        products_s, others_s = simulated_s(row.model, row.num_tokens, accelerator)
        both_s = row.products_s + row.others_s
        errors = (
            products_s / row.products_s,
            others_s / row.others_s,
            (products_s + others_s) / both_s,
        )
        times = (row.products_s, row.others_s)
        lines.append(
            [
                row.model,
                f"{row.num_tokens:,}",
                *(f"{1e3 * seconds:.2f}" for seconds in times),
                *(f"{error - 1.0:+.1%}" for error in errors),
            ]
        )
    head = ("experts of", "tokens", "products, ms", "others, ms", "products", "others", "together")
    return Sheet(name="experts-one-by-one", head=head, lines=lines)


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), help="Measure the GPU of this machine into this file."
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path, exists=True),
    default=MEASURED_FILE,
    help="Times to simulate.",
)
@click.option(
    "--accelerator", default="h100-sxm5-80gb", help="The catalogue's name of what they were measured on."
)
@click.option("--write", is_flag=True, help="Put the table into docs/model/kernels.md.")
def main(output: Path | None, measured: Path, accelerator: str, *, write: bool) -> None:
    """Measures experts, or compares their times with simulated ones."""
    if output is not None:
        try:
            torch = torch_device().torch
        except CapplanError as error:
            raise click.ClickException(str(error)) from error
        rows = [measure(torch, model, number) for model in MODELS for number in NUM_TOKENS]
        with output.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file, [field.name for field in fields(MeasuredExperts)], lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(map(asdict, rows))
        return
    sheet = experts_sheet(read_experts(measured), accelerator)
    print_sheet(sheet)
    if write:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), [sheet]), encoding="utf-8")


if __name__ == "__main__":
    main()
