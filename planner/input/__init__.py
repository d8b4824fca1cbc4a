"""What did the user provide, and is it valid? Files, plans and arguments, with all problems reported at once."""
