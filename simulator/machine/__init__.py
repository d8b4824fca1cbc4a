"""What can the machines do? Operators, collectives and power of what is on offer, one row per design."""
