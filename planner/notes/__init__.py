"""What should a reader know besides the figures of a design? One sentence each, or none."""
