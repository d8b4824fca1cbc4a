"""What if the run paused, started later, was power-capped or ran elsewhere? Cases that a job asks for."""
