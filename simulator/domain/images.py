"""Which images do the sequences of a multimodal model have, and what is trained of its vision encoder?

Frames of a video count as images; where a patch covers several frames, these are one image.
"""

from __future__ import annotations

from pydantic import Field

from simulator.domain.plan import Recompute
from simulator.record import Record


class Images(Record):
    """Images in the sequences of a multimodal model; their tokens are among those of the sequence."""

    tokens_per_image: int = Field(gt=0, le=10_000_000)
    """Tokens of the language model that an image becomes (Gemma 3: 256; LLaVA: 576)."""
    per_sequence: float = Field(ge=1e-9, le=1e6)
    """Images of a sequence, on average."""
    imbalance: float = Field(default=1.0, ge=1, le=1e6)
    """Patches of the rank with the most images in a micro-batch over those of the average one. 1: all have as many."""
    trains_encoder: bool = True
    """Whether the encoder is trained, or frozen (Megatron: `freeze_vision_model`); its projectors are trained in any case, but
    under low-rank adaptation, which trains neither."""
    encoder_recompute: Recompute = Recompute.NONE
    """What the encoder recomputes in the backward pass, whatever a plan does of the language model. `selective`: its attention
    cores; `full`: each layer from its input (Megatron-LM: `--recompute-vision`)."""

    @property
    def tokens_per_sequence(self) -> float:
        """Tokens of a sequence that stand for images, on average."""
        return self.per_sequence * self.tokens_per_image

    @property
    def most_tokens(self) -> float:
        """The most tokens that images take in a sequence: of one image, or of all on the rank that has most."""
        return self.tokens_per_image * max(1.0, self.most_per_sequence)

    @property
    def most_per_sequence(self) -> float:
        """Images of a sequence on the rank that has most."""
        return self.per_sequence * self.imbalance
