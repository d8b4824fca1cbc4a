"""What would happen? The domain's nouns, the catalogue, and the simulation of steps and whole runs.

simulate                   designs in, outcomes out: everything below, put together
domain, catalog            the nouns of a job; published figures by name, each with its source
layout, machine            the part of the model on each rank; times of operators and collectives on the offered hardware
memory, traffic, layers    one micro-batch: its activations, its traffic, and the time of its layers
pipeline, replicas, step   the order of micro-batches, the exchange between replicas, and a whole optimizer step
stragglers                 how much slow ranks delay the others
checkpoints, run           the cost of saves; saves, failures and recoveries over a whole run, with its energy
deep                       one design, operator by operator and message by message, and traced steps
"""
