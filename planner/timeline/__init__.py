"""Where does the time of each stage in a step, and of each phase in a run, go? Timelines as values, pictures and traces."""
