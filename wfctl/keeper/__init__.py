"""The small process that is the parent of all runs, and the driver's side of it (contract 6.9, 6.10). It decides nothing."""
