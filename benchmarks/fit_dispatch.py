"""How fast do deduplicated dispatch and combine of experts run, and how well is this predicted on left-out hardware?

Fits the two constants of `simulator.machine.network.forwarded_exchange_s` to the rates that Hybrid-EP publishes, and prints
them with the error of each platform predicted from the other two:

    python -m benchmarks.fit_dispatch

The rates are those of deepseek-ai/DeepEP, branch hybrid-ep, `README_Hybrid-EP.md`: 4,096 tokens of 7,168 values in 16 bits,
top 8 of 8 experts per rank, random routing; for the kernels alone, at the best number of cores. They count the copy for the
rank's own node (H100) or rank (B200, GB200). They do not count the weights dispatched with a token, one in 32 bits for each
expert of a domain. The page also has rates of calls from PyTorch. There, a dispatch also copies what has arrived out of the
buffers of its kernel, and a combine copies into them (`test_hybrid_ep.py`: "dispatch_kernel + d2d + misc"). Where tokens are
sorted by expert there are no such copies: sorting reads and writes those buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from simulator.domain import links
from simulator.domain.blocks import MixtureOfExperts
from simulator.machine import network
from simulator.table import Floats
from simulator.traffic.expert_reach import num_reached
from simulator.units import GIGA

NUM_TOKENS = 4096.0
TOKEN_BYTES = NUM_TOKENS * 7168.0 * 2.0
WEIGHT_BYTES = 4.0
EXPERTS_PER_RANK = 8
TOP_K = 8


@dataclass(frozen=True, kw_only=True)
class Rate:
    """One published measurement."""

    platform: str
    family: str
    intra_bytes_per_s: float
    num_ranks: int
    ranks_per_domain: int
    dispatch_gb_per_s: float
    combine_gb_per_s: float

    @property
    def experts(self) -> MixtureOfExperts:
        """Experts of the measurement; their width plays no part."""
        return MixtureOfExperts(
            num_experts=EXPERTS_PER_RANK * self.num_ranks, experts_per_token=TOP_K, expert_ffn_hidden_size=1
        )

    @property
    def measured_s(self) -> float:
        """Mean of dispatch and combine."""
        counted = self.num_ranks if self.num_ranks <= self.ranks_per_domain else self.num_domains
        moved_bytes = TOKEN_BYTES * self.reached(counted)
        return moved_bytes * (1.0 / self.dispatch_gb_per_s + 1.0 / self.combine_gb_per_s) / 2.0 / GIGA

    @property
    def num_domains(self) -> int:
        """Link domains that the ranks span."""
        return max(1, self.num_ranks // self.ranks_per_domain)

    def reached(self, parts: int) -> float:
        """Parts of the experts that a token reaches."""
        return float(num_reached(self.experts, np.array([float(parts)]))[0])

    def predicted_s(self) -> float:
        """What the simulator says of the mean of both, with the constants that its module has now."""
        weights_bytes = (
            NUM_TOKENS * WEIGHT_BYTES * EXPERTS_PER_RANK * min(self.num_ranks, self.ranks_per_domain)
        )
        return (self._exchange_s(TOKEN_BYTES + weights_bytes) + self._exchange_s(TOKEN_BYTES)) / 2.0

    def _exchange_s(self, num_bytes: float) -> float:
        members, domains = min(self.num_ranks, self.ranks_per_domain), self.num_domains
        time_s = network.forwarded_exchange_s(
            near_bytes=num_bytes * self.reached(self.num_ranks) * (members - 1) / members,
            far_bytes=num_bytes * self.reached(domains) * (domains - 1) / domains,
            group_size=float(self.num_ranks),
            members_per_domain=float(members),
            links=links.link_constants(
                [self.family],
                ["infiniband-ndr"],
                intra_bytes_per_s=self.intra_bytes_per_s,
                inter_bytes_per_s_per_gpu=50.0 * GIGA,
                gpus_per_domain=float(self.ranks_per_domain),
            ),
        )
        return float(time_s[0])


def _h100(num_ranks: int, dispatch: float, combine: float) -> Rate:
    return Rate(
        platform="H100",
        family="hopper",
        intra_bytes_per_s=450.0 * GIGA,
        num_ranks=num_ranks,
        ranks_per_domain=8,
        dispatch_gb_per_s=dispatch,
        combine_gb_per_s=combine,
    )


def _blackwell(platform: str, num_ranks: int, dispatch: float, combine: float) -> Rate:
    return Rate(
        platform=platform,
        family="blackwell",
        intra_bytes_per_s=900.0 * GIGA,
        num_ranks=num_ranks,
        ranks_per_domain=72 if platform == "GB200" else 8,
        dispatch_gb_per_s=dispatch,
        combine_gb_per_s=combine,
    )


RATES = (
    _h100(16, 76.80, 68.00),
    _h100(32, 57.69, 57.46),
    _h100(64, 50.55, 51.03),
    _blackwell("B200", 8, 734.95, 673.84),
    _blackwell("GB200", 8, 764.03, 737.13),
    _blackwell("GB200", 16, 706.95, 666.26),
    _blackwell("GB200", 24, 665.97, 639.80),
    _blackwell("GB200", 32, 642.23, 605.15),
    _blackwell("GB200", 36, 632.31, 596.99),
)


def log_errors(rates: Sequence[Rate], constants: Floats) -> Floats:
    """Returns log(predicted / measured) of some rates for given constants, which the module keeps."""
    network.FORWARDED_FRACTION, network.FORWARDING_EXPONENT = (float(value) for value in constants)
    return np.log([rate.predicted_s() / rate.measured_s for rate in rates])


def fitted(rates: Sequence[Rate]) -> Floats:
    """Returns the two constants that fit best."""

    def errors(constants: Floats) -> Floats:
        return log_errors(rates, constants)

    return np.asarray(least_squares(errors, x0=[0.5, 2.0], bounds=([0.1, 1.0], [1.0, 8.0])).x)


def main() -> None:
    """Prints the constants and their errors."""
    shipped = np.array([network.FORWARDED_FRACTION, network.FORWARDING_EXPONENT])
    for rate, error in zip(RATES, np.expm1(log_errors(RATES, shipped)), strict=True):
        print(
            f"{rate.platform:>6} {rate.num_ranks:3} ranks: {1e3 * rate.measured_s:.2f} ms, shipped {error:+.1%}"
        )
    best = fitted(RATES)
    print(f"fitted on all: fraction {best[0]:.3f}, exponent {best[1]:.2f}")
    for platform in dict.fromkeys(rate.platform for rate in RATES):
        left_out = [rate for rate in RATES if rate.platform == platform]
        others = [rate for rate in RATES if rate.platform != platform]
        errors = np.abs(np.expm1(log_errors(left_out, fitted(others))))
        print(f"{platform} from the others: mean error {errors.mean():.1%}, largest {errors.max():.1%}")


if __name__ == "__main__":
    main()
