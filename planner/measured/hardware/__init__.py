"""Which hardware did a measured run use? Accelerators, nodes and networks by the names that people give them."""
