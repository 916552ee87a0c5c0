"""The checks, one group a file. They use the public API only, and a shell and the core utilities inside."""
