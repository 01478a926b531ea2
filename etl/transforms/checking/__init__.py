"""What `etl.checks` declares of rows: one class for each check."""
