"""Tests of what must hold on every event loop."""
