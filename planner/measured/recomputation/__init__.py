"""What does a measured run compute again? In cells, in notes, in layers and in modules."""
