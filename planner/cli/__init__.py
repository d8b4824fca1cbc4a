"""What do you type? The command line, a module or a package for each command."""
