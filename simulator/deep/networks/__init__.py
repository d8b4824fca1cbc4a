"""Which links do messages cross? Networks, the files that describe them, and the paths through them."""
