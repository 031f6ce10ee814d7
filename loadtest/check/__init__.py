"""`python -m loadtest check URL`: when, how and by which rule a server cuts slow clients, and a grade for it.

The modules from the bottom up: `scripts` says what each attack sends; `probe` is a connection and when it ends;
`attacker` follows scripts in a process of its own; `kinds` reads a deadline off what was seen; `attacks`
(attacks.toml, advice.toml) and `grade` judge; `run` is the whole; `shown` (report.*) is what is made of it; `command`
is the command.
"""
