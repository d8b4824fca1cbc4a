"""What does a job file say? Its forms, defaults and contradictions, down to a `Job` of the simulator."""
