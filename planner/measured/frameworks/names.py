"""How is the name of a framework spelt? As its authors spell it, whatever separates its words in a table."""

from __future__ import annotations

import re

from planner.measured.frameworks.families import TRAINERS

_BETWEEN = r"[\s_/+&-]{1,3}"
_JOINED = r"(?:[\s_/+&-]{1,3}|\s+(?:with|and|on)\s+)"
_LM = rf"(?:{_BETWEEN}lm)?"
_SPELLINGS = tuple(
    (re.compile(words, re.IGNORECASE), spelling)
    for words, spelling in (
        (
            rf"\bmegatron{_LM}{_JOINED}deepspeed\b(?!-?ulysses)|\bdeepspeed{_JOINED}megatron{_LM}\b",
            "Megatron-DeepSpeed",
        ),
        (rf"\bmegatron{_BETWEEN}lm\b", "Megatron-LM"),
        (rf"\bmegatron{_BETWEEN}core\b", "Megatron-Core"),
        (rf"\bmegatron{_BETWEEN}bridge\b", "Megatron-Bridge"),
        (r"^(?:nvidia(?:'s)? )?megatron(?=$|,? v?\d| \(|@|[ -](?:style|like)\b)", "Megatron-LM"),
        (rf"\bgpt{_BETWEEN}neo(?:{_BETWEEN})?x\b", "GPT-NeoX"),
        (rf"\bintern{_BETWEEN}(?=evo|lm)", "Intern"),
        (rf"\bhai{_BETWEEN}llm\b", "HAI-LLM"),
        (r"\btorch[\s_-]titan\b", "torchtitan"),
        (r"\bdeep[\s_-]speed\b", "DeepSpeed"),
    )
)
"""Names of more than one word, and bare Megatron, which was Megatron-LM before its core had a name of its own."""
_PLAIN_PYTORCH = re.compile(
    r"((native|plain|vanilla) )?(py)?torch( v?\d[\d.]*)?( native| distributed)?", re.IGNORECASE
)
VTRAIN_NODE = 8
"""Accelerators per node in vTrain's runs."""


def spelt(name: str) -> str:
    """Returns the name of a framework with its words joined as its authors do; the rest is left as it is."""
    for words, spelling in _SPELLINGS:
        name = words.sub(spelling, name)
    return name


def of_vtrain(framework: str, source: str, num_gpus: int | None) -> str:
    """Returns the software of a step that vTrain published, by its name or its source; empty for the steps of others.

    Its iterations on several nodes ran in Megatron-DeepSpeed and those of one node are its own model's, whatever a table
    calls them.
    """
    if not re.search(r"\bvtrain\b", f"{framework} {source}", re.IGNORECASE):
        return ""
    if not re.search(r"^$|vtrain|megatron", framework, re.IGNORECASE):
        return ""
    return "vTrain (Megatron-DeepSpeed)" if (num_gpus or 0) > VTRAIN_NODE else "vTrain (Megatron)"


def shards_by_itself(framework: str) -> bool:
    """Returns whether a name is PyTorch's own, so that its FSDP is what shards."""
    return bool(_PLAIN_PYTORCH.fullmatch(framework))


def trains_whole_models(framework: str) -> bool:
    """Returns whether a run used a program that splits neither products nor layers nor experts over ranks."""
    name = framework.lower()
    return bool(re.search(TRAINERS, name)) and not re.search("megatron|nemo", name)


def is_torchtitan(framework: str) -> bool:
    """Returns whether a run used torchtitan, possibly under another name."""
    return "torchtitan" in framework.lower()


def is_automodel(framework: str) -> bool:
    """Returns whether a run used NeMo Automodel."""
    return "automodel" in framework.lower()


def is_maxtext(framework: str) -> bool:
    """Returns whether a run used MaxText."""
    return "maxtext" in framework.lower()


def is_megatron_bridge(framework: str) -> bool:
    """Returns whether a run used Megatron-Bridge."""
    return "megatron-bridge" in framework.lower()


def freezes_encoders(framework: str) -> bool:
    """Returns whether a run used LLaMA-Factory, which freezes vision encoders unless told (`freeze_vision_tower: true`)."""
    return bool(re.search(r"llama[-_ ]?factory", framework, re.IGNORECASE))
