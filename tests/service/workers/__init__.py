"""Tests of `deadlined.service.workers`."""
