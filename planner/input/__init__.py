"""What did a user give us, and is it what we asked for? Files, plans and arguments, with all problems at once."""
