"""`tiered-sidecar` as it is installed, but for the number of races that it runs with its store: the program of most tests.

A start with 132 races costs half a second of CPU here, and more in the server. What they find is the question of tests/storage.
"""

from sidecar.cli import main
from sidecar.storage import race

SHORT_RACE_TURNS = 10
"""Eight with all writers, and two with two."""

if __name__ == "__main__":
    race.TURNS = SHORT_RACE_TURNS  # type: ignore[misc]
    main()
