"""The dashboard: pages for people, served beside the API. `router.router` is all of it.

A page is made on the server (Jinja2), kept fresh by fragments of itself (htmx) whenever the audit log grows
(server-sent events), and drawn on by uPlot. Everything it loads comes from this server. It asks the store for no more
than the API does, with the same rights: who is signed in has a token, and is limited by it (`session.py`).
"""
