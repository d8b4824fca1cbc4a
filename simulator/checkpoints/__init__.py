"""What does a save cost, and what outlasts which failure? The checkpoint schemes."""
