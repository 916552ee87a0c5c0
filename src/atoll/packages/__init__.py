"""Environments: what `packages=` asks for, built once behind a wall, kept on disk, and shown to sandboxes read-only.

Nothing of a package ever runs on this side. See docs/how-to/packages.md.
"""
