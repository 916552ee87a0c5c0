"""One module or folder a wall. They never import each other; `registry` loads them by name."""
