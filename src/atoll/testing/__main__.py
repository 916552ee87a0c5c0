"""`python -m atoll.testing FILE` writes docs/reference/conformance.md, from the results in FILE, to standard output."""

from __future__ import annotations

import sys

from .matrix import page
from .record import read

if len(sys.argv) != 2:
    sys.exit("usage: python -m atoll.testing FILE, which was written by pytest --record-conformance FILE")
sys.stdout.write(page(read(sys.argv[1])))
