"""What does a measured run recompute? From cells and notes, by layers and by modules."""
