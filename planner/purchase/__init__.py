"""What should be bought, reserved and rented for a fleet of jobs? A plan of purchases by CP-SAT."""
