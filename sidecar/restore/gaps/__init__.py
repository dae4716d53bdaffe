"""What a restore does where the archive lacks offsets: batches of our own, markers for transactions, producers at the end."""
