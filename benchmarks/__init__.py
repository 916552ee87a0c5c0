"""What atoll promises, measured beside a peer or a floor in one run. `make bench`; not part of the tests."""
