"""Which texts and numbers of a design does MLflow store? The designs of a study as a table of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.errors import StudyError
from studies.tracking.mlflow_session import (
    MAX_KEY_CHARACTERS,
    MAX_PARAM_CHARACTERS,
    MAX_TAG_CHARACTERS,
    check_key,
    check_texts,
)


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Designs as MLflow will show them, one run each; every column has one entry per design.

    Raises:
        StudyError: the length of a column differs from that of `names`, or MLflow does not accept a key or text.
    """

    names: Sequence[str]
    """Run names."""
    params: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Decisions: texts by parameter name."""
    metrics: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    """Results: numbers `(n,)` by metric name; NaN and infinities are allowed."""
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tags to filter by, such as `front`: texts by tag name."""

    def __post_init__(self) -> None:
        check_texts("run name", self.names, MAX_KEY_CHARACTERS)
        if not all(self.names):
            raise StudyError("a run name is empty: MLflow would invent one")
        for kind, columns in (("param", self.params), ("metric", self.metrics), ("tag", self.tags)):
            for key, values in columns.items():
                check_key(kind, key)
                if len(values) != self.num_runs:
                    raise StudyError(f"{kind} {key!r} has {len(values)} entries for {self.num_runs} designs")
        for key, numbers in self.metrics.items():
            if np.asarray(numbers).dtype.kind not in "biuf":
                raise StudyError(f"metric {key!r} does not hold numbers: must be bool, int or float")
        for key, texts in self.params.items():
            check_texts(f"param {key!r}", texts, MAX_PARAM_CHARACTERS)
        for key, texts in self.tags.items():
            check_texts(f"tag {key!r}", texts, MAX_TAG_CHARACTERS)

    @property
    def num_runs(self) -> int:
        """Designs in the table."""
        return len(self.names)
