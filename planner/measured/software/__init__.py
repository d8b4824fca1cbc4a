"""What did the software do? What a row states about kernels, overlap and offloading, before the habits of its framework."""
