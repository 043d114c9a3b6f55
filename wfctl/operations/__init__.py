"""One function per operation, the same for every door: Python API, JSON-RPC, client and command line."""
