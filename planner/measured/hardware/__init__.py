"""On what did a measured run run? Accelerators, nodes and networks by the names that people give them."""
