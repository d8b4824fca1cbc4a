"""What happens over a whole run? Saves, failures, spares and recoveries, in closed form and played event by event."""
