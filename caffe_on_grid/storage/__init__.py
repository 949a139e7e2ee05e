"""Files by URI, and snapshots that are complete or absent."""
