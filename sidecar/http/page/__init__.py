"""The status page: figures of the status model become rows, bars, charts and one sentence that says how things are.

Everything but `rendering` is pure. Markup, style and script are next to the modules; there is no build step, and the page works
without its script.
"""
