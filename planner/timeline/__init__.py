"""Where does each stage spend a step, and each phase a run? Timelines as values, pictures and traces."""
