"""A run: parts of one snapshot, each read and staged once, then published together."""
