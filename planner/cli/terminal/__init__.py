"""What is seen of a command beside its answer? Help, progress, interrupts, exit codes, and how all of it is written."""
