"""The log of a process: what a line says, its layouts for people and for machines, and output that never blocks."""
