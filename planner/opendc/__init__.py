"""What does a run look like in OpenDC? Its formats, written and read."""
