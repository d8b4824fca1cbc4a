"""What was typed, and what could be typed next? The command of an answer, with other limits or for one of its designs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from planner.input.plan_input import plan_text
from simulator.domain.plan import Plan


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """A `capplan recommend`, less how its answer was to be shown."""

    job: str = "JOB.yaml"
    """Path of the job."""
    overrides: tuple[str, ...] = ()
    """What `--set` was given."""
    seed: int = 0
    """Of search and replays."""
    options: tuple[str, ...] = ()
    """How the study is recorded, as typed."""

    def recommend(self, changes: Sequence[str] = ()) -> str:
        """Returns the command with some more overrides, each in the place of what the same field was given before."""
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
