"""What does a command show besides its answer? Help, progress, interrupts, exit codes, and how all of it is written."""
