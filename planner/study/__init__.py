"""What can be done with a study on disk? Show, resume, merge and export it."""
