"""Which designs are tried next? The search algorithms, and what they are made of."""
