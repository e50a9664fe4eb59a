"""What an engine takes and gives: the `Engine` interface, its commands, queries and answers, and what it may lack."""
