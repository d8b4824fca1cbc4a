"""What is stored of a study on disk? Its journal, its designs and its seal."""
