"""How long would a traced step take on many accelerators? Capturing, reading, playing and writing traces."""
