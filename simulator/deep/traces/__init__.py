"""What does somebody else's trace of a step say? Formats of traces, read into one of ours."""
