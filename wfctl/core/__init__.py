"""The decision core: values in, decisions out. No files, no clock, no logging, no subprocess."""
