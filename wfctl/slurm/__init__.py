"""Runs on a Slurm cluster: the second implementation of what a driver asks a keeper for (contract 3.0, 6.9 to 6.11)."""
