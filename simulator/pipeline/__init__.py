"""When does every pipeline stage work on which micro-batch? Schedules, played event by event."""
