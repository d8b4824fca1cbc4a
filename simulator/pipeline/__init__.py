"""When does every stage of a pipeline work on which micro-batch? Schedules, played event by event."""
