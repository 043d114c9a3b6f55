"""The only code that knows the store's file names, formats and SQL (contract 2)."""
