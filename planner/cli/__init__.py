"""What do you type? The command line, a module for each command."""
