"""Tests of `deadlined.service.serving`."""
