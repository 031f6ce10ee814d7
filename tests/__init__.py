"""The project's tests. Each folder mirrors the package of the same name."""
