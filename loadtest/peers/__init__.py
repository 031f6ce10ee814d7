"""Programs that are measured, ours and the peers' alike. Each runs in a process of its own and imports only what it
measures."""
