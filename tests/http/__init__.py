"""Tests of `deadlined.http`."""
