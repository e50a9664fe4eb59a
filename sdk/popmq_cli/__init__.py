"""The command line of PopMQ."""
