"""Tools for working on wfctl. They are no part of the package."""
