"""What are the constants of a job's offers, independent of plans? Those of kernels, links and training steps, one row each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.links import LinkConstants, link_constants
from simulator.domain.plan import PlanTable
from simulator.latest import remembering_latest
from simulator.layout.casts import (
    BLOCKWISE_SLOWDOWN,
    FAMILIES_WITH_BLOCK_SCALES,
    cast_ratio,
    gathered_cast_shares,
    one_layout_shares,
)
from simulator.machine.attention_kernels import (
    with_attention_kernel,
    with_chosen_tokens,
    with_head_width,
)
from simulator.machine.calibrated import (
    calibrated_kernels,
    calibrated_links,
    calibrated_sustained,
    calibrated_training,
)
from simulator.machine.compute import (
    KernelConstants,
    kernel_constants,
    kernels_of,
)
from simulator.machine.offer_table import OfferTable
from simulator.machine.training import TrainingConstants
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class OfferConstants:
    """Constants of a job's offers, independent of plans: one row per offer, or per offer and number format."""

    kernels: KernelConstants
    encoder_kernels: KernelConstants
    """The same for the heads of a vision encoder; those of the language model where there is none."""
    links: LinkConstants
    training: TrainingConstants
    sustained_fraction: Floats
    gathered_cast_shares: Floats
    """Shares for a rank's own values and for all gathered ones, `(n, 2)` (`casts.gathered_cast_shares`)."""
    one_layout_shares: Floats
    """Shares for rows alone, and for transposing the rows of a weight, `(n, 2)` (`casts.one_layout_shares`)."""

    def of_products(self, plans: PlanTable) -> tuple[KernelConstants, Floats]:
        """Returns the kernel constants and the sustained fraction for the number formats of plans, `(n,)` each."""
        return self._of(self.kernels, plans)

    def of_encoder(self, plans: PlanTable) -> tuple[KernelConstants, Floats]:
        """Returns the same for a vision encoder."""
        return self._of(self.encoder_kernels, plans)

    def _of(self, kernels: KernelConstants, plans: PlanTable) -> tuple[KernelConstants, Floats]:
        pair = self.pair(plans)
        slowest = self.training.slowest_of(plans.num_gpus)
        return kernels.take(pair), self.sustained_fraction[pair] / slowest

    @staticmethod
    def pair(plans: PlanTable) -> Integers:
        """Returns the row of the offer and number format of plans, `(n,)`."""
        return plans.offer * len(Precision) + plans.precision


@remembering_latest
def offer_constants(job: Job, training: TrainingConstants) -> OfferConstants:
    """Returns the constants of a job, including its calibration."""
    training, recipe = calibrated_training(training, job.calibration), job.workload.fp8_recipe
    kernels = _kernels(job, training)
    pairs = [(precision, offer.accelerator.kernel_family) for offer in job.offers for precision in Precision]
    return OfferConstants(
        kernels=_for_heads(job, kernels),
        encoder_kernels=_for_heads_of_encoder(job, kernels),
        links=_links(job, OfferTable.from_job(job), training),
        training=training,
        sustained_fraction=_sustained(job, training),
        gathered_cast_shares=np.array([gathered_cast_shares(recipe, *pair) for pair in pairs]),
        one_layout_shares=np.array([one_layout_shares(recipe, *pair) for pair in pairs]),
    )


def _sustained(job: Job, training: TrainingConstants) -> Floats:
    """Sustained fraction of every offer with every number format, `(offers * formats,)`."""
    pairs = [(offer.accelerator, precision) for offer in job.offers for precision in Precision]
    chips, formats = [chip for chip, _ in pairs], [precision for _, precision in pairs]
    return calibrated_sustained(training.sustained(chips, formats), job.calibration, chips, formats)


def _kernels(job: Job, training: TrainingConstants) -> KernelConstants:
    """Constants of every offer with every number format, one row each, for heads of any width."""
    pairs = [(offer.accelerator, precision) for offer in job.offers for precision in Precision]
    chips, formats = [chip for chip, _ in pairs], [precision for _, precision in pairs]
    families = [chip.kernel_family for chip in chips]
    published = kernel_constants(
        [kernels_of(chip) for chip in chips],
        [precision.value for precision in formats],
        ceiling_fractions=np.array([chip.matmul_ceiling_fraction for chip in chips]),
    )
    published = with_attention_kernel(
        published, job.workload.attention, families, first_flash_fraction=training.first_flash_fraction
    )
    if job.workload.fp8_recipe == "blockwise":
        is_slower = [
            precision is Precision.FP8 and chip.kernel_family not in FAMILIES_WITH_BLOCK_SCALES
            for chip, precision in pairs
        ]
        slower = published.gemm_peak_fraction / np.where(is_slower, BLOCKWISE_SLOWDOWN, 1.0)
        published = replace(published, gemm_peak_fraction=slower)
    kernels = calibrated_kernels(published, job.calibration, chips, formats)
    ratios = [cast_ratio(job.workload.fp8_recipe, precision, chip.kernel_family) for chip, precision in pairs]
    return replace(kernels, cast_bytes_per_element=kernels.cast_bytes_per_element * np.array(ratios))


def _for_heads(job: Job, kernels: KernelConstants) -> KernelConstants:
    """The constants for attention of the language model."""
    model = job.workload.model
    if model.chooses_tokens:
        return with_chosen_tokens(kernels, _families(job))
    return with_head_width(kernels, job.workload.attention, _families(job), model.attention_dims[0])


def _for_heads_of_encoder(job: Job, kernels: KernelConstants) -> KernelConstants:
    """The constants for attention of a vision encoder; those of the language model without one."""
    if (vision := job.workload.model.vision) is None:
        return _for_heads(job, kernels)
    return with_head_width(kernels, job.workload.attention, _families(job), vision.head_dim)


def _families(job: Job) -> list[str]:
    """Architectures of every offer with every number format."""
    return [offer.accelerator.kernel_family for offer in job.offers for _ in Precision]


def _links(job: Job, table: OfferTable, training: TrainingConstants) -> LinkConstants:
    """Constants of every offer, one row each."""
    published = link_constants(
        [offer.accelerator.family for offer in job.offers],
        [offer.fabric.kind for offer in job.offers],
        intra_bytes_per_s=table.scale_up_bytes_per_s,
        inter_bytes_per_s_per_gpu=table.network_bytes_per_s,
        gpus_per_domain=table.link_domain_size.astype(np.float64),
        gpus_per_node=np.minimum(table.gpus_per_node, table.link_domain_size),
        gpus_per_card=np.array([offer.node.accelerators_per_network_card for offer in job.offers]),
        shared_card_fraction=training.shared_card_fraction,
    )
    return calibrated_links(published, job.calibration, [offer.accelerator for offer in job.offers])
