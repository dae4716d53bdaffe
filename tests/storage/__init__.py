"""One contract for all stores, and the faults that real networks, disks and stores have."""
