"""Worker processes: their supervisor, what they accept from, their messages, and those that hang."""
