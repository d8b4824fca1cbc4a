"""What is known of a study that is kept on disk? Going on with it, merging and exporting it."""
