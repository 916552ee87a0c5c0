"""Run code that an AI agent wrote, behind any wall, with one API."""
