"""HTTP client: where servers are (`address`), and one request with its whole answer (`client`)."""
