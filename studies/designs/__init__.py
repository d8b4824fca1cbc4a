"""What is a design to a search? Its key, its knobs and its results."""
