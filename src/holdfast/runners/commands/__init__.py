"""The parts of `runners/command.py`: one external program, run as a job."""
