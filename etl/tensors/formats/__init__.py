"""One module per data file format."""
