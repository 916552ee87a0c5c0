"""Agents: a model that works in a sandbox, and keeps what it did."""
