"""Tests of `deadlined.poll`."""
