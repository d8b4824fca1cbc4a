"""Do notes say which way steps like a design's are wrong, what was never compared, and nothing where owners measured?"""

from __future__ import annotations

import pytest

from planner.notes.accuracy_notes import accuracy_notes, step_notes
from planner.notes.step_note import texts
from simulator.accuracy.published_runs import LEAST_ROWS, Accuracy
from simulator.domain.job import Job
from tests.planner.calibrations import with_measured_steps
from tests.planner.hand_made import design, recommended
from tests.simulator.builders import job_of, rented, training
from tests.simulator.sparse import SMALL as SPARSE

H100, H200, A100 = "h100-sxm5-80gb", "h200-sxm-141gb", "a100-sxm4-80gb"
DENSE = training("llama-3.1-8b", global_batch_size=64)
EXPERTS = training("deepseek-v2-lite", global_batch_size=64)
BEST = design(days=30.0)


def notes_with(job: Job, words: str) -> list[str]:
    return [note for note in accuracy_notes(job, None, BEST) if words in note]


class TestStepsThatAreWrongOneWay:
    def told(self, bias_fraction: float, num_compared: int = LEAST_ROWS, *, is_measured: bool = True) -> str:
        sure = recommended().uncertainty
        assert sure is not None
        off = sure.model_copy(
            update={
                "step_time_bias_fraction": bias_fraction,
                "step_time_num_compared": num_compared,
                "is_step_time_measured": is_measured,
            }
        )
        notes = accuracy_notes(job_of(DENSE, rented(H100)), off, BEST)
        return next((note for note in notes if note.startswith("Steps like those")), "")

    @pytest.mark.parametrize(
        ("bias_fraction", "way", "days"), [(-0.25, "25 % too fast", 40.0), (0.25, "25 % too slow", 24.0)]
    )
    def test_a_run_is_told_as_long_as_it_is_without_the_bias(
        self, bias_fraction: float, way: str, days: float
    ) -> None:
        told = self.told(bias_fraction)
        assert f"were simulated {way} on " in told
        assert f"the time to train would be about {days} days" in told

    @pytest.mark.parametrize("bias_fraction", [-0.04, 0.04])
    def test_a_small_bias_is_not_told(self, bias_fraction: float) -> None:
        assert not self.told(bias_fraction)

    def test_few_steps_and_those_of_another_kind_correct_nothing(self) -> None:
        assert not self.told(-0.25, LEAST_ROWS - 1)
        assert not self.told(-0.25, is_measured=False)


@pytest.mark.parametrize(("accelerator", "is_told"), [(H100, True), (A100, True), ("b200-sxm-180gb", False)])
def test_the_backward_kernel_of_chosen_tokens_is_told_beside_other_chips_than_blackwell(
    accelerator: str, is_told: bool
) -> None:
    words = f"backward on {accelerator} at the speed of the only published kernel for Hopper"
    assert bool(notes_with(job_of(training(SPARSE), rented(accelerator)), words)) is is_told
    told = texts(step_notes(job_of(training(SPARSE), rented(accelerator)), BEST.plan))
    assert any(words in note for note in told) is is_told
    assert (
        bool(notes_with(job_of(training(SPARSE), rented("b200-sxm-180gb"), rented(accelerator)), words))
        is is_told
    )
    assert not notes_with(job_of(DENSE, rented(accelerator)), words)
    (reach,) = notes_with(job_of(training(SPARSE), rented(accelerator)), "the error is assumed to be twice")
    assert "latent attention or attention to chosen tokens" in reach


def test_owners_who_measured_need_no_published_step() -> None:
    job = job_of(DENSE, rented(H200))
    assert notes_with(job, "No published step on h200-sxm-141gb was compared")
    assert not notes_with(with_measured_steps(job), "No published step")


