"""Where and by whom are designs simulated? In this process or on many machines, and none of them twice."""
