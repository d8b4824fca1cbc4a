"""Which images did the sequences of a measured run have, and what did its vision encoder train and compute again?

Two columns say how many images there are and how many tokens each becomes. The encoder is that of the catalogue's model: no
column has its shape. What a row leaves open about it is the habit of the framework.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.measured.cells import vision_notes
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.cells.words import NO, YES, is_yes
from planner.measured.frameworks.names import (
    freezes_encoders,
    is_megatron_bridge,
    is_torchtitan,
    trains_whole_models,
)
from planner.measured.workload.model_names import known_encoder
from simulator.domain.model import ModelShape
from simulator.domain.vision import VisionEncoder

PREFIX, VISION_PREFIX = "images_", "vision_"
"""What tells the cells of images, and of the encoder, from others."""
PER_SEQUENCE, TOKENS = "images_per_sequence", "tokens_per_image"
"""Columns of images."""
FROZEN = "freeze_vision_model"
"""Column that says whether the encoder is frozen, named as Megatron-Bridge's option."""
TRAINED, AGAIN = f"{PREFIX}trains_encoder", f"{PREFIX}encoder_recompute"
FOLLOWS = "encoder_follows"
"""Cell that says whether the encoder computes again what the language model does, whatever that turns out to be."""


def image_cells(told: Told, known: ModelShape | None, cells: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields of `Images` and `VisionEncoder`, with their prefixes; nothing for text alone.

    Args:
        told: the row.
        known: the catalogue's model of that name and size.
        cells: recomputation of the run, and the rank of its adapters if it has some.

    Raises:
        CannotModelError: one of the two columns alone, images that do not fit into a sequence, or no encoder in the catalogue.
    """
    if not _has_images(told):
        _remark_text_alone(told, known)
        return {}
    vision = _encoder(told, known)
    for meaning in vision_notes.other_frozen_parts(told.text("notes")):
        told.remark("notes", meaning)
    shape = {f"{VISION_PREFIX}{name}": value for name, value in vision.model_dump().items()}
    return {
        **shape,
        f"{VISION_PREFIX}projector_sizes": " ".join(map(str, vision.projector_sizes)),
        PER_SEQUENCE: told.cells.numbers[PER_SEQUENCE],
        f"{PREFIX}tokens_per_image": told.count(TOKENS),
        **_training_cells(told, vision, cells),
    }


def freezes_encoder(written: str) -> bool | None:
    """Returns whether the column says that the encoder is frozen; `None` if it says nothing.

    Raises:
        InputError: it says something else than yes or no.
    """
    return is_yes(FROZEN, written, yes=(*YES, "frozen"), no=(*NO, "trained"))


def recomputed_alike(cells: Mapping[str, object], num_layers: int) -> str:
    """Returns what an encoder computes again that has the settings of the language model.

    Where these are a number of layers, as many of the encoder are computed again: all or nothing is simulated, whichever is
    nearer.

    Args:
        cells: recomputation of the language model, as fields or as text.
        num_layers: of the encoder.
    """
    count = str(cells.get("recompute_num_layers") or "")
    is_block = bool(count) and cells.get("recompute_method") != "uniform"
    return "none" if is_block and 2 * int(count) < num_layers else str(cells["recompute"])


def with_encoder(row: Mapping[str, str], again: Mapping[str, str]) -> dict[str, str]:
    """Returns other cells of recomputation for a row, with those of an encoder that follows the language model."""
    if row.get(FOLLOWS) != "true":
        return dict(again)
    num_layers = int(row[f"{VISION_PREFIX}num_layers"])
    return {**again, AGAIN: recomputed_alike({**row, **again}, num_layers)}


def _has_images(told: Told) -> bool:
    """Returns whether sequences have images.

    Raises:
        CannotModelError: only one of the two columns is given, or they leave no room for themselves.
    """
    numbers = told.cells.numbers
    per_sequence, tokens = numbers.get(PER_SEQUENCE), numbers.get(TOKENS)
    if per_sequence == 0.0 or not (per_sequence or tokens):
        return False
    if not (per_sequence and tokens):
        given, missing = (PER_SEQUENCE, TOKENS) if per_sequence else (TOKENS, PER_SEQUENCE)
        rule = f"images need {missing}, too; give both, or neither for text alone"
        raise CannotModelError(f"{given} = {numbers[given]:g}: {rule}")
    sequence = numbers.get("seq_len")
    if sequence and tokens * max(1.0, per_sequence) > sequence:
        rule = f"must not exceed seq_len ({sequence:.0f}), which counts tokens of images, too"
        raise CannotModelError(
            f"{TOKENS} ({tokens:.0f}), and this times {PER_SEQUENCE} ({per_sequence:g}), {rule}"
        )
    return True


def _remark_text_alone(told: Told, known: ModelShape | None) -> None:
    """Remarks what speaks of the images of a model that could see them, where no column says whether there were some."""
    if PER_SEQUENCE in told.cells.numbers or not (known and known_encoder(told.name("model"))):
        return
    meaning = f"the language model is simulated alone; give {PER_SEQUENCE} and {TOKENS} of images"
    if said := vision_notes.words_for_images(told.text("notes")):
        told.remark("notes", f"{said}: {meaning}")
    if freezes_encoder(told.text(FROZEN)):
        told.remark(FROZEN, meaning)


def _encoder(told: Told, known: ModelShape | None) -> VisionEncoder:
    """Returns the encoder of the catalogue's model.

    Raises:
        CannotModelError: the catalogue does not have the model, or has it without an encoder.
    """
    name = told.name("model") or "not named"
    vision = known_encoder(name) if known else None
    if vision is None:
        what = f"{known.name} of the catalogue has none" if known else "this is none of them"
        rule = "images need a vision encoder, which is known only of models of the catalogue"
        raise CannotModelError(f"model {name}: {rule}, and {what} (`capplan catalog models`)")
    return vision


def _training_cells(told: Told, vision: VisionEncoder, cells: Mapping[str, object]) -> dict[str, object]:
    """Returns whether an encoder is trained and what it computes again; nothing beside adapters, which leave it as it is."""
    if cells.get("lora_rank"):
        return {}
    if not _trains_encoder(told):
        return {TRAINED: False}
    again = {TRAINED: True}
    said = "; ".join(told.text(column) for column in ("recompute", "notes"))
    alike = recomputed_alike(cells, vision.num_layers)
    is_told = vision_notes.recomputes_encoder(said)
    if is_told is not None:
        return {**again, AGAIN: ("full" if alike == "none" else alike) if is_told else "none"}
    if _follows_language_model(told, vision):
        return {**again, AGAIN: told.default(AGAIN, alike), FOLLOWS: True}
    return {**again, AGAIN: told.default(AGAIN, "none")}


def _trains_encoder(told: Told) -> bool:
    """Returns whether an encoder is trained, by its column or else the notes or the habit of the framework."""
    is_frozen, noted = freezes_encoder(told.text(FROZEN)), vision_notes.trains_encoder(told.text("notes"))
    if is_frozen is not None:
        return not is_frozen
    return told.default(TRAINED, not freezes_encoders(told.framework)) if noted is None else noted


def _follows_language_model(told: Told, vision: VisionEncoder) -> bool:
    """Returns whether an encoder has the recomputation of the language model where nothing is said.

    Megatron-Bridge copies it to its own encoders (`get_vision_model_config`), not to modules of Hugging Face, and Megatron-LM's
    `pretrain_vlm.py` to all. torchtitan applies the same policy (`qwen3_5/parallelize.py`), and so do trainers of whole models,
    whose encoders have layers with gradient checkpointing, too (`GradientCheckpointingLayer`).
    """
    name = told.framework
    return (
        (is_megatron_bridge(name) and not vision.is_replicated)
        or is_torchtitan(name)
        or trains_whole_models(name)
        or vision_notes.recomputes_as_language_model(told.text("notes"))
    )
