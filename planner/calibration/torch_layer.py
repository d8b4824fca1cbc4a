"""What is a transformer layer in PyTorch? Blocks like those of Llama and GPT, several in a row, forward and backward.

Weights and products are in 16 bits and nothing is recomputed, as on one accelerator under FSDP. Blocks like Llama's have the
small operators of torchtitan (`simulator.layers.eager_operators`), either compiled or launched one by one. Compiled blocks
apply the rotary embedding to pairs of reals, since PyTorch's compiler leaves complex products as they are. In 8 bits, every
product's inputs are cast with a scale from their largest value, as in torchao's float8 linear layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from simulator.domain.model import ModelShape

Tensor = Any
Context = Any
"""What PyTorch keeps between the two passes of a function."""
Linear = Callable[..., Tensor]
"""Product of an input and a weight, with an optional bias."""
Layer = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""A layer as a function of its input and its weights."""
EPSILON = 1e-5
ROTARY_BASE = 10_000.0
WEIGHT_SCALE = 0.02
LARGEST_VALUES = {"float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0}
"""Formats of inputs and weights, and of gradients."""


def weights_of(torch: ModuleType, shape: ModelShape, device: str) -> list[Tensor]:
    """Returns the weights of one layer in the order in which the layer takes them."""
    hidden, width = shape.hidden_size, shape.num_heads * shape.head_dim
    shared, ffn = shape.num_kv_heads * shape.head_dim, shape.ffn_hidden_size
    in_bf16 = {"device": device, "dtype": torch.bfloat16}

    def matrix(rows: int, columns: int) -> Tensor:
        return WEIGHT_SCALE * torch.randn((rows, columns), **in_bf16)

    def ones() -> Tensor:
        return torch.ones(hidden, **in_bf16)

    def zeros(rows: int) -> Tensor:
        return torch.zeros(rows, **in_bf16)

    if shape.is_gated:
        attention = [
            ones(),
            *(matrix(rows, hidden) for rows in (width, shared, shared)),
            matrix(hidden, width),
        ]
        weights = [*attention, ones(), matrix(ffn, hidden), matrix(ffn, hidden), matrix(hidden, ffn)]
    else:
        joint = width + 2 * shared
        attention = [ones(), zeros(hidden), matrix(joint, hidden), zeros(joint), matrix(hidden, width)]
        feed_forward = [matrix(ffn, hidden), zeros(ffn), matrix(hidden, ffn), zeros(hidden)]
        weights = [*attention, zeros(hidden), ones(), zeros(hidden), *feed_forward]
    return [weight.requires_grad_() for weight in weights]


def layer_of(
    torch: ModuleType,
    shape: ModelShape,
    sequence_length: int,
    device: str,
    *,
    is_compiled: bool,
    is_cast: bool,
) -> Layer:
    """Returns a layer of a model, which the caller may compile.

    Args:
        torch: PyTorch.
        shape: the model; only its layers matter.
        sequence_length: tokens per sequence.
        device: where its tables of positions are.
        is_compiled: whether the rotary embedding is applied to pairs of reals.
        is_cast: whether products are in 8 bits.
    """
    linear = float8_linear(torch) if is_cast else torch.nn.functional.linear
    if not shape.is_gated:
        return _gpt_layer(torch, shape, linear)
    return _llama_layer(
        torch, shape, linear, _turn(torch, shape.head_dim, sequence_length, device, is_real=is_compiled)
    )


def _llama_layer(
    torch: ModuleType, shape: ModelShape, linear: Linear, turn: Callable[[Tensor], Tensor]
) -> Layer:
    functional = torch.nn.functional
    is_shared = shape.num_kv_heads < shape.num_heads

    def norm(values: Tensor, weight: Tensor) -> Tensor:
        wide = values.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).type_as(values) * weight

    def layer(inputs: Tensor, weights: Sequence[Tensor]) -> Tensor:
        first, query, key, value, output, second, gate, up, down = weights
        heads = (*inputs.shape[:2], -1, shape.head_dim)
        normed = norm(inputs, first)
        queries, keys, values = (linear(normed, one).view(heads) for one in (query, key, value))
        attended = functional.scaled_dot_product_attention(
            *(one.transpose(1, 2) for one in (turn(queries), turn(keys), values)),
            is_causal=True,
            enable_gqa=is_shared,
        )
        between = inputs + linear(attended.transpose(1, 2).flatten(2), output)
        normed = norm(between, second)
        return between + linear(functional.silu(linear(normed, gate)) * linear(normed, up), down)

    return layer


