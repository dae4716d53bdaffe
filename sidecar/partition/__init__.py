"""One partition, without clocks, clients, locks and paths: values, rules and domain events."""
