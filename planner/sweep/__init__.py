"""How do sizes, checkpoint schemes and intervals change a job? A grid of designs, each simulated in full."""
