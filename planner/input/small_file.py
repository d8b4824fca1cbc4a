"""Is a user's file as small as files of its kind are? It is read up to that size, so that a wrong one is refused at once."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import refusal


def bytes_of_small_file(path: Path, most_bytes: int, kind: str) -> bytes:
    """Returns what is in a file.

    Args:
        path: of the file.
        most_bytes: its largest size.
        kind: what it is then not, such as `a job file`.

    Raises:
        InputError: the file cannot be read, or is larger.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise refusal(path, f"cannot be read: {reason}") from None
    if len(content) > most_bytes:
        raise refusal(path, f"is larger than {most_bytes:,} bytes, so it is not {kind}")
    return content
