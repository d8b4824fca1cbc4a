"""What is kept of a study on disk? Its journal, its designs and its seal."""
