"""Tests of `deadlined.service.content`."""
