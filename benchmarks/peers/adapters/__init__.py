"""One adapter a job queue, run as a script in that queue's own virtual environment. Nothing of ours imports them."""
