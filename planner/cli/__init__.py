"""What do you type? The command line, a module or a package for each command.

entry, commands   where `capplan` begins and ends; all commands, and what becomes of errors
options           what several commands have in common, and how options are read
terminal          help, progress, interrupts and exit codes, and how answers are told
study, trace      groups of commands
"""
