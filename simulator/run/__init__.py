"""What happens in a whole run? Saves, failures, spares and ways back, in closed form and played event by event."""
