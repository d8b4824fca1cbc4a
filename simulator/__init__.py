"""What would happen? The domain's nouns, the catalogue, and the simulation of steps and whole runs.

job, model, hardware, plan, reliability   what is asked, and a design that answers it
catalog                                   figures of the world by name, each with its source
simulate                                  designs in, outcomes out; `step`, `run` and `power` beneath it
"""
