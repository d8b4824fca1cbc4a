"""What happens in one design, operator by operator and flow by flow? The deep depth of the simulator.

A `playing.tasks.TaskGraph` says what has to be done and what waits for what; `networks.topology.Topology` is the network it
is done on; `playing.play.play` plays the graph with flows that share links. `plans` makes the graphs of a design,
`traced_steps` those of a step that was traced (`traces`); both send `collectives`.
"""
