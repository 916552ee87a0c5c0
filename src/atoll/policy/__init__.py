"""Rules as pure functions: they check what a caller asked for and turn it into plain data."""
