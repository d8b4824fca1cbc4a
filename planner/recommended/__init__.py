"""What is recommended, and what are the alternatives? Answers as values, from rows of designs to files and studies."""
