"""Tests of `deadlined.service.process`."""
