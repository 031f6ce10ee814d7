"""Tests of `deadlined.threads`."""
