"""The command line as a user has it: a process, its output, its exit code."""
