"""Tests of `deadlined.asgi`."""
