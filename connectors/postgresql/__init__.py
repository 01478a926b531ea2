"""PostgreSQL: binary COPY in parallel parts of one exported snapshot."""
