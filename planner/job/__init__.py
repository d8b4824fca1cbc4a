"""How does a job file become a `Job` of the simulator? Short forms, defaults, and checks for contradictions."""
