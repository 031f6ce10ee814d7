"""Tests of `deadlined.service.listening`."""
