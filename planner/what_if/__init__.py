"""What if the run paused, waited, was capped or stood elsewhere? Cases that a job asks for."""
