"""A server of the Model Context Protocol: an agent looks at a broker with the rights of an access key.

    popmq mcp [--allow redrive,purge,send]        over standard input and output, as MCP hosts start it

    reading.py    tools that change nothing       changing.py   tools that --allow names
    answers.py    bounded answers, in which texts of others are marked            serving.py   the server

See docs/integrations/mcp.md and docs/decisions/0064-mcp.md.
"""
