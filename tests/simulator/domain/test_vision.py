"""How many weights and operations does a vision encoder have, and which jobs with images are refused?"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simulator.domain.images import Images
from simulator.domain.lora import Lora
from simulator.domain.muon import Muon
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from simulator.layout.encoder import encoder_shape
from simulator.layout.trained_weights import num_trained_parameters, trained_flop_per_token
from tests.simulator.builders import changed, training
from tests.simulator.vision import DEEP_TOWER, IMAGES, LANGUAGE, TOWER, on_images, with_tower

H = 1024
LAYER = 12 * H * H + (3 * H + H + 4 * H + H) + 4 * H
"""Products, their biases, and two norms with biases."""
PATCHES = (588 + 576 + 1) * H
PROJECTOR = 4096 * 4096 + 4096 + 4096 * 2048 + 2048


class TestWeights:
    def test_parts_add_up(self) -> None:
        assert TOWER.layer_parameters == LAYER
        assert TOWER.patch_parameters == PATCHES
        assert TOWER.projector_parameters(2048) == PROJECTOR
        assert TOWER.parameters(2048) == 6 * LAYER + PATCHES + PROJECTOR

    def test_without_biases_only_matrices_and_norms_are_left(self) -> None:
        bare = changed(TOWER, has_biases=False, has_norm_biases=False, has_projector_biases=False)
        assert bare.layer_parameters == 12 * H * H + 2 * H
        assert bare.projector_parameters(2048) == 4096 * (4096 + 2048)

    def test_gates_and_several_projectors_count(self) -> None:
        assert DEEP_TOWER.layer_matrix_parameters == H * (4 * H + 3 * 4096)
        one = 4096 * 2048 + 2048 + 2048 * 4096 + 4096 + 4096 * 2048 + 2048
        assert DEEP_TOWER.projector_parameters(2048) == 3 * one

    def test_a_model_has_those_of_its_encoder_but_text_does_not_use_them(self) -> None:
        whole = with_tower()
        assert whole.num_parameters == LANGUAGE.num_parameters + TOWER.parameters(2048)
        assert whole.num_active_parameters == LANGUAGE.num_active_parameters
        assert whole.num_matrix_parameters == LANGUAGE.num_matrix_parameters

    def test_the_layers_of_the_shape_have_the_same_matrices(self) -> None:
        for tower in (TOWER, DEEP_TOWER):
            shape = encoder_shape(tower)
            assert shape.dense_layer_parameters == tower.layer_matrix_parameters + 2 * H


class TestProjectors:
    @pytest.mark.parametrize("first", [H, H * TOWER.patches_per_token])
    def test_they_read_one_patch_or_those_of_a_token(self, first: int) -> None:
        sizes = (first, 4096)
        assert VisionEncoder(**{**TOWER.model_dump(), "projector_sizes": sizes}).projector_sizes == sizes

    def test_another_width_is_told_with_both(self) -> None:
        rule = rf"projector_sizes begin with 1000 and must begin with hidden_size \({H}\), or with this times .* \(4096\)"
        with pytest.raises(ValidationError, match=rule):
            VisionEncoder(**{**TOWER.model_dump(), "projector_sizes": (1000, 4096)})


class TestTrained:
    def test_a_frozen_encoder_leaves_its_projectors(self) -> None:
        frozen = on_images(images=changed(IMAGES, trains_encoder=False))
        assert num_trained_parameters(on_images()) == with_tower().num_parameters
        assert num_trained_parameters(frozen) == LANGUAGE.num_parameters + PROJECTOR

    def test_adapters_leave_nothing(self) -> None:
        lora = Lora(rank=16)
        adapted = on_images(lora=lora)
        assert adapted.trained_vision == "nothing"
        assert num_trained_parameters(adapted) == num_trained_parameters(
            changed(training(LANGUAGE), lora=lora)
        )


class TestFlop:
    SHARE = 360 / 4096
    """Tokens of images among those of a sequence."""
    PATCH = 2.0 * 4 * 588 * H
    LAYERS = 4 * 6 * (2.0 * 12 * H * H + 4.0 * H * 576)
    FIRST, SECOND = 2.0 * 4096 * 4096, 2.0 * 4096 * 2048

    def test_all_weights_count_three_times_but_the_product_of_patches_twice(self) -> None:
        flop = on_images().model_flop_per_token - training(LANGUAGE).model_flop_per_token
        once = self.PATCH + self.LAYERS + self.FIRST + self.SECOND
        assert flop == pytest.approx(self.SHARE * (3.0 * once - self.PATCH))
        assert trained_flop_per_token(on_images()) == on_images().model_flop_per_token

    def test_a_frozen_encoder_has_no_backward_pass_and_its_projector_no_gradient_of_what_enters(self) -> None:
        frozen = on_images(images=changed(IMAGES, trains_encoder=False))
        flop = trained_flop_per_token(frozen) - training(LANGUAGE).model_flop_per_token
        assert flop == pytest.approx(
            self.SHARE * (self.PATCH + self.LAYERS + 2.0 * self.FIRST + 3.0 * self.SECOND)
        )

    def test_adapters_leave_the_forward_pass(self) -> None:
        lora = Lora(rank=16)
        text = trained_flop_per_token(changed(training(LANGUAGE), lora=lora))
        flop = trained_flop_per_token(on_images(lora=lora)) - text
        assert flop == pytest.approx(self.SHARE * (self.PATCH + self.LAYERS + self.FIRST + self.SECOND))

    def test_patches_see_their_window_alone_but_in_some_layers(self) -> None:
        """Two of six layers see all 576 patches, four see 64."""
        windowed = changed(TOWER, window_patches=64, full_every=3)
        less = on_images().model_flop_per_token - on_images(windowed).model_flop_per_token
        assert less == pytest.approx(self.SHARE * 3.0 * 4 * 4.0 * H * 4 * (576 - 64))

    def test_the_last_window_of_an_image_has_what_is_left(self) -> None:
        """576 patches are five windows of 100 and one of 76."""
        windowed = changed(TOWER, window_patches=100, full_every=3)
        less = on_images().model_flop_per_token - on_images(windowed).model_flop_per_token
        seen = (5 * 100**2 + 76**2) / 576
        assert less == pytest.approx(self.SHARE * 3.0 * 4 * 4.0 * H * 4 * (576 - seen))


class TestRules:
    def valid(self, **changes: object) -> Workload:
        return Workload.model_validate({**on_images().model_dump(), **changes})

    @pytest.mark.parametrize(
        ("changes", "rule"),
        [
            ({"images": None}, "model.vision needs images"),
            ({"model": LANGUAGE.model_dump()}, "images needs model.vision, which makes tokens of them"),
            (
                {"images": {"tokens_per_image": 576, "per_sequence": 8}},
                r"images.tokens_per_image \(576\), and this times per_sequence \(8\) times imbalance \(1\), must not exceed",
            ),
            (
                {"images": {"tokens_per_image": 576, "per_sequence": 4, "imbalance": 2}},
                r"times imbalance \(2\), must not exceed sequence_length \(4096\)",
            ),
            (
                {"images": {"tokens_per_image": 5000, "per_sequence": 0.1}},
                r"images.tokens_per_image \(5000\)",
            ),
            ({"activation_offload_fraction": 0.5}, r"activation_offload_fraction \(0.5\) excludes images"),
            ({"muon": Muon().model_dump()}, "images excludes muon"),
            ({"images": {"tokens_per_image": 0, "per_sequence": 1}}, "images.tokens_per_image"),
            ({"images": {"tokens_per_image": 1, "per_sequence": 1, "imbalance": 0.5}}, "images.imbalance"),
        ],
    )
    def test_a_contradiction_is_told_with_what_it_is_about(
        self, changes: dict[str, object], rule: str
    ) -> None:
        assert self.valid() == on_images()
        with pytest.raises(ValidationError, match=rule):
            self.valid(**changes)

    def test_full_layers_need_windows(self) -> None:
        with pytest.raises(ValidationError, match=r"full_every \(3\) needs window_patches"):
            VisionEncoder.model_validate({**TOWER.model_dump(), "full_every": 3})

    def test_images_may_fill_a_sequence(self) -> None:
        filled = self.valid(images=Images(tokens_per_image=1024, per_sequence=4).model_dump())
        assert filled.images is not None
        assert filled.images.tokens_per_sequence == 4096
