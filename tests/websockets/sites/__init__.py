"""Applications with websockets."""
