"""What happens in one design, operator by operator and flow by flow? The deep depth of the simulator.

A `playing.tasks.TaskGraph` says what has to be done and what waits for what. A `networks.topology.Topology` is the network on
which it is done. `playing.play.play` plays the graph with flows that share links. `plans` builds the graph of a design, and
`traced_steps` that of a step recorded in a trace (`traces`); both run `collectives`.
"""
