"""A process by itself: its signals and its end, its children, descriptors and memory, what blocks it, and systemd."""
