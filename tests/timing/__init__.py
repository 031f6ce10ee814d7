"""Tests of `deadlined.timing`."""
