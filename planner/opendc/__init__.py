"""How does a run look in OpenDC? Its formats, written and read."""
