"""What does a planner show to others? The report: one HTML page with every design, figure and source."""
