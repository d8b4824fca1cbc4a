"""What does a row of published measurements mean? From the words in its cells to a job and a plan."""
