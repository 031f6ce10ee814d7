"""`python -m loadtest churn URL`: many keep-alive connections that move their deadlines, expire, reset, close, return.

The modules from the bottom up: `profiles` says what a connection does next, and when; `connection` is one of them, or a
crowd; `client` is a process of them; `audit` asks what the server says of itself, and compares; `run` is the whole, and
judges; `command` is the command, and prints.
"""
