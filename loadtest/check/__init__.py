"""`python -m loadtest check URL`: when, how and by which rule a server cuts slow clients, and a grade for it.

The modules from the bottom up: `script` is the vocabulary; `loop` and `probe` are connections and when they end;
`scripts` says what each attack sends; `attacker` follows scripts in a process of its own; `kinds` reads a deadline off
what was seen; `attacks`, `grade` and `advice` (advice.toml) judge; `run` is the whole; `shown`, `page` and `junit` are
its outputs; `command` is the command.
"""
