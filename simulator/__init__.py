"""What would happen? The domain's nouns, the catalogue, and the simulation of steps and whole runs.

simulate                   designs in, outcomes out: everything below, put together
domain, catalog            what is asked for, as nouns; figures of the world by name, each with its source
layout, machine            what of the model a rank has; what operators and collectives take on the hardware on offer
memory, traffic, layers    one micro-batch: what is kept, what travels, how long layers take
pipeline, replicas, step   the order of micro-batches, what replicas exchange, and one optimizer step of it all
stragglers                 by how much slow ranks hold the others up
checkpoints, run           what saves cost; saves, failures and ways back over a whole run, with its energy
deep                       one design, operator by operator and message by message, and traced steps
"""
