"""What do you type? The command line, a module or a package for each command.

entry, commands   where `capplan` begins and ends; all commands, and how errors are reported
options           options that several commands share, and how options are read
terminal          help, progress, interrupts, exit codes, and how answers are printed
study, trace      groups of commands

Nothing but click is imported until a command runs, which keeps `--help` fast.
"""
