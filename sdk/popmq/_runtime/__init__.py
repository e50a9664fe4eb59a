"""What depends on the process: imports at the first use, forks, the end of the interpreter."""
