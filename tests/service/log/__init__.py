"""Tests of `deadlined.service.log`."""
