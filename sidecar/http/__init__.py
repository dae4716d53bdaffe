"""One port for who watches: a page for people, /metrics, /healthz, /readyz and /status. Read-only, bounded, behind a token or not.

It renders a `Health` and a `StatusModel`; it calls nothing else, least of all the object store.
"""
