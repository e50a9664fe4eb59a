"""A broker in a process of its own, with retention that runs constantly, and the files below it."""
