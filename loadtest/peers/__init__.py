"""The measured programs, ours and the peers'. Each runs in a process of its own and imports only what it measures."""