def test_an_accelerator_without_kernels_is_told_once() -> None:
    job = job_of(DENSE, rented("mi300x"))
    assert notes_with(job, "No kernel measurements are known for mi300x")
    twice = job_of(DENSE, rented("mi300x"), rented("mi300x"))
    assert notes_with(twice, "No kernel measurements are known for mi300x; efficiencies")
    assert not notes_with(job, "No published step on mi300x")
    assert not notes_with(with_measured_steps(job), "No kernel measurements")


def test_published_steps_of_tpus_are_told_where_tpus_are_on_offer() -> None:
    told = "published steps on TPU v6e"
    assert notes_with(job_of(DENSE, rented(H100), rented("tpu-v5p")), told)
    assert not notes_with(job_of(DENSE, rented(H100), rented("trainium2")), told)


def test_mixtures_of_experts_are_doubted_unless_their_owner_measured_them() -> None:
    job = job_of(EXPERTS, rented(H100))
    (note,) = notes_with(job, "barely validated")
    # simulator/data/accuracy.csv: all kinds of mixtures are simulated too fast.
    assert "% too fast; groups of fewer than" in note
    assert accuracy_notes(job, None, None) == [note]
    for measured in (with_measured_steps(job), with_measured_steps(job_of(EXPERTS, rented("mi300x")))):
        assert not notes_with(measured, "barely validated")
        assert not accuracy_notes(measured, None, None)


def test_what_a_step_is_doubted_for_is_told_of_its_own_accelerator_unless_owners_measured() -> None:
    job = job_of(EXPERTS, rented(H100), rented("mi300x"))
    notes = step_notes(job, BEST.plan.model_copy(update={"offer": 1}))
    latent, experts, kernels = texts(notes)
    assert "with latent attention was compared" in latent
    assert "barely validated" in experts
    assert kernels.startswith("No kernel measurements are known for mi300x;")
    assert step_notes(job, BEST.plan) == notes[:2]
    assert not step_notes(with_measured_steps(job), BEST.plan)


class TestAcceleratorsWithUnlikeErrors:
    @pytest.fixture(autouse=True)
    def _errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def error(family: str, precision: str, *, has_experts: bool) -> Accuracy:
            assert (precision, has_experts) == ("bf16", False)
            bias_fraction, num_rows = {"hopper": (0.02, 40), "ampere": (-0.05, 40), "blackwell": (-0.4, 1)}[
                family
            ]
            return Accuracy(
                num_rows=num_rows,
                bias_fraction=bias_fraction,
                mean_absolute_error_fraction=abs(bias_fraction),
                is_measured=True,
            )

        monkeypatch.setattr("planner.notes.accuracy_notes.step_time_error", error)

    def test_a_comparison_of_them_is_told_to_have_the_difference(self) -> None:
        (note,) = notes_with(job_of(DENSE, rented(H100), rented(A100)), "Simulated steps differ")
        assert "by ampere in bf16 -5 %, hopper in bf16 +2 % on average" in note

    def test_few_rows_make_no_difference(self) -> None:
        assert not notes_with(job_of(DENSE, rented(H100), rented("b200-sxm-180gb")), "Simulated steps differ")

    def test_an_accelerator_that_its_owner_measured_is_not_compared(self) -> None:
        job = with_measured_steps(job_of(DENSE, rented(A100), rented(H100)))
        assert not notes_with(job, "Simulated steps differ")


def test_published_steps_of_hopper_and_ampere_do_not_differ_by_as_much_as_is_told() -> None:
    # simulator/data/accuracy.csv: -0.5 % and -1.0 %.
    assert not notes_with(job_of(DENSE, rented(H100), rented(A100)), "Simulated steps differ")


def test_published_steps_of_hybrids_are_told_unless_owners_measured() -> None:
    told = "Published steps of hybrids"
    hybrid = job_of(training("nemotron-h-8b", global_batch_size=64), rented(H100))
    assert notes_with(hybrid, told)
    assert not notes_with(with_measured_steps(hybrid), told)
    assert not notes_with(job_of(DENSE, rented(H100)), told)
