"""What do the notes of a measured run say about images, and about the encoder that makes tokens of them?

Notes of multimodal runs say what of the model is frozen, and whether the encoder computes its activations again.
"""

from __future__ import annotations

import re

from planner.measured.cells.words import affirmed, is_denied

_ENCODER = (
    r"(?:(?:vision|visual|image)(?:[-_ ](?:encoder|model|tower|transformer|backbone|part))?|vit)s?"
    r"(?![a-z]|[-_ ]+(?:proj|merger|adapter|connector))"
)
_LANGUAGE = r"(?:llm|lm|language[-_ ](?:model|part))(?![a-z])"
_PROJECTORS = r"(?:(?:vision|visual|image)[-_ ])?(?:projection|projector|merger|connector)s?(?![a-z])"
_FREEZE = r"\b(?:frozen|freez(?:es?|ing))[-_ :]+(?:the )?"
_FROZEN = r"(?:[-_ :]+(?:is|are|was|were|kept))*[-_ :]+(?:frozen|not[-_ ]trained|untrained)\b"
_JOINED = r"(?:\s*(?:[,+&/]|\band\b)\s*(?:the )?)"


def _frozen(part: str) -> re.Pattern[str]:
    """Returns the ways to say that a part is frozen, alone or beside others: `frozen LM and ViT`, `ViT + LM frozen`."""
    other = f"(?:{_LANGUAGE}|{_PROJECTORS}|{_ENCODER})"
    return re.compile(
        rf"{_FREEZE}(?:{other}{_JOINED}){{0,2}}{part}|(?<![a-z]){part}(?:{_JOINED}{other}){{0,2}}{_FROZEN}",
        re.IGNORECASE,
    )


_FROZEN_ENCODER = _frozen(_ENCODER)
_TRAINED_ENCODER = re.compile(
    rf"(?<![a-z]){_ENCODER}(?: is| was)? (?:trained|trainable|not frozen|unfrozen)\b|\bnothing (?:is |was )?frozen\b"
    r"|\btrains_encoder\b",
    re.IGNORECASE,
)
_FROZEN_PARTS = (
    (_frozen(_LANGUAGE), "the language model is simulated as trained"),
    (_frozen(_PROJECTORS), "projectors are simulated as trained"),
)
"""What else may be frozen, and is not simulated so."""
_RECOMPUTED = re.compile(
    rf"\brecomput(?:e|es|ed|ing|ation)[-_ ](?:of[-_ ])?(?:the[-_ ])?{_ENCODER}"
    rf"|(?<![a-z]){_ENCODER}(?: layers?)?(?: is| are| was| were)?[-_ ]+(?:activation |gradient )?"
    r"(?:recomput(?:ed|ation|e)|checkpoint(?:ed|ing))\b",
    re.IGNORECASE,
)
"""`--recompute-vision` is Megatron-LM's option."""
_AS_LANGUAGE_MODEL = re.compile(r"\bpretrain_vlm\b", re.IGNORECASE)
_IMAGES = re.compile(
    r"(?<!docker )(?<!container )(?<![a-z])(?:images?|pictures?|videos?)\b(?! ?(?:nvcr|tag\b|:))"
    r"|\b(?:vision|visual)\b|\bvits?\b|\bmulti-?modal\b|\bvlms?\b|\bpixels?\b",
    re.IGNORECASE,
)
"""Words for images that a model sees, not for those of containers."""


def trains_encoder(notes: str) -> bool | None:
    """Returns whether a vision encoder is trained; `None` if the notes do not say."""
    if affirmed(_FROZEN_ENCODER, notes) or is_denied(_TRAINED_ENCODER, notes):
        return False
    is_trained = affirmed(_TRAINED_ENCODER, notes) or is_denied(_FROZEN_ENCODER, notes)
    return True if is_trained else None


def other_frozen_parts(notes: str) -> list[str]:
    """Returns the words for other parts that are frozen, and how these are simulated."""
    found = ((affirmed(words, notes), meaning) for words, meaning in _FROZEN_PARTS)
    return [f"{said[0]}: {meaning}" for said, meaning in found if said]


def recomputes_encoder(text: str) -> bool | None:
    """Returns whether a vision encoder computes activations again; `None` if a text does not say."""
    if is_denied(_RECOMPUTED, text):
        return False
    return True if affirmed(_RECOMPUTED, text) else None


def recomputes_as_language_model(notes: str) -> bool:
    """Returns whether notes name Megatron-LM's program whose encoder has the settings of the language model."""
    return bool(affirmed(_AS_LANGUAGE_MODEL, notes))


def words_for_images(notes: str) -> str:
    """Returns the first words that speak of images without denying them; empty where there are none."""
    found = affirmed(_IMAGES, notes)
    return found[0] if found else ""
