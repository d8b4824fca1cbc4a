"""What should a reader know about the calibration behind an answer? Its source, its error, and what it does not cover."""

from __future__ import annotations

from planner.text import human
from simulator.domain.calibration import SOFTWARE, Calibration
from simulator.domain.job import Job


def calibration_notes(job: Job) -> list[str]:
    """Returns sentences on the calibration of a job; none for a job without one."""
    calibration = job.calibration
    if calibration is None:
        return []
    offered = dict.fromkeys(offer.accelerator.id for offer in job.offers)
    others = [name for name in offered if name not in calibration.accelerators]
    notes = [f"Constants are calibrated: {calibration_text(calibration)}."]
    if others:
        is_shared = any(one.name in SOFTWARE for one in calibration.constants)
        hold = (
            "published hardware constants and its software constants" if is_shared else "published constants"
        )
        notes.append(f"The calibration does not cover {', '.join(others)}: {hold} are used there.")
    return notes


def calibration_text(calibration: Calibration) -> str:
    """Returns where a calibration comes from and how good it is, in one line without a full stop."""
    what = "configurations" if calibration.residuals else "kernels"
    before, left_out = (
        human.percent(error)
        for error in (calibration.error_before_fraction, calibration.error_left_out_fraction)
    )
    return (
        f"{len(calibration.constants)} from {human.count(calibration.num_configurations)} {what} in {calibration.source} "
        f"({calibration.date}, {calibration.source_sha256[:12]}); mean error {before} with published constants, "
        f"{left_out} on {what} left out of the fit"
    )
