"""Programs that put servers under load, where Python would be the slower side."""
