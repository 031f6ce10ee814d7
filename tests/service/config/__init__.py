"""Tests of `deadlined.service.config`."""
