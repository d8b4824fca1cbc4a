"""Which designs are tried next? The search algorithms and their building blocks."""
