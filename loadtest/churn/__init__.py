"""`python -m loadtest churn URL`: many keep-alive connections that move their deadlines, expire, reset, close, return.

The modules from the bottom up: `profiles` says what a connection does next, and when; `tally` counts; `connection` is
one of them, `crowd` all of one process; `result` judges and compares; `admin` is what the server says of itself, and
`audit` asks it and compares; `run` is the whole; `shown` prints it; `command` is the command.
"""
