"""Tests of `deadlined.service.command`."""
