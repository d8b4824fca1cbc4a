"""What does a row of somebody's measurements mean? From the words of its cells to a job and a plan."""
