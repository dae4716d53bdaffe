"""The charts: what they render, what they refuse, and that nothing generated is out of date."""
