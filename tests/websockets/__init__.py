"""Websockets from outside: real clients, real applications, and peers that misbehave, against `deadlined serve`."""
