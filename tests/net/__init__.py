"""Tests of `deadlined.net`."""
