"""Tests of `deadlined.proxy`."""
