"""What happens in one design, operator by operator and flow by flow? The deep depth of the simulator.

A `tasks.TaskGraph` says what has to be done and what waits for what; `topology.Topology` is the network it is done on;
`play.play` plays the graph with flows that share links.
"""
