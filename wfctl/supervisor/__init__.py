"""The supervisor: lock, recover, step, wait, drain."""
