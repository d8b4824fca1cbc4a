"""What does a trace recorded by another tool say about a step? Formats of traces, all read into capplan's own."""
