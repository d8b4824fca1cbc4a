"""What does a save cost, and which failures does it survive? The checkpoint schemes."""
