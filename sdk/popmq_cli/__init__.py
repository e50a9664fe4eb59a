"""The command line of PopMQ: `main` is the entry point, `commands` lists the commands, packages have them."""
