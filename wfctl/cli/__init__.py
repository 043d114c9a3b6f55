"""The command line: one module per noun. Commands hold no rules: parse, one operation, render."""
