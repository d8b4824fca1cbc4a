"""An accelerator of the user's own: which file describes it?"""

from __future__ import annotations

import csv
from pathlib import Path

from simulator.catalog import Kind, figures

H100, OWN = "h100-sxm5-80gb", "our-chip"


def own_catalog(folder: Path) -> Path:
    """Writes an accelerator with the figures of an H100, in a node with those of a DGX H100, and returns the file."""
    file = folder / "chip.csv"
    renamed = {"default_node": "our-node", "accelerator": OWN}
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["kind", "id", "quantity", "value", "unit", "source", "date", "confidence"])
        for kind, known, name in ((Kind.ACCELERATORS, H100, OWN), (Kind.NODES, "dgx-h100", "our-node")):
            for one in figures(kind, known):
                value = renamed.get(one.quantity, one.value)
                writer.writerow(
                    [kind.value, name, one.quantity, value, one.unit, "ours", "2026", one.confidence.value]
                )
    return file
