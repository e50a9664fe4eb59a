"""The Spark connector of PopMQ."""
