"""Which commands follow from an answer? Its own command with other limits, or a simulation of one of its designs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from planner.input.plan_input import plan_text
from simulator.domain.plan import Plan


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """A `capplan recommend` command without its output options."""

    job: str = "JOB.yaml"
    """Path of the job."""
    overrides: tuple[str, ...] = ()
    """Values of `--set`."""
    seed: int = 0
    """Seed of search and replays."""
    options: tuple[str, ...] = ()
    """Options on recording the study, as typed."""

    def recommend(self, changes: Sequence[str]) -> str:
        """Returns the command with more overrides, which replace earlier ones of the same field."""
        changed = {_field(change) for change in changes}
        kept = [override for override in self.overrides if _field(override) not in changed]
        return " ".join(["capplan recommend", *self._asked([*kept, *changes]), *self.options])

    def simulate(self, plan: Plan) -> str:
        """Returns the command that simulates one design of the answer."""
        return " ".join(["capplan simulate", *self._asked(self.overrides), f"--plan {plan_text(plan)}"])

    def _asked(self, overrides: Sequence[str]) -> list[str]:
        sets = [f"--set {shlex.quote(override)}" for override in overrides]
        return [shlex.quote(self.job), *sets, *([f"--seed {self.seed}"] if self.seed else [])]


def _field(override: str) -> str:
    return override.partition("=")[0].strip()