def _gpt_layer(torch: ModuleType, shape: ModelShape, linear: Linear) -> Layer:
    functional = torch.nn.functional
    hidden = (shape.hidden_size,)

    def layer(inputs: Tensor, weights: Sequence[Tensor]) -> Tensor:
        first, first_bias, joint, joint_bias, output, output_bias = weights[:6]
        second, second_bias, up, up_bias, down, down_bias = weights[6:]
        heads = (*inputs.shape[:2], 3, shape.num_heads, shape.head_dim)
        normed = functional.layer_norm(inputs, hidden, first, first_bias)
        parts = linear(normed, joint, joint_bias).view(heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        between = inputs + linear(attended.transpose(1, 2).flatten(2), output, output_bias)
        normed = functional.layer_norm(between, hidden, second, second_bias)
        activated = functional.gelu(linear(normed, up, up_bias), approximate="tanh")
        return between + linear(activated, down, down_bias)

    return layer


def _turn(
    torch: ModuleType, head_dim: int, sequence_length: int, device: str, *, is_real: bool
) -> Callable[[Tensor], Tensor]:
    """Returns a function that rotates heads by their positions (rotary embedding)."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angles = torch.outer(torch.arange(sequence_length, device=device).float(), frequencies)
    cosines, sines = angles.cos()[None, :, None], angles.sin()[None, :, None]
    complex_turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]

    def turned_in_reals(heads: Tensor) -> Tensor:
        left, right = heads.float().chunk(2, -1)
        return torch.cat((left * cosines - right * sines, right * cosines + left * sines), -1).type_as(heads)

    def turned(heads: Tensor) -> Tensor:
        pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * complex_turns).flatten(-2).type_as(heads)

    return turned_in_reals if is_real else turned


def scaled_product(
    torch: ModuleType, left: Tensor, right: Tensor, scales: tuple[Tensor, Tensor], *, is_forward: bool
) -> Tensor:
    """Returns an 8-bit product in 16 bits, with its right side stored transposed; gradients do not use fast accumulation."""
    return torch._scaled_mm(  # noqa: SLF001 # PyTorch's only 8-bit product; torchao calls it, too
        left,
        right,
        scale_a=scales[0],
        scale_b=scales[1],
        out_dtype=torch.bfloat16,
        use_fast_accum=is_forward,
    )


@cache
def float8_linear(torch: ModuleType) -> Linear:
    """Returns an 8-bit product, forward and backward: inputs and weights in E4M3, gradients in E5M2, one scale per tensor."""

    def cast(values: Tensor, name: str) -> tuple[Tensor, Tensor]:
        scale = values.abs().amax().float().clamp(min=1e-12) / LARGEST_VALUES[name]
        return (values.float() / scale).to(getattr(torch, name)), scale

    class Float8Linear(torch.autograd.Function):  # type: ignore[misc, name-defined] # a module's attribute
        @staticmethod
        def forward(context: Context, inputs: Tensor, weight: Tensor) -> Tensor:
            context.save_for_backward(inputs, weight)
            (left, left_scale), (right, right_scale) = (
                cast(inputs, "float8_e4m3fn"),
                cast(weight, "float8_e4m3fn"),
            )
            return scaled_product(torch, left, right.t(), (left_scale, right_scale), is_forward=True)

        @staticmethod
        def backward(context: Context, gradient: Tensor) -> tuple[Tensor, Tensor]:
            inputs, weight = context.saved_tensors
            (left, left_scale), (right, right_scale) = (
                cast(inputs, "float8_e4m3fn"),
                cast(weight, "float8_e4m3fn"),
            )
            back, back_scale = cast(gradient, "float8_e5m2")
            of_inputs = scaled_product(
                torch, back, right.t().contiguous().t(), (back_scale, right_scale), is_forward=False
            )
            of_weight = scaled_product(
                torch,
                back.t().contiguous(),
                left.t().contiguous().t(),
                (back_scale, left_scale),
                is_forward=False,
            )
            return of_inputs, of_weight

    def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = Float8Linear.apply(inputs.flatten(0, -2), weight).unflatten(0, inputs.shape[:-1])
        return product if bias is None else product + bias

    return linear
