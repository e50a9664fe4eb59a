"""The console: web pages of a broker, as a process of its own that speaks popmq.v1 through the SDK.

    browser ──▶ guards.py: host, headers, body, CSRF ──▶ app.py: login, page or action ──▶ pages/* ──▶ popmq.AsyncClient
               cookie: a random id                      logins.py: id → client with the caller's key   ──▶ broker

Pages are rendered here (templates/), refreshed by server-sent events, and usable without the script. Every call carries
the key of the person at the browser: the broker decides what it may do, and the console has no rights of its own.

See docs/decisions/0044-console.md.
"""
