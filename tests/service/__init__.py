"""Tests of `deadlined.service`."""
