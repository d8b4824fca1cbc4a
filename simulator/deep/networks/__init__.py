"""Which links do messages cross? Networks, the files that describe them, and ways through them."""
