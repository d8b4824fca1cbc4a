"""Where are designs simulated? In this process or on many machines, and no design twice."""
