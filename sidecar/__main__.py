"""`python -m sidecar` is `tiered-sidecar`."""

from sidecar.cli import main

if __name__ == "__main__":
    main()
