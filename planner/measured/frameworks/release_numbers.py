"""When was a numbered release of a framework published? From the tags of its repository."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

Month = tuple[int, int]
"""Year and month."""

_NUMBER = r"[\W_]*(?:core_)?(?:(?:release |r|v)?(\d+(?:\.\d+){1,2})|v(\d))(?![\w.]*\w)"
"""Behind the name: two or three numbers, or one that is called a version (`v2`). Releases to come (`2.0.0rc1`, `2.4.0a0`) are
not those that they lead to."""
_UNDER_1 = r"(?=[\W_]*v?0\.)"
"""Before the numbers of what has none from 1.0 on: InternLM 2.5 is a model, and Megatron-DeepSpeed 2.4 a Megatron-LM."""
_NIGHTLY = re.compile(r"\.dev(20[12]\d)([01]\d)\d\d")
"""PyTorch of one night: `2.7.0.dev20250201`."""


@dataclass(frozen=True, kw_only=True)
class _Numbered:
    """A framework whose releases have numbers."""

    words: str
    since: tuple[tuple[tuple[int, ...], Month], ...]
    """Releases and their months, each the first of those until the next: of every year, and where habits changed within one."""

    def month(self, name: str) -> Month | None:
        """Returns the publication month of the release stated in a lower-case name; `None` if it states none."""
        found = re.search(f"(?:{self.words}){_NUMBER}", name)
        if not found:
            return None
        number = tuple(int(part) for part in (found[1] or f"{found[2]}.0").split("."))
        place = bisect_right(self.since, number, key=lambda since: since[0])
        return self.since[place - 1][1] if place else None


_NUMBERED = (
    _Numbered(
        words=r"megatron-?(?:lm|core)(?: core)?|mcore|megatron-?deepspeed(?![\W_]*v?0\.)",
        since=(
            ((0, 1), (2023, 5)),
            ((0, 3), (2023, 8)),
            ((0, 4), (2023, 12)),
            ((0, 6), (2024, 4)),
            ((0, 10), (2025, 2)),
            ((0, 12), (2025, 5)),
            ((0, 15), (2025, 12)),
            ((0, 16), (2026, 2)),
            ((1, 0), (2020, 4)),
            ((2, 0), (2021, 1)),
            ((3, 0), (2022, 5)),
        ),
    ),
    _Numbered(
        words=rf"deepspeed{_UNDER_1}",
        since=(
            ((0, 1), (2020, 5)),
            ((0, 3, 10), (2021, 1)),
            ((0, 5, 9), (2022, 1)),
            ((0, 8), (2023, 1)),
            ((0, 13), (2024, 1)),
            ((0, 16, 3), (2025, 1)),
            ((0, 18, 4), (2026, 1)),
            ((0, 19), (2026, 5)),
        ),
    ),
    _Numbered(
        words=r"nemo(?: framework| megatron)?",
        since=(
            ((1, 0), (2021, 6)),
            ((1, 6), (2022, 1)),
            ((1, 15), (2023, 2)),
            ((1, 20), (2023, 8)),
            ((1, 22), (2024, 1)),
            ((2, 0), (2024, 11)),
            ((2, 1), (2025, 1)),
        ),
    ),
    _Numbered(words="gpt-neo-?x", since=(((1, 0), (2022, 12)), ((2, 0), (2023, 3)))),
    _Numbered(words="torchtitan", since=(((0, 1), (2025, 6)), ((0, 2), (2025, 10)), ((0, 2, 2), (2026, 2)))),
    _Numbered(
        words="foundry",
        since=(((0, 1), (2023, 5)), ((0, 5), (2024, 2)), ((0, 16), (2025, 1))),
    ),
    _Numbered(
        words="composer",
        since=(
            ((0, 10), (2022, 9)),
            ((0, 13), (2023, 3)),
            ((0, 18), (2024, 1)),
            ((0, 29), (2025, 2)),
        ),
    ),
    _Numbered(words=rf"intern-?(?:evo|lm){_UNDER_1}", since=(((0, 1), (2023, 8)), ((0, 2, 2), (2024, 1)))),
)
"""Tags of NVIDIA/Megatron-LM (3.0 is of 2022, since it has sequence parallelism, which came in May; 0.5 of February 2024 takes
layers of its own by default as 0.4 does, and counts as that), deepspeedai/DeepSpeed, NVIDIA/NeMo, EleutherAI/gpt-neox (1.0,
tagged in March 2023, still has DeepSpeed 0.3.15), pytorch/torchtitan, mosaicml/llm-foundry, mosaicml/composer and
InternLM/InternEvo."""
_PYTORCH = _Numbered(
    words="(?<![a-z])(?:py)?torch(?: fsdp2?)?",
    since=(
        ((1, 8), (2021, 3)),
        ((1, 11), (2022, 3)),
        ((2, 0), (2023, 3)),
        ((2, 2), (2024, 1)),
        ((2, 6), (2025, 1)),
        ((2, 9), (2025, 10)),
        ((2, 10), (2026, 1)),
        ((2, 11), (2026, 3)),
    ),
)
"""Release dates of its `RELEASE.md`; those of 1.8, 1.11 and 2.0 are of their release notes. Counts where what runs on it tells
no release."""


def numbered_month(name: str) -> Month | None:
    """Returns the publication month of the release number in a name, the latest of several; `None` if there is none."""
    name = name.lower()
    found = [month for numbered in _NUMBERED if (month := numbered.month(name))]
    if found:
        return max(found)
    if nightly := _NIGHTLY.search(name):
        return int(nightly[1]), int(nightly[2])
    return _PYTORCH.month(name)
