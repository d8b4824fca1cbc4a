"""Which vision encoders, and which jobs with images, do the simulator's tests use?"""

from __future__ import annotations

from simulator.domain.images import Images
from simulator.domain.model import ModelShape
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from tests.simulator.builders import changed, gpt, training

TOWER = VisionEncoder(
    num_layers=6,
    hidden_size=1024,
    num_heads=16,
    head_dim=64,
    ffn_hidden_size=4096,
    patch_values=588,
    num_learned_positions=576,
    patches_per_token=4,
    projector_sizes=(4096, 4096),
    other_parameters=1024,
)
"""Six layers of CLIP's size, with a projector of two products."""
DEEP_TOWER = changed(
    TOWER,
    num_projectors=3,
    projector_sizes=(4096, 2048, 4096),
    is_gated=True,
    window_patches=64,
    full_every=3,
)
"""Gated blocks, windows in two of three layers, three projectors of three products."""
IMAGES = Images(tokens_per_image=144, per_sequence=2.5)
"""576 patches an image, 1,440 patches a sequence."""
LANGUAGE = changed(gpt(num_layers=8), is_gated=True)
"""The language model."""


def with_tower(model: ModelShape = LANGUAGE, tower: VisionEncoder = TOWER) -> ModelShape:
    """Returns a language model with a vision encoder in front."""
    return changed(model, vision=tower)


def on_images(
    tower: VisionEncoder = TOWER, images: Images = IMAGES, *, model: ModelShape = LANGUAGE, **choices: object
) -> Workload:
    """Returns a training run on sequences of 4,096 tokens with images."""
    text = training(model, global_batch_size=64)
    return changed(text, model=with_tower(model, tower), images=images, **choices)
