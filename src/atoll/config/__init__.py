"""Settings of agents: where they come from, what they may be, and whom they are believed."""
