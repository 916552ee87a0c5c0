"""Writes docs/reference/conformance.md to standard output."""

from __future__ import annotations

import sys

from .matrix import page

sys.stdout.write(page())
