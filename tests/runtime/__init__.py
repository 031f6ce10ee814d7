"""Tests of `deadlined.runtime`."""
