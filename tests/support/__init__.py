"""Code that several tests share, one module per subject."""
