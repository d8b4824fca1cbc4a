"""How did the software run it? What a row tells of kernels, overlap and offloading, before the habits of its framework."""
