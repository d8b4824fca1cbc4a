"""What is recommended, and beside what? An answer as values, from rows of designs to the files and studies that hold it."""
